#include "muster/roster/simulation/simulation.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <set>

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
  enum class Lone : uint8_t { kNo, kKill, kPower, kCut, kHang, kSuspend, kRestart };
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

// Times are those of the product: Options and Timing have its defaults, and what is drawn here
// (lanes, faults) is chosen to fit them.
Scenario draw_scenario(World& world) {
  Scenario scenario;
  const uint64_t kind = world.below(1000);
  const bool large = kind < 1;
  scenario.peaceful = kind >= 920;
  const bool lone = kind >= 840 && kind < 920;
  if (lone) scenario.lone = static_cast<Scenario::Lone>(1 + world.below(6));
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
  options.longest_quarantine = 40s;
  scenario.length = world.between(large ? 2s : 4s, large ? 5s : 40s);
  scenario.between = world.between(200ms, 4s);
  scenario.duplicates = world.chance(0.3) ? 0.1 : 0;
  scenario.timing.evaluations = !scenario.peaceful && !lone && !large && world.chance(0.15);
  return scenario;
}

constexpr Duration kLongestLane = 800ms;  // the slowest worker takes so long for one
constexpr Duration kQuickLane = 25ms;     // in a quiet job

// How long a step of all workers takes at most. A lane that overflows has it done twice.
Duration longest_step(const Scenario& scenario) {
  int members = scenario.workers;
  if (scenario.options.max_workers > 0) {
    members = std::min(members, static_cast<int>(scenario.options.max_workers));
  }
  const bool quiet = scenario.lone != Scenario::Lone::kNo;
  if (quiet) members = std::max(1, members - 1);  // those who are left do it alone for a while
  const Duration lane = quiet ? kQuickLane : kLongestLane;
  return 2 * ((scenario.options.lanes + members - 1) / members * lane + 10ms);
}

// Steps that may have to be done again when all who had them are gone: those since the last
// checkpoint, those of the time it took to write it, of 40 ms at least, and a checkpoint that was
// deleted.
int most_lost(const Scenario& scenario) {
  return static_cast<int>(2 * scenario.timing.checkpoint_every) +
         static_cast<int>(scenario.timing.writing / 40ms);
}

// The longest time from the last fault to three steps committed by everybody who can be in: a
// worker may just have been quarantined; a process has to start; and then, one after the other,
// everything may have to time out once.
Duration bound(const Scenario& scenario) {
  const Options& options = scenario.options;
  const Timing& timing = scenario.timing;
  const Duration start = 1s;
  const Duration notice =
      options.lease + 2 * options.grace + 3 * options.hang_timeout + timing.silence;
  const Duration retry = options.tries * (options.lease + timing.form);
  const Duration steps = (most_lost(scenario) + 3) * longest_step(scenario);
  const Duration work = timing.slow_disk + (timing.evaluations ? 400s : 0s);
  // Those who join wait for the step boundary of one that was left alone with all lanes.
  const Duration alone = 2 * options.lanes * kLongestLane;
  return start + notice + retry + options.longest_quarantine + 2 * options.rebalance_every + steps +
         work + alone;
}

// After one fault in a quiet job the others have committed two more steps within this time. What is
// added to the time it takes to notice is forming a group and a few steps.
Duration lone_bound(const Scenario& scenario) {
  const Options& options = scenario.options;
  const Duration go_on = 500ms + 2 * longest_step(scenario);
  switch (scenario.lone) {
    case Scenario::Lone::kNo:
    case Scenario::Lone::kKill:
    case Scenario::Lone::kSuspend:
    case Scenario::Lone::kRestart:
      return go_on;
    case Scenario::Lone::kPower:
      return options.lease + go_on;
    case Scenario::Lone::kHang:
      return options.hang_timeout + options.heartbeat + go_on;
    case Scenario::Lone::kCut:
      return 15s + go_on;
  }
  return go_on;
}

class Run {
 public:
  Run(uint64_t seed, Plant plant, std::ostream* trace)
      : world_(seed, plant, trace),
        scenario_(draw_scenario(world_)),
        witness_(scenario_.options.lanes, 37, static_cast<uint64_t>(scenario_.options.lanes) * 2),
        host_(world_, witness_, scenario_.options),
        began_(world_.now()) {
    world_.trace("seed {}: {}", seed, scenario_.text());
    host_.set_duplicates(scenario_.duplicates);
    host_.on_hung([this](const std::string& id, int64_t process) { kill_hung(id, process); });
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
      world_.after(world_.between(200ms, 4s), [this, end] { next_fault(end); });
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
    for (const auto& [id, suspect] : witness_.suspects()) {
      if (disturbed_.contains(std::stoi(id.substr(1)))) continue;
      if (disturbed_.contains(std::stoi(suspect.substr(1)))) continue;
      witness_.violated(fmt::format("{} suspected {}, though both were well", id, suspect));
    }
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
    const Duration lane_time = quick ? world_.between(5ms, kQuickLane)
                                     : world_.between(20ms, kLongestLane / 4) * (slow ? 4 : 1);
    const auto threads = static_cast<int32_t>(1 + world_.below(2));
    workers_.push_back(std::make_unique<Worker>(
        Surroundings{world_, host_, witness_, disk_, meetings_, scenario_.timing,
                     scenario_.options.lanes, [this](int one) { start_again(one); }},
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
    if (!run_until(began_ + 15s, [&] { return witness_.newest_step() >= 3 && all_in(); })) {
      witness_.violated("a quiet job does not begin");
      return;
    }
    run_until(world_.now() + world_.between(0ns, 2s), [] { return false; });
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
        disturbed_.insert(slot);
        workers_[at(slot)]->kill(Worker::Death::kMachine, false);
        break;
      case Scenario::Lone::kCut:
        world_.trace("network: w{} and w{} are cut off from each other", slot, other);
        cut(slot, other, world_.now() + 60s);
        break;
      case Scenario::Lone::kHang:
        disturbed_.insert(slot);
        workers_[at(slot)]->hang();
        break;
      case Scenario::Lone::kSuspend:
        host_.suspend(world_.now() + world_.between(1s, 6s));
        break;
      case Scenario::Lone::kRestart:
        host_.crash();
        world_.after(world_.between(1ms, 1500ms), [this] { host_.restart(); });
        break;
    }
    const uint64_t goal = witness_.newest_step() + 2;
    const Duration bound = lone_bound(scenario_);
    if (!run_until(world_.now() + bound, [&] { return witness_.newest_step() >= goal; })) {
      witness_.violated(
          fmt::format("one fault held the job up for more than {:.2f} s", seconds(bound)));
      return;
    }
    // A coordinator that is away for a while changes nothing.
    const bool away =
        scenario_.lone == Scenario::Lone::kSuspend || scenario_.lone == Scenario::Lone::kRestart;
    if (!away) return;
    run_until(world_.now() + 15s, [] { return false; });
    if (witness_.tally.removed > 0) {
      witness_.violated("a coordinator that was away for a while has removed workers");
    }
  }

  int any_slot() { return static_cast<int>(world_.below(workers_.size())); }

  void next_fault(Moment end) {
    if (world_.now() >= end) return;
    ++witness_.tally.faults;
    scenario_.peaceful ? peaceful_change() : fault();
    world_.after(world_.between(0ns, 2 * scenario_.between), [this, end] { next_fault(end); });
  }

  void cut(int a, int b, Moment until) {
    disturbed_.insert({a, b});
    world_.cut(a, b, until);
  }

  void start_again(int slot) {
    world_.after(world_.between(20ms, 800ms), [this, slot] { workers_[at(slot)]->start(); });
  }

  // What a launcher does with a worker that was removed because it hangs.
  void kill_hung(const std::string& id, int64_t process) {
    for (const auto& worker : workers_) {
      if (worker->id() != id || worker->process() != process || !worker->running()) continue;
      // A worker that others started (`muster join`) has no launcher here: it exits by itself.
      if (slot_of(*worker) >= scenario_.workers) return;
      worker->kill(Worker::Death::kProcess, true);
      start_again(slot_of(*worker));
    }
  }

  // One worker is suspended while the others train on, and continues when they are gone.
  void leave_behind(int slot) {
    const Duration away = world_.between(8s, 25s);
    disturbed_.insert(slot);
    workers_[at(slot)]->stop(world_.now() + away);
    world_.after(away - world_.between(0s, 2s), [this, slot] {
      for (const auto& one : workers_) {
        if (slot_of(*one) != slot) kill(slot_of(*one), Worker::Death::kProcess);
      }
    });
  }

  // A process that is none of ours, or a damaged message.
  void forged_join() {
    JoinRequest request;
    request.key = {"stranger", world_.draw()};
    request.job = "sim";
    request.fingerprint.kernels = "same";
    request.highest = ~uint64_t{0};
    host_.receive_forged(request);
  }

  // The newest checkpoint is deleted, but never the last one.
  void delete_checkpoint() {
    if (disk_.states.size() < 3) return;
    world_.trace("disk: the checkpoint of step {} is deleted", disk_.newest());
    disk_.states.erase(std::prev(disk_.states.end()));
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
        worker.set_lane_time(world_.between(20ms, kLongestLane / 4));
    }
  }

  void fault() {
    const int slot = any_slot();
    Worker& worker = *workers_[at(slot)];
    const Moment soon = world_.now() + world_.between(100ms, 6s);
    switch (world_.below(20)) {
      case 0:
      case 1:
        kill(slot, Worker::Death::kProcess);
        break;
      case 2:
        worker.kill_in_commit();
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
        disturbed_.insert(slot);
        worker.stop(soon);
        break;
      case 6:
        disturbed_.insert(slot);
        worker.hang();
        break;
      case 7:
        worker.leave();
        break;
      case 8:
        worker.start();
        break;
      case 9:
        disturbed_.insert(slot);
        world_.trace("network: {} is cut off from the coordinator", worker.id());
        world_.cut(slot, kCoordinator, soon);
        break;
      case 10: {
        const int other = any_slot();
        if (other == slot) break;
        world_.trace("network: w{} and w{} are cut off from each other", slot, other);
        cut(slot, other, world_.now() + world_.between(200ms, 30s));
        break;
      }
      case 11:
        disturbed_.insert(slot);
        world_.trace("network: {} is slow", worker.id());
        world_.slow(slot, world_.between(10ms, 2s), soon);
        break;
      case 12:
        worker.set_lane_time(world_.between(20ms, kLongestLane / 4));
        break;
      case 13:
        host_.suspend(soon);
        break;
      case 14:
        world_.trace("coordinator: its wall clock is set");
        host_.step_wall_clock(world_.between(0s, 2h) - 1h);
        break;
      case 15:
        world_.trace("disk: slow");
        disk_.slow_until = world_.now() + world_.between(1s, 20s);
        break;
      case 16:
        delete_checkpoint();
        break;
      case 17:
        forged_join();
        break;
      case 18:
        leave_behind(slot);
        break;
      default:
        host_.crash();
        world_.after(world_.between(1ms, 5s), [this] { host_.restart(); });
    }
  }

  int slot_of(const Worker& worker) const { return std::stoi(worker.id().substr(1)); }

  void kill(int slot, Worker::Death death) {
    Worker& worker = *workers_[at(slot)];
    if (!worker.running()) return;
    if (death == Worker::Death::kMachine) disturbed_.insert(slot);
    worker.kill(death, world_.chance(0.7));
    // Its launcher starts it again.
    if (world_.chance(0.8)) start_again(slot);
  }

  // No more faults. What is broken stays so until somebody notices, but it can be mended.
  void make_peace() {
    world_.trace("---- no more faults");
    world_.heal_all();
    disk_.slow_until = world_.now();
    host_.set_duplicates(0);
    if (!host_.up()) host_.restart();
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
    const Registrar* registrar = host_.registrar();
    if (!registrar) return false;
    const Roster& current = registrar->state().current;
    const Options& options = scenario_.options;
    size_t could = 0;
    for (const auto& worker : workers_) {
      if (worker->leaving()) return false;  // it must have left by now
      could += worker->running() && !worker->leaving() ? 1 : 0;
    }
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
    const Registrar* registrar = host_.registrar();
    return fmt::format(
        "{:.1f} s after the last fault the job is at step {}, not at {} with everybody in; "
        "the coordinator says: {}",
        seconds(bound(scenario_)), witness_.newest_step(), goal,
        registrar ? registrar->standing() : "nothing, it is down");
  }

  void check_peace() {
    const Tally& tally = witness_.tally;
    if (tally.redone + tally.aborted + tally.failed + tally.removed > 0) {
      witness_.violated(
          fmt::format("nothing but joins and leaves, but {} attempts were given up, {} groups "
                      "aborted, {} failed, {} workers removed",
                      tally.redone, tally.aborted, tally.failed, tally.removed));
    }
  }

  World world_;
  Scenario scenario_;
  Witness witness_;
  Disk disk_;
  Meetings meetings_;
  CoordinatorHost host_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::set<int> disturbed_;  // slots whose links were cut, or which were silent for a while
  Moment began_;
};

}  // namespace

Outcome simulate(uint64_t seed, Plant plant, std::ostream* trace) {
  return Run(seed, plant, trace).run();
}

}  // namespace muster::roster::simulation
