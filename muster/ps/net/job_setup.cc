#include "muster/ps/net/job_setup.h"

#include "muster/base/check.h"

namespace muster::ps {

TablesSetup setup_of(const config::Job& job) {
  const auto& tables = job.tables;
  const auto rule = rule_named(tables.optimizer);
  MUSTER_CHECK(tables.width > 0 && rule.ok(), "the job is valid, and has a table");
  TablesSetup setup;
  setup.shards = static_cast<ShardNumber>(tables.shards);
  setup.copies = static_cast<int>(tables.copies);
  auto& table = setup.tables.emplace_back();
  table.name = "rows";
  table.width = static_cast<uint32_t>(tables.width);
  table.scale = tables.scale;
  table.seed = job.seed;
  table.optimizer = {*rule,        tables.lr,   tables.eps, tables.beta1,
                     tables.beta2, tables.beta, tables.l1,  tables.l2};
  return setup;
}

}  // namespace muster::ps
