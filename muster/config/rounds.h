// How long the rounds and commits of a strategy are: what follows from `sync` alone
// (docs/strategies.md).
//
// Pure.
#pragma once

#include <cstdint>
#include <string_view>

#include "muster/config/job.h"

namespace muster::config {

// Whether a round is one step, in which replicas send a part of their gradients, and all have the
// same weights.
bool sends_gradients(std::string_view strategy);
// Whether several rounds are committed together (sync.rounds).
bool commits_several_rounds(std::string_view strategy);
// Steps of a round: of streaming, of a segment.
int64_t period_of(const SyncOptions& sync);
// Rounds that are committed together.
int64_t rounds_of(const SyncOptions& sync);
// How many steps are committed together.
int64_t steps_per_commit(const SyncOptions& sync);

// Whether all of the model is on parameter servers, and not only rows of tables.
bool is_on_servers(std::string_view strategy);
// Whether workers train asynchronously there: not in steps (sync.mode: sync).
bool is_asynchronous(const SyncOptions& sync);
// Then: how many pushes make one update.
int64_t pushes_of(const SyncOptions& sync);
// Whether each lane trains weights of its own (sync.mode: easgd).
bool is_elastic(const SyncOptions& sync);
// How many steps of its lane a task has; the last one of a job may have fewer.
int64_t steps_of_task(const SyncOptions& sync);
// How many tasks this many steps of all lanes have.
int64_t tasks_of(const SyncOptions& sync, int64_t lanes, int64_t steps);
// Whether something of the job is in tables (muster/ps).
bool has_tables(const Job& job);

}  // namespace muster::config
