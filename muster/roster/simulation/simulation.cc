#include "muster/roster/simulation/simulation.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "muster/roster/simulation/worker.h"

namespace muster::roster::simulation {

using namespace std::chrono_literals;

namespace {

// What kind of run this is; drawn first.
struct Scenario {
  int workers = 3;  // at the start
  int slots = 5;    // workers there can ever be
  bool peaceful = false;
  // One fault in a quiet job: then it is known how soon the others must go on.
  enum class Lone : uint8_t { kNo, kKill, kPower, kCut };
  Lone lone = Lone::kNo;
  Duration length{0};   // how long faults go on
  Duration between{0};  // mean time between two of them
  Options options;
  Timing timing;
  double duplicates = 0;

  std::string text() const {
    return fmt::format("{} workers of {}, {} lanes, min {}, max {}, {}{:.1f} s of {}", workers,
                       slots, options.lanes, options.min_workers, options.max_workers,
                       duplicates > 0 ? "duplicates, " : "", seconds(length),
                       peaceful ? "peace"
                       : lone != Lone::kNo
                           ? "quiet, then one fault"
                           : fmt::format("faults every {:.0f} ms", seconds(between) * 1e3));
  }
};

Scenario draw_scenario(World& world) {
  Scenario scenario;
  const uint64_t kind = world.below(1000);
  const bool large = kind < 1;
  scenario.peaceful = kind >= 900;
  const bool lone = kind >= 840 && kind < 900;
  if (lone) scenario.lone = static_cast<Scenario::Lone>(1 + world.below(3));
  scenario.workers =
      static_cast<int>(large ? 100 + world.below(200) : (lone ? 2 : 1) + world.below(6));
  scenario.slots = scenario.workers + static_cast<int>(1 + world.below(3));
  Options& options = scenario.options;
  options.job = "sim";
  options.lanes = static_cast<int32_t>(large ? 512 : 4 + world.below(13));
  options.min_workers = world.chance(0.25) && scenario.workers > 1 && !lone ? 2 : 1;
  options.max_workers =
      world.chance(0.2) ? std::max(options.min_workers, static_cast<int32_t>(scenario.workers)) : 0;
  options.expected = world.chance(0.7) ? scenario.workers : 0;
  options.gather = 300ms;
  options.lease = 500ms;
  options.heartbeat = scenario.timing.heartbeat;
  options.linger = world.chance(0.2) ? 100ms : 0ms;
  options.hang_timeout = 1200ms;
  options.confirm = 20ms;
  options.bar = 1s;
  options.longest_bar = 4s;
  options.rebalance_every = 800ms;
  options.grace = 300ms;
  scenario.length = world.between(large ? 500ms : 1s, large ? 1s : 4s);
  scenario.between = world.between(60ms, 500ms);
  scenario.duplicates = world.chance(0.3) ? 0.1 : 0;
  return scenario;
}

constexpr Duration kLongestLane = 48ms;  // the slowest worker takes so long for one

// How long a step of all workers takes at most. A lane that overflows has it done twice.
Duration longest_step(const Scenario& scenario) {
  int members = scenario.workers;
  if (scenario.options.max_workers > 0) {
    members = std::min(members, static_cast<int>(scenario.options.max_workers));
  }
  return 2 * ((scenario.options.lanes + members - 1) / members * kLongestLane + 10ms);
}

// Steps that may have to be done again when all who had them are gone: those since the last
// checkpoint, and those of the time it took to write it, of 4 ms at least.
int most_lost(const Scenario& scenario) {
  return static_cast<int>(scenario.timing.checkpoint_every) +
         static_cast<int>(scenario.timing.writing / 4ms);
}

// The longest time from the last fault to three steps committed by everybody who can be in:
// somebody may just have been barred; a process has to start; and then, one after the other,
// everything may have to lapse once.
Duration bound(const Scenario& scenario) {
  const Options& options = scenario.options;
  const Timing& timing = scenario.timing;
  const Duration start = 1s;
  const Duration notice =
      options.lease + options.grace + 6 * options.hang_timeout + timing.operation;
  const Duration retry = options.tries * (options.lease + 2 * timing.form);
  const Duration steps = (most_lost(scenario) + 3) * longest_step(scenario);
  return start + notice + retry + options.longest_bar + 2 * options.rebalance_every + steps;
}

// After one fault in a quiet job the others have committed two more steps within this time. What is
// added to the time it takes to notice is forming a group and a few steps, of 100 ms at most.
Duration lone_bound(const Scenario& scenario) {
  const Options& options = scenario.options;
  const Timing& timing = scenario.timing;
  const Duration go_on = 500ms;
  switch (scenario.lone) {
    case Scenario::Lone::kNo:
    case Scenario::Lone::kKill:
      return go_on;
    case Scenario::Lone::kPower:
      return options.lease + go_on;
    case Scenario::Lone::kCut:
      return timing.operation + options.tries * (timing.form + options.lease) + go_on;
  }
  return go_on;
}

class Run {
 public:
  Run(uint64_t seed, Plant plant, std::ostream* trace)
      : world_(seed, plant, trace),
        scenario_(draw_scenario(world_)),
        witness_(scenario_.options.lanes, 37, static_cast<uint64_t>(scenario_.options.lanes) * 2),
        office_(world_, witness_, scenario_.options),
        began_(world_.now()) {
    world_.trace("seed {}: {}", seed, scenario_.text());
    office_.set_duplicates(scenario_.duplicates);
    for (int slot = 0; slot < scenario_.slots; ++slot) add_worker(slot);
    for (int slot = 0; slot < scenario_.workers; ++slot) {
      world_.after(world_.between(0ms, 100ms), [this, slot] { workers_[at(slot)]->start(); });
    }
  }

  Outcome run() {
    const Moment end = began_ + scenario_.length;
    if (scenario_.lone != Scenario::Lone::kNo) {
      lone_fault();
    } else {
      world_.after(world_.between(50ms, 300ms), [this, end] { next_fault(end); });
      run_until(end, [] { return false; });
    }
    if (!witness_.violation()) make_peace();
    const Moment last = world_.now() + bound(scenario_);
    const Moment peace = world_.now();
    const uint64_t goal = witness_.newest_step() + 3;
    // Looking at everybody after every event would be most of the work of a large run.
    const bool recovered = run_until(last, [&] {
      return world_.events() % 16 == 0 && witness_.newest_step() >= goal && all_in();
    });
    if (!recovered) witness_.violated(why_stuck(goal));
    witness_.check_samples();
    if (scenario_.peaceful) check_peace();
    Outcome outcome;
    outcome.violation = witness_.violation().value_or("");
    outcome.tally = witness_.tally;
    outcome.events = world_.events();
    outcome.time = world_.now() - began_;
    outcome.recovery = world_.now() - peace;
    outcome.scenario = scenario_.text();
    world_.trace("{}", outcome.ok() ? "all is well" : "VIOLATION: " + outcome.violation);
    return outcome;
  }

 private:
  static size_t at(int slot) { return static_cast<size_t>(slot); }

  void add_worker(int slot) {
    const bool slow = world_.chance(0.15);
    const bool quick = scenario_.lone != Scenario::Lone::kNo;
    const Duration lane_time =
        quick ? world_.between(2ms, 5ms) : world_.between(2ms, kLongestLane / 4) * (slow ? 4 : 1);
    const auto threads = static_cast<int32_t>(1 + world_.below(2));
    workers_.push_back(
        std::make_unique<Worker>(Surroundings{world_, office_, witness_, disk_, meetings_,
                                              scenario_.timing, scenario_.options.lanes},
                                 slot, lane_time, threads));
  }

  // True when `enough` was; false when the time is over or a promise is broken.
  template <typename Enough>
  bool run_until(Moment end, Enough enough) {
    while (!witness_.violation() && world_.now() < end && world_.step()) {
      if (enough()) return true;
    }
    return false;
  }

  void lone_fault() {
    if (!run_until(began_ + 5s, [&] { return witness_.newest_step() >= 3 && all_in(); })) {
      witness_.violated("a quiet job does not begin");
      return;
    }
    run_until(world_.now() + world_.between(0ns, 200ms), [] { return false; });
    ++witness_.tally.faults;
    const int slot = static_cast<int>(world_.below(static_cast<uint64_t>(scenario_.workers)));
    const int other = (slot + 1) % scenario_.workers;
    switch (scenario_.lone) {
      case Scenario::Lone::kNo:
        break;
      case Scenario::Lone::kKill:
        workers_[at(slot)]->kill(Worker::Death::kProcess, world_.chance(0.5));
        break;
      case Scenario::Lone::kPower:
        workers_[at(slot)]->kill(Worker::Death::kMachine, false);
        break;
      case Scenario::Lone::kCut:
        world_.trace("network: w{} and w{} are cut off from each other", slot, other);
        world_.cut(slot, other, world_.now() + 60s);
        break;
    }
    const uint64_t goal = witness_.newest_step() + 2;
    const Duration bound = lone_bound(scenario_);
    if (!run_until(world_.now() + bound, [&] { return witness_.newest_step() >= goal; })) {
      witness_.violated(
          fmt::format("one fault held the job up for more than {:.2f} s", seconds(bound)));
    }
  }

  int any_slot() { return static_cast<int>(world_.below(workers_.size())); }

  void next_fault(Moment end) {
    if (world_.now() >= end) return;
    ++witness_.tally.faults;
    scenario_.peaceful ? peaceful_change() : fault();
    world_.after(world_.between(0ns, 2 * scenario_.between), [this, end] { next_fault(end); });
  }

  void peaceful_change() {
    Worker& worker = *workers_[at(any_slot())];
    switch (world_.below(3)) {
      case 0:
        worker.running() ? worker.leave() : worker.start();
        break;
      case 1:
        worker.start();
        break;
      default:
        worker.set_lane_time(world_.between(2ms, 30ms));
    }
  }

  void fault() {
    const int slot = any_slot();
    Worker& worker = *workers_[at(slot)];
    const Moment soon = world_.now() + world_.between(50ms, 1500ms);
    switch (world_.below(14)) {
      case 0:
      case 1:
      case 2:
        kill(slot, Worker::Death::kProcess);
        break;
      case 3:
        kill(slot, Worker::Death::kMachine);
        break;
      case 4:  // two at once, or all but one
        for (const bool all = world_.chance(0.3); const auto& one : workers_) {
          if (&*one != &worker && (all || world_.chance(0.4)))
            kill(slot_of(*one), Worker::Death::kProcess);
        }
        break;
      case 5:
        worker.stop(soon);
        break;
      case 6:
        worker.hang();
        break;
      case 7:
        worker.leave();
        break;
      case 8:
        worker.start();
        break;
      case 9:
        world_.trace("network: {} is cut off from the coordinator", worker.id());
        world_.cut(slot, kCoordinator, soon);
        break;
      case 10: {
        const int other = any_slot();
        if (other == slot) break;
        world_.trace("network: w{} and w{} are cut off from each other", slot, other);
        world_.cut(slot, other, world_.now() + world_.between(50ms, 6s));
        break;
      }
      case 11:
        world_.trace("network: {} is slow", worker.id());
        world_.slow(slot, world_.between(10ms, 700ms), soon);
        break;
      case 12:
        worker.set_lane_time(world_.between(2ms, 30ms));
        break;
      default:
        office_.crash();
        world_.after(world_.between(1ms, 1200ms), [this] { office_.restart(); });
    }
  }

  int slot_of(const Worker& worker) const { return std::stoi(worker.id().substr(1)); }

  void kill(int slot, Worker::Death death) {
    Worker& worker = *workers_[at(slot)];
    if (!worker.running()) return;
    worker.kill(death, world_.chance(0.7));
    // Its launcher starts it again.
    if (world_.chance(0.8)) {
      world_.after(world_.between(20ms, 800ms), [this, slot] { workers_[at(slot)]->start(); });
    }
  }

  // No more faults. What is broken stays so until somebody notices, but it can be mended.
  void make_peace() {
    world_.trace("---- no more faults");
    world_.heal_all();
    office_.set_duplicates(0);
    if (!office_.up()) office_.restart();
    for (size_t slot = 0; slot < workers_.size(); ++slot) {
      // Slots that were never used may stay so; the others are started again by their launchers.
      if (static_cast<int>(slot) < scenario_.workers) keep_running(static_cast<int>(slot));
    }
  }

  void keep_running(int slot) {
    workers_[at(slot)]->start();
    world_.after(400ms, [this, slot] { keep_running(slot); });
  }

  // Everybody who can be in the roster is, and has got to the goal.
  bool all_in() const {
    const Registrar* registrar = office_.registrar();
    if (!registrar) return false;
    const Roster& current = registrar->state().current;
    const Options& options = scenario_.options;
    size_t could = 0;
    for (const auto& worker : workers_) could += worker->running() && !worker->leaving() ? 1 : 0;
    size_t most = static_cast<size_t>(options.lanes);
    if (options.max_workers > 0) most = std::min(most, static_cast<size_t>(options.max_workers));
    if (current.waiting || current.members.size() != std::min(could, most)) return false;
    for (const Member& member : current.members) {
      const auto found = registrar->state().workers.find(member.key.id);
      if (found == registrar->state().workers.end()) return false;
      if (found->second.beat.group != current.number) return false;
    }
    return true;
  }

  std::string why_stuck(uint64_t goal) const {
    const Registrar* registrar = office_.registrar();
    return fmt::format(
        "{:.1f} s after the last fault the job is at step {}, not at {} with everybody in; "
        "the coordinator says: {}",
        seconds(bound(scenario_)), witness_.newest_step(), goal,
        registrar ? registrar->standing() : "nothing, it is down");
  }

  void check_peace() {
    const Tally& tally = witness_.tally;
    if (tally.redone + tally.aborted + tally.failed + tally.lapsed > 0) {
      witness_.violated(
          fmt::format("nothing but joins and leaves, but {} attempts were given up, {} groups "
                      "aborted, {} failed",
                      tally.redone, tally.aborted, tally.failed));
    }
  }

  World world_;
  Scenario scenario_;
  Witness witness_;
  Disk disk_;
  Meetings meetings_;
  Office office_;
  std::vector<std::unique_ptr<Worker>> workers_;
  Moment began_;
};

}  // namespace

Outcome simulate(uint64_t seed, Plant plant, std::ostream* trace) {
  return Run(seed, plant, trace).run();
}

}  // namespace muster::roster::simulation
