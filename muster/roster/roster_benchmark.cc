// How long decisions take, and how soon everybody has a new roster.
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
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
    options.follower.join.job = "job";
    options.follower.join.key.id = id;
    auto& one = clients_[id];
    one = std::make_unique<One>();
    options.on_abort = [this, raw = one.get()](RosterNumber number, const std::string&) {
      const std::lock_guard lock(mutex_);
      raw->aborted = number;
      raw->when = clock_.now();
      changed_.notify_all();
    };
    one->client = Client::start(std::move(options), clock_).value();
  }
  void remove(const std::string& id) { clients_.erase(id); }

  // Brings all into the group of a roster of that many members.
  void form(size_t members) {
    for (auto& [id, one] : clients_) {
      while (one->group == nullptr || one->group->members.size() != members) {
        if (one->group != nullptr && one->client->newest()->number > one->group->number) {
          // At a step boundary, or because it was aborted.
          if (!one->client->committed(++one->step, 0, 1)) break;
          one->group = nullptr;
        }
        if (one->group != nullptr) {
          std::this_thread::sleep_for(std::chrono::microseconds(100));
          continue;
        }
        const Instruction next = one->client->next(std::chrono::seconds(1));
        if (next.kind != Instruction::Kind::kForm) continue;
        one->client->formed(next.roster->number);
        one->group = next.roster;
      }
    }
  }
  // Waits until all were told to abort their group; returns when the last one was.
  Moment all_abort() {
    std::unique_lock lock(mutex_);
    Moment last{};
    changed_.wait(lock, [&] {
      last = {};
      for (const auto& [id, one] : clients_) {
        if (one->group == nullptr || one->aborted != one->group->number) return false;
        last = std::max(last, one->when);
      }
      return true;
    });
    return last;
  }

 private:
  struct One {
    std::unique_ptr<Client> client;
    RosterPtr group;
    uint64_t step = 0;
    RosterNumber aborted = 0;  // guarded by mutex_
    Moment when;               // guarded by mutex_
  };
  const std::string address_;
  const Clock& clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::unique_ptr<One>> clients_;
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
  crowd.form(workers);
  for ([[maybe_unused]] const auto _ : bench) {
    crowd.add("victim");
    crowd.form(workers + 1);
    const Moment begin = clock.now();
    coordinator->exited("victim", 0, "it was killed by signal 9");
    crowd.remove("victim");
    bench.SetIterationTime(seconds(crowd.all_abort() - begin));
    crowd.form(workers);
  }
}
BENCHMARK(push)->Arg(3)->Arg(15)->Arg(63)->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace muster::roster
