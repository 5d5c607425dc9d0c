#include "tools/muster/plan.h"

#include <algorithm>

#include <fmt/ranges.h>

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

// As it is written in a job file, with what is not the default.
std::string text_of(const config::SyncOptions& sync) {
  const config::SyncOptions usual;
  std::vector<std::string> words;
  const auto add = [&](std::string_view name, const auto& value, const auto& without) {
    if (value != without) words.push_back(fmt::format("{}: {}", name, value));
  };
  // Always, so that it is seen.
  words.push_back("strategy: " + sync.strategy);
  add("reduction", sync.reduction, usual.reduction);
  add("rounding", sync.rounding, usual.rounding);
  add("bits", sync.bits, usual.bits);
  add("rotation", sync.rotation, usual.rotation);
  add("bucket", sync.bucket, usual.bucket);
  if (sync::is_periodic(sync.strategy)) {
    add("replicas", sync.replicas, int64_t{0});
    if (!sync::sends_gradients(sync.strategy)) add("period", sync.period, int64_t{0});
    add("rounds", sync.rounds, usual.rounds);
  }
  return fmt::format("{{ {} }}", fmt::join(words, ", "));
}

// If that is possible with this job.
void add(std::vector<Setting>& all, config::Job job, const config::SyncOptions& sync) {
  job.sync = sync;
  // A loop of one's own knows nothing of replicas.
  if (job.model.use == "own-loop" && sync::is_periodic(sync.strategy)) return;
  if (!config::validate(job).ok()) return;
  all.push_back({.sync = text_of(sync), .job = std::move(job)});
}

}  // namespace

std::vector<Setting> settings_for(const config::Job& job, int hosts) {
  std::vector<Setting> all = {{.sync = "", .job = job}};
  const auto plain = sync::lockstep_of(job.sync);
  if (job.sync != plain) add(all, job, plain);
  for (const int64_t bits : {16, 8, 4, 2}) {
    auto few = plain;
    few.bits = bits;
    if (bits <= 4) few.rotation = "hadamard";
    add(all, job, few);
  }
  const auto with = [&](const std::string& strategy, int64_t bits, int64_t rounds) {
    auto other = plain;
    other.strategy = strategy;
    other.replicas = replicas_for(job.lanes, hosts);
    other.bits = bits;
    if (bits < 32) other.rotation = "hadamard";
    other.rounds = rounds;
    return other;
  };
  const auto rounds = [&](const std::string& strategy, int64_t period, int64_t bits,
                          int64_t together) {
    auto other = with(strategy, bits, together);
    other.period = period;
    add(all, job, other);
  };
  const std::string nesterov = job.optimizer.kind == "muon" ? "muloco" : "diloco";
  rounds(nesterov, 16, 4, 0);
  rounds(nesterov, 48, 4, 0);
  rounds("sparseloco", 15, 32, 100);
  rounds("sparseloco", 30, 32, 50);
  rounds("streaming", 48, 4, 16);
  rounds("average", 48, 32, 0);
  rounds("bmuf", 48, 32, 0);
  rounds("easgd", 48, 32, 0);
  rounds("gossip", 48, 32, 4);
  rounds("desloc", 48, 4, 0);
  rounds("sparta", 16, 32, 0);
  rounds("local-then-lockstep", 48, 32, 0);
  for (const char* strategy : {"powersgd", "topk", "threshold", "onebit"}) {
    add(all, job, with(strategy, 32, 100));
  }
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
