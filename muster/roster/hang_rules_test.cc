// The hang rules over heartbeats as they really come: samples, of every phase against the work that
// they tell of. Registrar and Followers are the product's; the time is virtual, in milliseconds.
#include "muster/roster/hang_rules.h"

#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/roster/decide_testing.h"
#include "muster/roster/follower.h"
#include "muster/roster/registrar.h"

namespace muster::roster {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::IsEmpty;

// ---- One decision.

// Both were heard to wait. Worker 0 has got what it waited for and is at its own work since, which
// its next heartbeat will tell: nobody may be judged by what it did not have the time to say.
TEST_F(DecideTest, WhatAMemberHasDoneSinceItsLastHeartbeatIsNotKnown) {
  options_.hang_timeout = 700ms;
  running(2);
  at("0").beat.activity = at("1").beat.activity = Activity::kWaiting;
  pass(399ms);
  EXPECT_FALSE(decided().roster) << "no member makes progress? no heartbeat says so";
  beat();
  EXPECT_TRUE(decided().roster) << "now both have said that they stood still for half the timeout";
}

TEST_F(DecideTest, AStandstillIsWhatAllHadInCommon) {
  options_.hang_timeout = 10s;
  options_.lease = 1h;
  running(2);
  at("0").beat.activity = at("1").beat.activity = Activity::kWaiting;
  pass(3s);
  at("0").still_until = at("0").progressed = now_;
  pass(3s);
  at("1").still_until = now_;
  at("0").still_until = now_;
  EXPECT_FALSE(decided().roster) << "each was still for 3 s at least, but together only 3 s";
  pass(2s);
  at("0").still_until = now_;
  EXPECT_FALSE(decided().roster) << "worker 1 was not heard since";
  at("1").still_until = now_;
  EXPECT_THAT(decided().reason, HasSubstr("no member makes progress, for 5.0s"));
}

TEST_F(DecideTest, OneThatWasNotHeardToHangForTheWholeTimeStays) {
  options_.hang_timeout = 1s;
  running(2);
  at("1").beat.activity = Activity::kWaiting;
  pass(900ms);
  beat();
  pass(200ms);
  at("1").still_until = now_;
  const Decision decision = decided();
  EXPECT_THAT(decision.out, IsEmpty()) << "it may have made progress in the last 200 ms";
  EXPECT_EQ(decision.look_again, now_ + options_.heartbeat / 4);
  beat();
  EXPECT_THAT(decided().reason, HasSubstr("worker 0 was removed: it hangs"));
}

// Its connection broke and is back; what it is at, it has not said yet.
TEST_F(DecideTest, OneThatHasOnlyReconnectedIsNotJudged) {
  options_.hang_timeout = 1s;
  running(2);
  at("1").beat.activity = Activity::kWaiting;
  pass(1100ms);
  at("0").heard = at("1").heard = at("1").still_until = now_;
  EXPECT_THAT(decided().out, IsEmpty());
}

TEST_F(DecideTest, NobodyIsSaidToWaitForTheOnlyMember) {
  options_.hang_timeout = 1s;
  running(1);
  pass(3s);
  beat();
  EXPECT_THAT(decided().reason,
              HasSubstr("it hangs: no progress for 3.0s after step 0, and it is the only member"));
}

// ---- Two workers, millisecond by millisecond.

class SampledTest : public testing::Test {
 protected:
  struct Worker {
    explicit Worker(const std::string& id, Moment now) : follower(options(id), now) {}
    static FollowerOptions options(const std::string& id) {
      FollowerOptions options;
      options.join.key.id = id;
      options.join.job = "job";
      options.seed = 1 + id[0];
      return options;
    }
    Follower follower;
    SessionId session = 0;
    std::optional<Moment> forms;  // all addresses are there, and it is connected then
    RosterNumber forming = 0;
    Duration slow{0};   // how long it takes to connect
    bool hung = false;  // its own thread; heartbeats go on
  };

  // Both are in a group. The second formed it `apart` later, so that their heartbeats, which begin
  // anew then, are apart by as much.
  void start(Duration hang_timeout, Duration apart) {
    Options options;
    options.job = "job";
    options.lanes = 4;
    options.expected = 2;
    options.term = 3;
    options.hang_timeout = hang_timeout;
    options.rebalance_every = 1h;
    registrar_ = std::make_unique<Registrar>(options, now_);
    workers_.clear();
    for (const char* id : {"a", "b"}) workers_.push_back(std::make_unique<Worker>(id, now_));
    b().slow = apart;
    run(600ms);
    ASSERT_EQ(registrar_->state().current.members.size(), 2U);
    ASSERT_NE(a().follower.heartbeat().group, 0U);
    ASSERT_NE(b().follower.heartbeat().group, 0U);
    first_ = registrar_->state().current.number;
  }

  void run(Duration time) {
    for (const Moment end = now_ + time; now_ < end; now_ += 1ms) turn();
  }
  void turn() {
    for (auto& worker : workers_) {
      worker->follower.tick(now_);
      own_thread(*worker);
      carry_out(*worker);
    }
    if (registrar_->wake() && *registrar_->wake() <= now_) registrar_->tick(now_);
    for (const Outgoing& out : registrar_->take_outgoing()) {
      for (auto& worker : workers_) {
        if (worker->session == out.session) worker->follower.received(now_, *out.message);
      }
    }
  }
  void own_thread(Worker& worker) {
    if (worker.hung) return;
    if (worker.forms && now_ >= *worker.forms) {
      worker.forms.reset();
      worker.follower.formed(now_, worker.forming);
    }
    if (worker.forming != 0) return;
    const Instruction next = worker.follower.next(now_);
    if (next.kind != Instruction::Kind::kForm) return;
    worker.forming = next.roster->number;
    worker.follower.offer(now_, worker.forming, std::string(kTrainers), "address");
  }
  void carry_out(Worker& worker) {
    auto actions = worker.follower.take_actions();
    for (size_t i = 0; i < actions.size(); ++i) {
      const FollowerAction action = actions[i];
      if (std::holds_alternative<Connect>(action)) {
        worker.session = ++sessions_;
        registrar_->connected(worker.session);
        worker.follower.connected(now_);
      } else if (std::holds_alternative<Disconnect>(action)) {
        registrar_->disconnected(now_, std::exchange(worker.session, 0));
      } else if (const auto* send = std::get_if<Send>(&action)) {
        say(worker, send->message);
      } else if (std::holds_alternative<AddressesReady>(action)) {
        worker.forms = now_ + worker.slow;
      } else if (std::holds_alternative<Abort>(action) && !worker.hung) {
        worker.forms.reset();
        worker.follower.failed(now_, std::exchange(worker.forming, 0), "", "aborted");
      }
      for (FollowerAction& more : worker.follower.take_actions()) actions.push_back(more);
    }
  }
  void say(Worker& worker, const FromWorker& message) {
    if (const auto* join = std::get_if<JoinRequest>(&message)) {
      registrar_->join(now_, worker.session, *join);
    } else if (const auto* beat = std::get_if<Heartbeat>(&message)) {
      registrar_->heartbeat(now_, worker.session, *beat);
    } else if (const auto* offer = std::get_if<AddressOffer>(&message)) {
      registrar_->offer_addresses(now_, worker.session, offer->roster, offer->group, offer->blob);
    }
  }
  // How long until `a` is no member any more; at most `longest`.
  Duration until_removed(Duration longest) {
    const Moment began = now_;
    while (now_ - began < longest && registrar_->state().workers.contains("a")) {
      turn();
      now_ += 1ms;
    }
    return now_ - began;
  }
  std::string events() const {
    std::string text;
    for (const Event& event : registrar_->events()) text += "\n" + event.text;
    return text;
  }

  Worker& a() { return *workers_[0]; }
  Worker& b() { return *workers_[1]; }
  void computes(Worker& worker) { worker.follower.set_activity(now_, Activity::kComputing); }
  void waits(Worker& worker) { worker.follower.set_activity(now_, Activity::kWaiting); }

  static constexpr Duration kHeartbeat = 400ms;
  Moment now_{100s};
  std::unique_ptr<Registrar> registrar_;
  std::vector<std::unique_ptr<Worker>> workers_;
  SessionId sessions_ = 0;
  RosterNumber first_ = 0;
};

// `a` writes a checkpoint, a part every 600 ms, while `b` waits for it. What is in a heartbeat is
// up to 400 ms old, so by its own clock the coordinator hears of nothing for longer than the
// timeout.
TEST_F(SampledTest, OneThatMakesProgressWithinTheTimeoutIsNeverJudged) {
  for (Duration apart = 0ms; apart < kHeartbeat; apart += 50ms) {
    for (Duration phase = 0ms; phase < kHeartbeat; phase += 20ms) {
      start(700ms, apart);
      computes(a());
      computes(b());
      run(phase);
      // A commit, in which both wait for each other for a moment.
      waits(b());
      waits(a());
      run(20ms);
      computes(a());
      for (int part = 0; part < 8; ++part) {
        run(600ms);
        a().follower.progress(now_);
      }
      ASSERT_EQ(registrar_->state().current.number, first_)
          << "apart " << seconds(apart) << ", phase " << seconds(phase) << events();
    }
  }
}

TEST_F(SampledTest, OneThatHangsAtItsOwnWorkIsRemovedInTime) {
  for (const Duration timeout : {Duration{2s}, Duration{60s}}) {
    for (Duration phase = 0ms; phase < kHeartbeat; phase += 50ms) {
      start(timeout, 130ms);
      computes(a());
      computes(b());
      run(phase);
      a().follower.progress(now_);
      a().hung = true;
      waits(b());
      const Duration took = until_removed(timeout + 2s);
      EXPECT_GE(took, timeout) << seconds(phase);
      EXPECT_LE(took, timeout + kHeartbeat * 5 / 4 + 2ms) << seconds(phase);
      EXPECT_TRUE(registrar_->state().workers.contains("b"));
    }
  }
}

TEST_F(SampledTest, OneThatHangsInsideACollectiveIsRemovedInTime) {
  for (const Duration timeout : {Duration{2s}, Duration{3s}, Duration{60s}}) {
    for (Duration phase = 0ms; phase < kHeartbeat; phase += 50ms) {
      start(timeout, 130ms);
      computes(a());
      computes(b());
      run(phase);
      waits(a());
      waits(b());
      a().hung = true;
      const Duration took = until_removed(timeout + 2s);
      EXPECT_GE(took, timeout) << seconds(phase);
      EXPECT_LE(took, timeout + 1s) << seconds(phase) << events();
      EXPECT_TRUE(registrar_->state().workers.contains("b"));
      EXPECT_THAT(events(), HasSubstr("no member makes progress"));
    }
  }
}

}  // namespace
}  // namespace muster::roster
