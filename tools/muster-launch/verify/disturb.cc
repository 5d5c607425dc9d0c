#include "tools/muster-launch/verify/disturb.h"

#include <signal.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "muster/base/fault_point.h"
#include "muster/ps/net/fetch_map.h"
#include "muster/roster/coordinator.h"

#include "tools/muster-launch/coordinator_file.h"
#include "tools/muster-launch/verify/awaited.h"
#include "tools/muster-launch/verify/fault_target.h"
#include "tools/muster-launch/verify/ongoing.h"
#include "tools/muster-launch/verify/stderr_capture.h"
#include "tools/muster-launch/verify/training.h"

namespace muster::cli {
namespace {

using launch::Fault;
using launch::FaultKind;
using namespace std::chrono_literals;

constexpr auto kAnswerTakes = 500ms;      // of the coordinator
constexpr uint64_t kCalmSteps = 20;       // between two faults of a calm run
constexpr double kCalmSeconds = 1;        // the same
constexpr double kBetweenStandIns = 0.1;  // seconds
constexpr double kAskEvery = 0.05;        // seconds, which workers have rejoined
// Behind a fault, until it is known what it cost: the commit under way may still have succeeded.
constexpr uint32_t kCommitsBehind = 2;
// What a coordinator does when it continues, or starts, belongs to the fault too.
constexpr double kAftermath = 1;  // seconds
// A server may pass its point only while it joins, or not at all: then another one is aimed at.
constexpr double kAimedAtServer = 5;  // seconds
constexpr int kSlowDiskPause = 250;   // milliseconds before each write

class Disturbance {
 public:
  Disturbance(const DisturbPlan& plan, Children& children, FileSystem& files, const Clock& clock,
              const std::function<void(const std::string&)>& tell)
      : plan_(plan),
        children_(children),
        clock_(clock),
        tell_(tell),
        training_(make_training(plan, children, files, clock)),
        ongoing_(plan, *training_),
        commits_(plan.run + "/metrics.jsonl"),
        waiting_(plan.faults) {}

  Result<Disturbed> carry_out() {
    MUSTER_TRY(auto said, StderrCapture::open(plan_.run + ".err"));
    errors_ = said.descriptor();
    MUSTER_RETURN_IF_ERROR(training_->start(streams()));
    began_ = now();
    MUSTER_TRY(const int exit_code, children_.until([&] {
      const auto over = training_->look();
      if (!over) go_on(said);
      return over;
    }));
    pass_on(said);
    commits_.look();
    tell_who_goes_on(1);
    return Disturbed{exit_code, std::move(happened_), commits_.times(), waiting_.size(),
                     missed_ + aimed_.size()};
  }

 private:
  struct Aimed {
    Fault fault;
    Target target;
    double since;
  };

  void go_on(StderrCapture& said) {
    pass_on(said);
    commits_.look();
    note_finished();
    note_aimed();
    tell_who_goes_on(kCommitsBehind);
    const bool wants_to_know = !awaited_.nobody() || ongoing_.has_corrupted();
    if (wants_to_know && !at_the_end() && now() >= asked_ + kAskEvery) (void)members();
    hit_one();
    replace_who_left();
  }

  static void pass_on(StderrCapture& said) {
    const std::string news = said.news();
    std::fwrite(news.data(), 1, news.size(), stderr);
  }

  double now() const { return seconds(clock_.wall().time_since_epoch()); }

  // Workers leave by themselves now, and nobody needs new ones. One step early: the last line is
  // written by one of them, while others may be gone already.
  bool at_the_end() const { return commits_.newest() + 1 >= plan_.steps; }

  // The members, by rank; none while the coordinator does not answer. Tells which workers have
  // rejoined.
  std::vector<Target> members() {
    if (address_.empty()) address_ = coordinator_address(plan_.run);
    if (address_.empty() || ongoing_.coordinator_is_away()) return {};
    asked_ = now();
    const auto report = roster::fetch_status(address_, kAnswerTakes);
    if (!report.ok()) return {};
    std::vector<Target> in;
    for (const auto& worker : report->workers) {
      if (worker.process <= 0 || worker.standing != "member") continue;
      const auto& key = worker.member.key;
      in.push_back({key.id, static_cast<pid_t>(worker.process), key.incarnation});
    }
    if (!in.empty()) ongoing_.see(in);
    const double when = now();
    for (const auto& back : awaited_.seen(in)) {
      auto& what = happened_[back.fault];
      if (back.last) what.rejoined = when;
      tell_(rejoined_text(what, back.id, when));
    }
    return in;
  }

  // Each fault whose pause is over: that many commits are behind it.
  void tell_who_goes_on(uint32_t behind) {
    if (pausing_.empty()) return;
    const auto& times = commits_.times();
    if (times.size() < behind) return;
    const double newest = std::prev(times.end(), behind)->second;
    const auto over = [&](size_t fault) {
      const double end = over_at(happened_[fault]);
      return end >= 0 && newest > end;
    };
    if (std::ranges::none_of(pausing_, over)) return;
    measure_pauses(times, happened_);
    std::erase_if(pausing_, [&](size_t fault) {
      if (!over(fault)) return false;
      if (happened_[fault].recovered >= 0) tell_(recovered_text(happened_[fault]));
      return true;
    });
  }

  // Those to whom nothing is happening yet: one thing at a time for each.
  std::vector<Target> free_members() {
    auto in = members();
    std::erase_if(in, [&](const Target& target) {
      return ongoing_.involves(target) || std::ranges::find(hit_, target) != hit_.end() ||
             std::ranges::any_of(aimed_, [&](const Aimed& aimed) {
               return aimed.target.process == target.process;
             });
    });
    return in;
  }

  bool is_calm() {
    if (!plan_.calm || happened_.empty()) return true;
    const auto& last = happened_.back();
    return ongoing_.nothing() && now() > last.until + kCalmSeconds &&
           commits_.newest() >= last.step + kCalmSteps && now() > last.when + kCalmSeconds &&
           std::ssize(members()) >= plan_.workers;
  }

  // All parameter servers, if each of them is ready and none is about to die: they survive one
  // failure at a time.
  std::vector<Target> ready_servers() {
    const auto hits = [](const Aimed& aimed) { return hits_server(aimed.fault.kind); };
    if (std::ranges::any_of(aimed_, hits)) return {};
    const auto registry = servers_address(plan_.run);
    if (registry.empty()) return {};
    const auto map = ps::fetch_map(registry, kAnswerTakes);
    if (!map.ok() || std::ssize(map->servers) != plan_.servers) return {};
    std::vector<Target> servers;
    for (const auto& server : map->servers) {
      const Target target{server.key.id, static_cast<pid_t>(server.process),
                          server.key.incarnation};
      const bool hit = ongoing_.involves(target) || std::ranges::find(hit_, target) != hit_.end();
      if (!server.ready || hit) return {};
      servers.push_back(target);
    }
    return servers;
  }

  // The first fault whose time has come and that is possible now, as things are.
  void hit_one() {
    if (ongoing_.has_corrupted()) return;
    if (waiting_.empty() || commits_.newest() < waiting_.front().step || !is_calm()) return;
    const auto free = free_members();
    for (auto fault = waiting_.begin(); fault != waiting_.end() && fault->step <= commits_.newest();
         ++fault) {
      const auto target =
          choose_target(*fault, hits_server(fault->kind) ? ready_servers() : free, plan_.lanes);
      if (!target) continue;
      const timespec delay{0, delay_of(*fault).count()};
      nanosleep(&delay, nullptr);
      if (fall(*fault, *target)) waiting_.erase(fault);
      return;
    }
  }

  // False: it hit nobody.
  bool fall(const Fault& fault, const FaultTarget& target) {
    switch (fault.kind) {
      case FaultKind::kJoin:
        return join(fault);
      case FaultKind::kAimed:
      case FaultKind::kAimedServer:
        return aim(fault, target);
      case FaultKind::kLeave:
        if (!strike(fault, target.victims, target.signal)) return false;
        if (!is_joiner(target.victims[0])) ++launched_that_left_;
        return true;
      case FaultKind::kKill:
      case FaultKind::kPair:
      case FaultKind::kMost:
      case FaultKind::kKillServer:
        return strike(fault, target.victims, target.signal);
      case FaultKind::kSlowDisk:
        return slow_down(fault, target.victims[0]);
      case FaultKind::kSuspend:
      case FaultKind::kSuspendServer:
      case FaultKind::kHang:
      case FaultKind::kCut:
      case FaultKind::kFlip:
      case FaultKind::kLie:
      case FaultKind::kPause:
      case FaultKind::kRestart:
        return begin(fault, target.victims);
    }
    return false;
  }

  // One whose cause lasts.
  bool begin(const Fault& fault, const std::vector<Target>& victims) {
    const double when = now();
    if (!cause(fault, victims, when)) return false;
    note(fault, victims, when);
    return true;
  }

  bool cause(const Fault& fault, const std::vector<Target>& victims, double when) {
    const size_t number = happened_.size();
    switch (fault.kind) {
      case FaultKind::kSuspend:
      case FaultKind::kSuspendServer:
        return ongoing_.stop(number, victims[0], when + stop_seconds(fault, plan_.lease));
      case FaultKind::kHang:
        return ongoing_.hang(number, victims[0]);
      case FaultKind::kCut:
        return ongoing_.cut(number, victims[0], victims[1], commits_.newest(), heal_seconds(fault),
                            when);
      case FaultKind::kFlip:
        return ongoing_.flip(number, victims[0], static_cast<uint32_t>(fault.draw >> 24));
      case FaultKind::kLie:
        return ongoing_.lie(number, victims[0]);
      case FaultKind::kPause:
        return ongoing_.pause_coordinator(number, when + stop_seconds(fault, plan_.lease));
      case FaultKind::kRestart:
        return ongoing_.restart_coordinator(number, absence_seconds(fault));
      default:
        return false;
    }
  }

  void note_finished() {
    for (const auto& finished : ongoing_.finished(now(), commits_.newest())) {
      auto& what = happened_[finished.fault];
      what.until = now() + (hits_coordinator(what.kind) ? kAftermath : 0);
    }
  }

  bool slow_down(const Fault& fault, const Target& victim) {
    const int total = slow_disk_milliseconds(fault, plan_.hang_timeout);
    const double when = now();
    if (!slow_disk(victim.process, kSlowDiskPause, total)) return false;
    note(fault, {victim}, when);
    // The next checkpoint may begin a moment later.
    happened_.back().until = when + 2 * total / 1000.0;
    return true;
  }

  bool strike(const Fault& fault, const std::vector<Target>& victims, int signal) {
    const double when = now();
    std::vector<Target> hit;
    for (const auto& victim : victims) {
      if (::kill(victim.process, signal) == 0) hit.push_back(victim);
    }
    if (!hit.empty()) note(fault, hit, when);
    return !hit.empty();
  }

  bool aim(const Fault& fault, const FaultTarget& target) {
    const Target& victim = target.victims[0];
    if (::kill(victim.process, target.signal) != 0) return false;
    aimed_.push_back({fault, victim, now()});
    Fault besides;
    if (hits_server(fault.kind)) besides.kind = FaultKind::kKillServer;
    if (target.killed) (void)strike(besides, {*target.killed}, SIGKILL);
    besides.kind = FaultKind::kSuspendServer;
    besides.draw = fault.draw;
    if (target.suspended) (void)begin(besides, target.victims);
    return true;
  }

  void note_aimed() {
    std::erase_if(aimed_, [&](const Aimed& aimed) {
      if (::kill(aimed.target.process, 0) == 0) return gives_up(aimed);
      if (at_the_end()) {
        ++missed_;  // it may just have finished
      } else {
        note(aimed.fault, {aimed.target}, now());
      }
      return true;
    });
  }

  // Whether a server has not come to its point, and the fault is waiting again.
  bool gives_up(const Aimed& aimed) {
    if (!hits_server(aimed.fault.kind) || at_the_end() || now() < aimed.since + kAimedAtServer) {
      return false;
    }
    if (::kill(aimed.target.process, fault_signal(FaultPoint::kNone)) != 0) return false;
    Fault again = aimed.fault;
    again.draw = again.draw * 6364136223846793005U + 1442695040888963407U;
    waiting_.insert(waiting_.begin(), again);
    return true;
  }

  bool join(const Fault& fault) {
    const double when = now();
    const auto id = start_joiner();
    if (id.ok()) note(fault, {Target{*id, 0, 0}}, when);
    return id.ok();
  }

  // Who left does not come back, nor does a joiner that was killed. So that there are enough for
  // the faults to come, others take their place.
  void replace_who_left() {
    if (address_.empty() || at_the_end() || now() < last_joiner_ + kBetweenStandIns) return;
    std::erase_if(joiners_, [&](pid_t pid) { return children_.ended(pid).has_value(); });
    if (std::ssize(joiners_) < launched_that_left_) (void)start_joiner();
  }

  // What comes of the training is told at the end, by us.
  launch::Streams streams() const {
    launch::Streams streams;
    streams.write_nothing = true;
    streams.err = errors_;
    return streams;
  }

  Result<std::string> start_joiner() {
    const auto id = joiner_id(++joined_);
    last_joiner_ = now();
    const std::string site = plan_.sites > 0 ? fmt::format("{}", joined_ % plan_.sites) : "";
    MUSTER_TRY(const pid_t pid,
               children_.start(plan_.worker, worker_words(plan_, address_, id, site), streams()));
    joiners_.push_back(pid);
    return id;
  }

  void note(const Fault& fault, const std::vector<Target>& hit, double when) {
    const size_t number = happened_.size();
    std::string whom = hits_coordinator(fault.kind) ? "coordinator" : "";
    for (const auto& target : hit) {
      whom += fmt::format("{}{}", whom.empty() ? "" : ", ", target.id);
      if (comes_in(fault.kind, target)) awaited_.add(number, target);
      if (ends_incarnation(fault.kind)) hit_.push_back(target);
    }
    happened_.push_back(
        {fault.name(), fault.kind, whom, when, when - began_, commits_.newest(), -1, -1, -1, -1});
    // One that joins holds nobody up yet: it has only been started.
    if (fault.kind != FaultKind::kJoin) pausing_.push_back(number);
    tell_(happened_text(happened_.back()));
  }

  const DisturbPlan& plan_;
  Children& children_;
  const Clock& clock_;
  const std::function<void(const std::string&)>& tell_;
  std::unique_ptr<Training> training_;
  Ongoing ongoing_;
  Commits commits_;
  std::vector<Fault> waiting_;
  int errors_ = -1;      // where all who train say what is wrong
  std::string address_;  // of the coordinator
  double began_ = 0;
  std::vector<Aimed> aimed_;
  std::vector<InjectedFault> happened_;
  std::vector<size_t> pausing_;  // of them: whose cost is not told yet
  std::vector<Target> hit_;      // of those, as what they were: they are still called members
  Awaited awaited_;
  double asked_ = 0;            // when, who is in
  std::vector<pid_t> joiners_;  // that are alive
  int joined_ = 0;              // how many ever were
  double last_joiner_ = 0;
  int launched_that_left_ = 0;  // of those that `muster train` started
  size_t missed_ = 0;
};

}  // namespace

Result<Disturbed> disturb(const DisturbPlan& plan, Children& children, FileSystem& files,
                          const Clock& clock, const std::function<void(const std::string&)>& tell) {
  return Disturbance(plan, children, files, clock, tell).carry_out();
}

}  // namespace muster::cli
