#include "tools/muster-launch/verify/disturb.h"

#include <signal.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "muster/roster/coordinator.h"

#include "tools/muster-launch/verify/awaited.h"
#include "tools/muster-launch/verify/blow.h"
#include "tools/muster-launch/verify/overhear.h"

namespace muster::cli {
namespace {

using launch::Fault;
using launch::FaultKind;
using namespace std::chrono_literals;

constexpr auto kAnswerTakes = 500ms;      // of the coordinator
constexpr uint64_t kCalmSteps = 20;       // between two faults of a calm run
constexpr double kCalmSeconds = 1;        // the same
constexpr double kBetweenStandIns = 0.1;  // seconds
constexpr double kAskEvery = 0.05;        // seconds, who is in again
// Behind a fault, until it is known what it cost: the commit under way may still have succeeded.
constexpr uint32_t kCommitsBehind = 2;

class Disturbance {
 public:
  Disturbance(const DisturbPlan& plan, Children& children, const Clock& clock,
              const std::function<void(const std::string&)>& tell)
      : plan_(plan),
        children_(children),
        clock_(clock),
        tell_(tell),
        commits_(plan.run + "/metrics.jsonl"),
        waiting_(plan.faults) {}
  // Who is stopped would not hear that it is to leave.
  ~Disturbance() { continue_stopped(true); }
  Disturbance(const Disturbance&) = delete;
  Disturbance& operator=(const Disturbance&) = delete;

  Result<Disturbed> carry_out() {
    std::vector<std::string> words = {"train"};
    words.insert(words.end(), plan_.job.begin(), plan_.job.end());
    words.insert(words.end(),
                 {"--run-dir", plan_.run, "--workers", fmt::format("{}", plan_.workers), "--quiet",
                  "--worker", plan_.worker});
    MUSTER_TRY(auto said, Overheard::open(plan_.run + ".err"));
    errors_ = said.descriptor();
    MUSTER_TRY(const pid_t trainer, children_.start(plan_.muster, words, streams()));
    began_ = now();
    MUSTER_TRY(const auto ending, children_.wait(trainer, [&] {
      pass_on(said);
      commits_.look();
      continue_stopped(false);
      note_aimed();
      tell_who_goes_on(kCommitsBehind);
      if (!awaited_.nobody() && !at_the_end() && now() >= asked_ + kAskEvery) (void)members();
      hit_one();
      replace_who_left();
    }));
    pass_on(said);
    commits_.look();
    tell_who_goes_on(1);
    return Disturbed{ending.signal != 0 ? 128 + ending.signal : ending.exit_code,
                     std::move(happened_), commits_.times(), waiting_.size(),
                     missed_ + aimed_.size()};
  }

 private:
  struct Stopped {
    pid_t process;
    double until;
  };
  struct Aimed {
    Fault fault;
    Target target;
  };

  static void pass_on(Overheard& said) {
    const std::string news = said.news();
    std::fwrite(news.data(), 1, news.size(), stderr);
  }

  double now() const { return seconds(clock_.wall().time_since_epoch()); }

  // Workers leave by themselves now, and nobody needs new ones. One step early: the last line is
  // written by one of them, while others may be gone already.
  bool at_the_end() const { return commits_.newest() + 1 >= plan_.steps; }

  bool find_coordinator() {
    if (!address_.empty()) return true;
    std::ifstream file(plan_.run + "/coordinator.json");
    const auto object = nlohmann::json::parse(file, nullptr, false);
    if (!object.is_object() || !object.contains("address")) return false;
    std::error_code failed;
    const auto run = std::filesystem::canonical(plan_.run, failed);
    if (failed) return false;
    job_name_ = run.filename().string();
    address_ = object.value("address", "");
    return !address_.empty();
  }

  // The members, by rank; none while the coordinator does not answer. Tells who is in again.
  std::vector<Target> members() {
    if (!find_coordinator()) return {};
    asked_ = now();
    const auto report = roster::fetch_status(address_, kAnswerTakes);
    if (!report.ok()) return {};
    std::vector<Target> in;
    for (const auto& worker : report->workers) {
      if (worker.process <= 0 || worker.standing != "member") continue;
      const auto& key = worker.member.key;
      in.push_back({key.id, static_cast<pid_t>(worker.process), key.incarnation});
    }
    const double when = now();
    for (const auto& back : awaited_.seen(in)) {
      auto& what = happened_[back.fault];
      if (back.last) what.in_again = when;
      tell_(in_again_text(what, back.id, when));
    }
    return in;
  }

  // Each fault whose pause is over: that many commits are behind it.
  void tell_who_goes_on(uint32_t behind) {
    if (pausing_.empty()) return;
    const auto& times = commits_.times();
    if (times.size() < behind) return;
    const double newest = std::prev(times.end(), behind)->second;
    const auto over = [&](size_t fault) { return newest > happened_[fault].when; };
    if (std::ranges::none_of(pausing_, over)) return;
    measure_pauses(times, happened_);
    std::erase_if(pausing_, [&](size_t fault) {
      if (!over(fault)) return false;
      if (happened_[fault].went_on >= 0) tell_(went_on_text(happened_[fault]));
      return true;
    });
  }

  // Those to whom nothing is happening yet: one thing at a time for each.
  std::vector<Target> free_members() {
    auto in = members();
    std::erase_if(in, [&](const Target& target) {
      return std::ranges::find(stopped_, target.process, &Stopped::process) != stopped_.end() ||
             std::ranges::any_of(aimed_, [&](const Aimed& aimed) {
               return aimed.target.process == target.process;
             });
    });
    return in;
  }

  bool is_calm() {
    if (!plan_.calm || happened_.empty()) return true;
    return commits_.newest() >= happened_.back().step + kCalmSteps &&
           now() > happened_.back().when + kCalmSeconds && std::ssize(members()) >= plan_.workers;
  }

  // The first fault whose time has come and that is possible now, as things are.
  void hit_one() {
    if (waiting_.empty() || commits_.newest() < waiting_.front().step || !is_calm()) return;
    const auto free = free_members();
    for (auto fault = waiting_.begin(); fault != waiting_.end() && fault->step <= commits_.newest();
         ++fault) {
      const auto blow = choose_blow(*fault, free, plan_.lanes);
      if (!blow) continue;
      const timespec delay{0, delay_of(*fault).count()};
      nanosleep(&delay, nullptr);
      if (fall(*fault, *blow)) waiting_.erase(fault);
      return;
    }
  }

  // False: it hit nobody.
  bool fall(const Fault& fault, const Blow& blow) {
    switch (fault.kind) {
      case FaultKind::kJoin:
        return join(fault);
      case FaultKind::kAimed:
        return aim(fault, blow);
      case FaultKind::kStop:
        if (!strike(fault, blow.victims, blow.signal)) return false;
        stopped_.push_back({blow.victims[0].process, now() + stop_seconds(fault, plan_.lease)});
        return true;
      case FaultKind::kLeave:
        if (!strike(fault, blow.victims, blow.signal)) return false;
        if (!is_joiner(blow.victims[0])) ++launched_that_left_;
        return true;
      case FaultKind::kKill:
      case FaultKind::kPair:
      case FaultKind::kMost:
        return strike(fault, blow.victims, blow.signal);
    }
    return false;
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

  bool aim(const Fault& fault, const Blow& blow) {
    const Target& victim = blow.victims[0];
    if (::kill(victim.process, blow.signal) != 0) return false;
    aimed_.push_back({fault, victim});
    if (blow.killed) (void)strike(Fault{}, {*blow.killed}, SIGKILL);
    return true;
  }

  void note_aimed() {
    std::erase_if(aimed_, [&](const Aimed& aimed) {
      if (::kill(aimed.target.process, 0) == 0) return false;
      if (at_the_end()) {
        ++missed_;  // it may just have finished
      } else {
        note(aimed.fault, {aimed.target}, now());
      }
      return true;
    });
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
    MUSTER_TRY(const pid_t pid,
               children_.start(plan_.worker,
                               {"train", "--run", plan_.run, "--display", "none", "--coordinator",
                                address_, "--id", id, "--job-name", job_name_},
                               streams()));
    joiners_.push_back(pid);
    return id;
  }

  void continue_stopped(bool all) {
    std::erase_if(stopped_, [&](const Stopped& stopped) {
      if (!all && now() < stopped.until) return false;
      ::kill(stopped.process, SIGCONT);
      return true;
    });
  }

  void note(const Fault& fault, const std::vector<Target>& hit, double when) {
    const size_t number = happened_.size();
    std::string whom;
    for (const auto& target : hit) {
      whom += fmt::format("{}{}", whom.empty() ? "" : ", ", target.id);
      if (comes_in(fault.kind, target)) awaited_.add(number, target);
    }
    happened_.push_back(
        {fault.name(), fault.kind, whom, when, when - began_, commits_.newest(), -1, -1, -1});
    // One that joins holds nobody up yet: it has only been started.
    if (fault.kind != FaultKind::kJoin) pausing_.push_back(number);
    tell_(happened_text(happened_.back()));
  }

  const DisturbPlan& plan_;
  Children& children_;
  const Clock& clock_;
  const std::function<void(const std::string&)>& tell_;
  Commits commits_;
  std::vector<Fault> waiting_;
  int errors_ = -1;      // where all who train say what is wrong
  std::string address_;  // of the coordinator
  std::string job_name_;
  double began_ = 0;
  std::vector<Stopped> stopped_;
  std::vector<Aimed> aimed_;
  std::vector<Happened> happened_;
  std::vector<size_t> pausing_;  // of them: whose cost is not told yet
  Awaited awaited_;
  double asked_ = 0;            // when, who is in
  std::vector<pid_t> joiners_;  // that are alive
  int joined_ = 0;              // how many ever were
  double last_joiner_ = 0;
  int launched_that_left_ = 0;  // of those that `muster train` started
  size_t missed_ = 0;
};

}  // namespace

Result<Disturbed> disturb(const DisturbPlan& plan, Children& children, const Clock& clock,
                          const std::function<void(const std::string&)>& tell) {
  return Disturbance(plan, children, clock, tell).carry_out();
}

}  // namespace muster::cli
