#include "tools/muster/plan.h"

#include <algorithm>

#include "muster/base/text.h"
#include "muster/config/validate.h"
#include "muster/sync/recipe.h"

namespace muster::cli {
namespace {

// Not worth another algorithm.
constexpr double kNearly = 1.10;

// The divisor of `lanes` that is nearest to one replica for each host, and not less if possible.
int64_t replicas_for(int64_t lanes, int hosts) {
  int64_t replicas = 1;
  for (int64_t r = 1; r <= lanes; ++r) {
    if (lanes % r != 0) continue;
    replicas = r;
    if (r >= hosts) break;
  }
  return replicas;
}

// If that is possible with this job.
void add(std::vector<Setting>& all, config::Job job, const config::SyncOptions& sync,
         std::vector<std::string> set) {
  job.sync = sync;
  if (!config::validate(job).ok()) return;
  all.push_back({.set = std::move(set), .job = std::move(job)});
}

}  // namespace

std::vector<Setting> settings_for(const config::Job& job, int hosts) {
  std::vector<Setting> all = {{.set = {}, .job = job}};
  config::SyncOptions plain;
  plain.bucket = job.sync.bucket;
  plain.reduction = job.sync.reduction;
  plain.rounding = job.sync.rounding;
  if (job.sync != plain) add(all, job, plain, {"sync.strategy=lockstep", "sync.bits=32"});
  for (const int64_t bits : {16, 8, 4, 2}) {
    auto few = plain;
    few.bits = bits;
    std::vector<std::string> set = {fmt::format("sync.bits={}", bits)};
    if (bits <= 4) {
      few.rotation = "hadamard";
      set.emplace_back("sync.rotation=hadamard");
    }
    add(all, job, few, set);
  }
  const int64_t replicas = replicas_for(job.lanes, hosts);
  const auto rounds = [&](const std::string& strategy, int64_t period, int64_t bits,
                          int64_t count) {
    auto other = plain;
    other.strategy = strategy;
    other.replicas = replicas;
    other.period = period;
    other.bits = bits;
    std::vector<std::string> set = {"sync.strategy=" + strategy,
                                    fmt::format("sync.replicas={}", replicas)};
    if (!sync::sends_gradients(strategy)) set.push_back(fmt::format("sync.period={}", period));
    if (bits < 32) {
      other.rotation = "hadamard";
      set.push_back(fmt::format("sync.bits={}", bits));
      set.emplace_back("sync.rotation=hadamard");
    }
    if (count > 0) {
      other.rounds = count;
      set.push_back(fmt::format("sync.rounds={}", count));
    }
    add(all, job, other, set);
  };
  rounds("diloco", 16, 4, 0);
  rounds("diloco", 48, 4, 0);
  rounds("sparseloco", 15, 32, 100);
  rounds("sparseloco", 30, 32, 50);
  rounds("average", 48, 32, 0);
  rounds("bmuf", 48, 32, 0);
  rounds("easgd", 48, 32, 0);
  rounds("gossip", 48, 32, 4);
  rounds("powersgd", 16, 32, 100);
  rounds("topk", 16, 32, 100);
  rounds("threshold", 16, 32, 100);
  rounds("onebit", 16, 32, 100);
  return all;
}

config::Job share_of(config::Job job, int hosts) {
  const int64_t lanes = std::max<int64_t>(1, (job.lanes + hosts - 1) / hosts);
  job.batch = std::max<int64_t>(lanes, job.batch * lanes / job.lanes);
  job.lanes = lanes;
  job.sync = {};
  job.workers = {};
  return job;
}

size_t recommended(const std::vector<Prediction>& predictions) {
  const auto seconds = [&](size_t i) { return predictions[i].cost.step_seconds; };
  size_t fastest = 0;
  for (size_t i = 1; i < predictions.size(); ++i) {
    if (seconds(i) < seconds(fastest)) fastest = i;
  }
  for (size_t i = 0; i < predictions.size(); ++i) {
    if (seconds(i) <= kNearly * seconds(fastest)) return i;
  }
  return fastest;
}

std::string reason_for(const std::vector<Prediction>& predictions, size_t choice, double compute) {
  const auto waits = [&](size_t i) {
    const double step = predictions[i].cost.step_seconds;
    return 100 * (step - compute) / step;
  };
  if (choice == 0) {
    return fmt::format(
        "As the job is, a worker waits for the network {:.0f} % of the time; nothing else is "
        "{:.0f} "
        "% faster",
        waits(0), 100 * (kNearly - 1));
  }
  return fmt::format(
      "As the job is, a worker waits for the network {:.0f} % of the time; with this {:.0f} %. It "
      "is "
      "the least change that is within {:.0f} % of the fastest. It is another job, with another "
      "result: try its accuracy",
      waits(0), waits(choice), 100 * (kNearly - 1));
}

}  // namespace muster::cli
