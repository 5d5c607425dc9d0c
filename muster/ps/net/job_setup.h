// The tables of a job, as its file describes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "muster/config/job.h"
#include "muster/ps/net/control.h"

namespace muster::ps {

// Rows, if there are any, are table 0. config::has_tables(job) must be true.
TablesSetup setup_of(const config::Job& job);

// The clock of a shard (table_data.h) after so many steps.
int64_t clock_after(const config::Job& job, int64_t steps);

// The name of a shard in a checkpoint's state.
std::string rows_name(size_t shard);

// How long its registry waits, and for how many servers.
RegistryOptions registry_options_of(const config::Job& job);

// The table of the model's own parameters, if they are in one: the parts of a flat buffer, with
// ascending keys.
uint32_t weight_table(const config::Job& job);

}  // namespace muster::ps
