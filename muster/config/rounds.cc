#include "muster/config/rounds.h"

namespace muster::config {

bool sends_gradients(std::string_view strategy) {
  return strategy == "topk" || strategy == "threshold" || strategy == "onebit" ||
         strategy == "powersgd";
}

bool commits_several_rounds(std::string_view strategy) {
  return sends_gradients(strategy) || strategy == "gossip" || strategy == "sparseloco" ||
         strategy == "streaming" || strategy == "desloc" || strategy == "sparta";
}

int64_t period_of(const SyncOptions& sync) {
  if (sends_gradients(sync.strategy)) return 1;
  if (is_on_servers(sync.strategy) && !is_asynchronous(sync)) return 1;
  return sync.strategy == "streaming" ? sync.period / sync.fragments : sync.period;
}

int64_t rounds_of(const SyncOptions& sync) {
  if (!commits_several_rounds(sync.strategy)) return 1;
  const int64_t usual = sends_gradients(sync.strategy) ? 64 : sync.strategy == "desloc" ? 6 : 8;
  const int64_t rounds = sync.rounds > 0 ? sync.rounds : usual;
  return sync.strategy == "streaming" ? rounds * sync.fragments : rounds;
}

bool is_on_servers(std::string_view strategy) { return strategy == "server"; }

bool is_asynchronous(const SyncOptions& sync) {
  return is_on_servers(sync.strategy) && sync.mode != "sync";
}

int64_t pushes_of(const SyncOptions& sync) { return sync.mode == "softsync" ? sync.pushes : 1; }

bool is_elastic(const SyncOptions& sync) {
  return is_on_servers(sync.strategy) && sync.mode == "easgd";
}

int64_t steps_of_task(const SyncOptions& sync) {
  if (is_elastic(sync)) return sync.fetch;
  return is_asynchronous(sync) ? sync.push_every : 1;
}

int64_t tasks_of(const SyncOptions& sync, int64_t lanes, int64_t steps) {
  const int64_t of_task = steps_of_task(sync);
  return (steps + of_task - 1) / of_task * lanes;
}

bool has_tables(const Job& job) { return job.tables.width > 0 || is_on_servers(job.sync.strategy); }

int64_t steps_per_commit(const SyncOptions& sync) { return period_of(sync) * rounds_of(sync); }

}  // namespace muster::config
