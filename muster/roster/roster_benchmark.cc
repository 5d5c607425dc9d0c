// How long decisions take, and how soon everybody has a new roster.
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "muster/roster/client.h"
#include "muster/roster/coordinator.h"
#include "muster/roster/lanes.h"
#include "muster/roster/simulation/simulation.h"

namespace muster::roster {
namespace {

using namespace std::chrono_literals;

void decide_nothing(benchmark::State& bench) {
  const auto workers = static_cast<int>(bench.range(0));
  Options options;
  options.lanes = workers;
  const Moment now{1000s};
  State state;
  for (int i = 0; i < workers; ++i) {
    WorkerState worker;
    worker.join.key = {std::to_string(i), 1};
    worker.heard = worker.joined = worker.progressed = now;
    state.workers[worker.key().id] = worker;
  }
  Decision first = decide(now, state, options);
  carry_out(now, first, state, options);
  for (auto& [id, worker] : state.workers) worker.beat.group = state.current.number;
  for ([[maybe_unused]] const auto _ : bench) {
    const Decision decision = decide(now, state, options);
    if (decision.roster) bench.SkipWithError("nothing has changed");
    benchmark::DoNotOptimize(decision);
  }
}
BENCHMARK(decide_nothing)->Arg(4)->Arg(512)->Arg(10000)->Unit(benchmark::kMicrosecond);

void plan_512_lanes(benchmark::State& bench) {
  std::vector<LaneWorker> workers(128);
  for (size_t i = 0; i < workers.size(); ++i)
    workers[i].lane_seconds = 1 + static_cast<double>(i % 7);
  for ([[maybe_unused]] const auto _ : bench) {
    const LanePlan plan = plan_lanes(workers, {.lanes = 512, .gain = 0.1});
    if (plan.orphans != 512) bench.SkipWithError("a lane is missing");
    benchmark::DoNotOptimize(plan);
  }
}
BENCHMARK(plan_512_lanes)->Unit(benchmark::kMicrosecond);

void schedule(benchmark::State& bench) {
  uint64_t seed = 0;
  for ([[maybe_unused]] const auto _ : bench) {
    const auto outcome = simulation::simulate(++seed);
    if (!outcome.ok()) bench.SkipWithError(outcome.violation.c_str());
  }
  bench.SetItemsProcessed(bench.iterations());
}
BENCHMARK(schedule)->Unit(benchmark::kMillisecond);

// Clients that say at once that they are in whatever roster they get.
class Crowd {
 public:
  Crowd(const std::string& address, const Clock& clock) : address_(address), clock_(clock) {}

  void add(const std::string& id) {
    ClientOptions options;
    options.addresses = {address_};
    options.join.job = "job";
    options.join.key.id = id;
    options.on_roster = [this, id](const RosterPtr& roster) {
      const std::lock_guard lock(mutex_);
      seen_[id] = {roster, clock_.now()};
      changed_.notify_all();
    };
    clients_[id] = Client::start(std::move(options), clock_).value();
  }
  void remove(const std::string& id) {
    clients_.erase(id);
    const std::lock_guard lock(mutex_);
    seen_.erase(id);
  }
  // Waits until all have a roster of that many members; returns when the last one got it.
  Moment all_have(size_t members) {
    Moment last{};
    RosterNumber number = 0;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] {
        if (seen_.size() != clients_.size()) return false;
        last = {};
        for (const auto& [id, seen] : seen_) {
          if (seen.first->members.size() != members) return false;
          last = std::max(last, seen.second);
          number = seen.first->number;
        }
        return true;
      });
    }
    for (auto& [id, client] : clients_) client->set_group(number, Activity::kComputing);
    return last;
  }

 private:
  const std::string address_;
  const Clock& clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::pair<RosterPtr, Moment>> seen_;
  std::map<std::string, std::unique_ptr<Client>> clients_;
};

// From a launcher's notice that a worker ended to the roster without it at the last of the others.
void push(benchmark::State& bench) {
  const auto workers = static_cast<size_t>(bench.range(0));
  const SystemClock clock;
  CoordinatorOptions options;
  options.roster.job = "job";
  options.roster.lanes = static_cast<int32_t>(workers) + 1;
  options.roster.expected = static_cast<int32_t>(workers);
  const auto coordinator = Coordinator::start(std::move(options), clock).value();
  Crowd crowd(coordinator->address(), clock);
  for (size_t i = 0; i < workers; ++i) crowd.add("w" + std::to_string(i));
  crowd.all_have(workers);
  for ([[maybe_unused]] const auto _ : bench) {
    crowd.add("victim");
    crowd.all_have(workers + 1);
    const Moment begin = clock.now();
    coordinator->exited("victim", 0, "it was killed by signal 9");
    crowd.remove("victim");
    bench.SetIterationTime(seconds(crowd.all_have(workers) - begin));
  }
}
BENCHMARK(push)->Arg(3)->Arg(15)->Arg(63)->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace muster::roster
