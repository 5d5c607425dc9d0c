#include "muster/ps/net/job_setup.h"

#include <algorithm>
#include <limits>

#include "muster/base/check.h"
#include "muster/config/rounds.h"

namespace muster::ps {

uint32_t weight_table(const config::Job& job) { return job.tables.width > 0 ? 1 : 0; }

std::string rows_name(size_t shard) { return "rows/" + std::to_string(shard); }

int64_t clock_after(const config::Job& job, int64_t steps) {
  if (!config::is_asynchronous(job.sync)) return steps;
  return config::tasks_of(job.sync, job.lanes, steps) / config::pushes_of(job.sync);
}

namespace {

constexpr uint32_t kWeightsOfARow = 256;

RowRule known_rule(const std::string& name) {
  const auto rule = rule_named(name);
  MUSTER_CHECK(rule.ok(), "the job is valid");
  return *rule;
}

Eviction eviction_of(const config::Job& job) {
  const auto& tables = job.tables;
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  const auto clock = [&](int64_t steps) {
    return static_cast<uint32_t>(std::min(clock_after(job, steps), kMost));
  };
  return {.age = clock(tables.evict_after),
          .most = static_cast<uint64_t>((tables.most_rows + tables.shards - 1) / tables.shards),
          .every = clock(kEvictEvery)};
}

TableOptions rows_of(const config::Job& job) {
  const auto& tables = job.tables;
  TableOptions table;
  table.name = "rows";
  table.width = static_cast<uint32_t>(tables.width);
  table.scale = tables.scale;
  table.seed = job.seed;
  table.versions = static_cast<uint32_t>(job.tables.staleness);
  table.optimizer = {known_rule(tables.optimizer),
                     tables.lr,
                     tables.eps,
                     tables.beta1,
                     tables.beta2,
                     tables.beta,
                     tables.l1,
                     tables.l2};
  table.admission = {static_cast<uint16_t>(tables.admit_after), tables.admit_probability};
  table.eviction = eviction_of(job);
  return table;
}

TableOptions weights_of(const config::Job& job) {
  const auto& optimizer = job.optimizer;
  TableOptions table;
  table.id = weight_table(job);
  table.name = "weights";
  table.width = kWeightsOfARow;
  table.initial = InitialWeights::kZero;
  table.seed = job.seed;
  table.optimizer.rule = known_rule(optimizer.kind);
  table.optimizer.lr = optimizer.lr;
  table.optimizer.eps = optimizer.eps;
  table.optimizer.beta1 = optimizer.beta1;
  table.optimizer.beta2 = optimizer.beta2;
  return table;
}

}  // namespace

TablesSetup setup_of(const config::Job& job) {
  MUSTER_CHECK(config::has_tables(job), "the job has tables");
  TablesSetup setup;
  setup.shards = static_cast<ShardNumber>(job.tables.shards);
  setup.copies = static_cast<int>(job.tables.copies);
  if (job.tables.width > 0) setup.tables.push_back(rows_of(job));
  if (config::is_on_servers(job.sync.strategy)) setup.tables.push_back(weights_of(job));
  return setup;
}

RegistryOptions registry_options_of(const config::Job& job) {
  RegistryOptions options;
  options.first = static_cast<size_t>(job.tables.servers);
  // As for workers. One whose process ends is noticed at once, if that is seen.
  options.patience =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(job.workers.lease));
  options.lease = options.patience * 17 / 20;
  options.unreachable = 3 * options.patience;
  return options;
}

}  // namespace muster::ps
