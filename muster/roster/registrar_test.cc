// Stories told in messages: what workers say, and what they are told.
#include "muster/roster/registrar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/roster/status.h"

namespace muster::roster {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

const std::string kAll(kTrainers);  // the group of all members here
const JobFingerprint kAvx512 = {"avx512", "m", "t", "e"};

// A worker as far as the registrar can see it.
struct Worker {
  SessionId session = 0;
  WorkerKey key;
  Roster roster;  // the newest one, put together from differences
  RosterNumber group = 0;
  uint64_t beats = 0;
  std::vector<ToWorker> told;

  template <typename T>
  std::vector<T> heard() const {
    std::vector<T> result;
    for (const ToWorker& message : told) {
      if (const T* one = std::get_if<T>(&message)) result.push_back(*one);
    }
    return result;
  }
};

class RegistrarTest : public testing::Test {
 protected:
  RegistrarTest() {
    options_.job = "story";
    options_.lanes = 4;
    options_.term = 9;
    start();
  }
  void start() { registrar_ = std::make_unique<Registrar>(options_, now_); }

  void deliver() {
    for (const Outgoing& out : registrar_->take_outgoing()) {
      for (auto& [id, worker] : workers_) {
        if (worker.session != out.session) continue;
        worker.told.push_back(*out.message);
        if (const auto* diff = std::get_if<RosterDiff>(out.message.get())) {
          worker.roster = apply(diff->base == 0 ? Roster{} : worker.roster, *diff).value();
        }
        if (out.close) worker.session = 0;
      }
    }
  }
  Worker& join(const std::string& id, uint64_t incarnation, const Roster& held = {},
               const JobFingerprint& fingerprint = kAvx512) {
    Worker& worker = workers_[id];
    worker.session = ++sessions_;
    worker.key = {id, incarnation};
    worker.told.clear();
    JoinRequest request;
    request.key = worker.key;
    request.job = "story";
    request.process = static_cast<int64_t>(incarnation);
    request.fingerprint = fingerprint;
    request.held = held;
    request.highest = held.number;
    registrar_->connected(worker.session);
    registrar_->join(now_, worker.session, request);
    deliver();
    return worker;
  }
  Heartbeat beat_of(Worker& worker) {
    Heartbeat beat;
    beat.sequence = ++worker.beats;
    beat.known = worker.roster.number;
    beat.group = worker.group;
    return beat;
  }
  void say(Worker& worker, const Heartbeat& beat) {
    registrar_->heartbeat(now_, worker.session, beat);
    deliver();
  }
  // Everybody who was told of the newest roster gives its addresses and is in its group.
  void form() {
    for (auto& [id, worker] : workers_) {
      if (!current().has(worker.key)) continue;
      registrar_->offer_addresses(now_, worker.session, current().number, kAll, "address of " + id);
    }
    deliver();
    for (auto& [id, worker] : workers_) {
      if (!current().has(worker.key)) continue;
      worker.group = current().number;
      say(worker, beat_of(worker));
    }
  }
  void drop(const std::string& id) {
    registrar_->disconnected(now_, std::exchange(workers_.at(id).session, 0));
    deliver();
  }
  const Roster& current() const { return registrar_->state().current; }

  Moment now_{50s};
  Options options_;
  std::unique_ptr<Registrar> registrar_;
  std::map<std::string, Worker> workers_;
  SessionId sessions_ = 0;
};

TEST_F(RegistrarTest, AWorkerIsWelcomedAndGetsItsRoster) {
  const Worker& worker = join("0", 1);
  ASSERT_THAT(worker.told, SizeIs(2));
  EXPECT_TRUE(std::holds_alternative<Welcome>(worker.told[0]));
  EXPECT_EQ(worker.roster, current());
  EXPECT_TRUE(worker.roster.has({"0", 1}));
}

TEST_F(RegistrarTest, RostersComeAsDifferences) {
  join("0", 1);
  form();
  join("1", 2);
  EXPECT_EQ(workers_["0"].heard<RosterDiff>().back().base,
            workers_["0"].heard<RosterDiff>().front().number);
  EXPECT_EQ(workers_["1"].heard<RosterDiff>().back().base, 0) << "it has none yet";
  EXPECT_EQ(workers_["0"].roster, current());
  EXPECT_EQ(workers_["1"].roster, current());
}

TEST_F(RegistrarTest, AHeartbeatTellsSinceWhenAWorkerStandsStill) {
  Worker& worker = join("0", 1);
  form();
  const auto progressed = [&] { return registrar_->state().workers.at("0").progressed; };
  now_ += 1s;
  Heartbeat beat = beat_of(worker);
  beat.progress = 7;
  beat.still = 300ms;
  say(worker, beat);
  EXPECT_EQ(progressed(), now_ - 300ms);
  const Moment then = progressed();
  now_ += 410ms;  // the network took 10 ms longer
  beat.sequence = ++worker.beats;
  beat.still = 700ms;
  say(worker, beat);
  EXPECT_EQ(progressed(), then);
  beat.sequence = ++worker.beats;
  beat.progress = 8;
  beat.still = Duration::max();
  say(worker, beat);
  EXPECT_EQ(progressed(), Moment{50s}) << "when it joined: of the time before, nothing is known";
}

TEST_F(RegistrarTest, OtherNumericsAreRefusedWithASentence) {
  join("0", 1);
  const Worker& other = join("1", 2, {}, {"avx2", "m", "t", "e"});
  ASSERT_THAT(other.heard<Refused>(), SizeIs(1));
  EXPECT_FALSE(other.heard<Refused>()[0].retry);
  EXPECT_THAT(other.heard<Refused>()[0].reason,
              AllOf(HasSubstr("worker 1 differs from the workers of this job in the numerics of "
                              "kernels (avx2, not avx512)"),
                    HasSubstr("`numerics: tolerant`")));
}

TEST_F(RegistrarTest, OrAcceptedIfTheJobIsTolerant) {
  options_.tolerant = true;
  start();
  join("0", 1);
  form();
  join("1", 2, {}, {"avx2", "other", "t", "e"});
  EXPECT_THAT(current().members, SizeIs(2));
  const auto warned = [&] {
    return std::ranges::count_if(registrar_->events(), [](const Event& event) {
      return event.text.starts_with("warning: worker 1 differs");
    });
  };
  EXPECT_EQ(warned(), 1);
  join("1", 2, workers_["1"].roster, {"avx2", "other", "t", "e"});  // its connection was cut
  EXPECT_EQ(warned(), 1);
}

TEST_F(RegistrarTest, OtherDataAreRefusedEvenIfTheJobIsTolerant) {
  options_.tolerant = true;
  start();
  join("0", 1);
  const auto refused = join("1", 2, {}, {"avx2", "m", "changed", "e"}).heard<Refused>();
  ASSERT_THAT(refused, SizeIs(1));
  EXPECT_FALSE(refused[0].retry);
  EXPECT_THAT(refused[0].reason,
              AllOf(HasSubstr("worker 1 differs from the workers of this job in data.train "
                              "(changed, not t): give all workers the same data files"),
                    Not(HasSubstr("kernels"))));
}

TEST_F(RegistrarTest, ARefusedWorkerDoesNotDecideWhatTheJobIs) {
  JoinRequest wrong;  // the first to come, but of another job
  wrong.key = {"9", 9};
  wrong.job = "another";
  wrong.fingerprint = {"avx2", "m", "t", "e"};
  registrar_->connected(77);
  registrar_->join(now_, 77, wrong);
  join("0", 1);
  EXPECT_TRUE(current().has({"0", 1}));
}

TEST_F(RegistrarTest, AnotherJobIsRefused) {
  options_.job = "another";
  start();
  EXPECT_THAT(join("0", 1).heard<Refused>()[0].reason, HasSubstr("job 'another', not of 'story'"));
}

TEST_F(RegistrarTest, TwoProcessesCannotBeOneWorker) {
  join("0", 1);
  const SessionId first = workers_["0"].session;
  const Worker& second = join("0", 2);
  ASSERT_THAT(second.heard<Refused>(), SizeIs(1));
  EXPECT_TRUE(second.heard<Refused>()[0].retry);
  // When the first is gone the slot is free.
  registrar_->disconnected(now_, first);
  join("0", 2);
  EXPECT_TRUE(current().has({"0", 2}));
  EXPECT_FALSE(current().has({"0", 1}));
}

TEST_F(RegistrarTest, ASlotThatWasStartedAgainAfterItsLeaseReplacesTheOldOne) {
  join("0", 1);
  join("1", 2);
  form();
  now_ += options_.lease;
  say(workers_["1"], beat_of(workers_["1"]));
  join("0", 3);
  EXPECT_FALSE(current().has({"0", 1}));
  form();  // those that stayed; then the joiner's turn has come
  EXPECT_TRUE(current().has({"0", 3}));
}

TEST_F(RegistrarTest, AZombieIsToldThatItIsOut) {
  join("0", 1);
  join("1", 2);
  form();
  const Roster held = workers_["1"].roster;
  const SessionId old = workers_["1"].session;
  now_ += options_.lease;  // worker 1 is stopped
  say(workers_["0"], beat_of(workers_["0"]));
  registrar_->tick(now_);
  deliver();
  EXPECT_FALSE(current().has({"1", 2}));
  ASSERT_THAT(workers_["1"].heard<Removed>(), SizeIs(1));
  // What it still says changes nothing.
  const RosterNumber number = current().number;
  Heartbeat late;
  late.sequence = 100;
  late.group = held.number;
  registrar_->heartbeat(now_, old, late);
  EXPECT_EQ(current().number, number);
  // Its old key is not accepted any more; with a new one it may join.
  EXPECT_THAT(join("1", 2, held).heard<Removed>(), SizeIs(1));
  EXPECT_EQ(current().number, number);
  form();
  join("1", 77);
  EXPECT_TRUE(current().has({"1", 77}));
}

TEST_F(RegistrarTest, AJoinThatComesTwiceOrLateIsOneJoin) {
  const Worker& worker = join("0", 1);
  const SessionId session = worker.session;
  JoinRequest again;
  again.key = {"0", 1};
  again.job = "story";
  again.fingerprint = kAvx512;
  registrar_->join(now_, session, again);
  EXPECT_THAT(registrar_->take_outgoing(), IsEmpty());
  drop("0");
  registrar_->join(now_, session, again);
  EXPECT_TRUE(current().members.empty()) << "that connection is over";
}

TEST_F(RegistrarTest, AnOlderHeartbeatThatComesLateIsDropped) {
  Worker& worker = join("0", 1);
  const Heartbeat old = beat_of(worker);
  form();
  say(worker, old);  // says that it has no group
  EXPECT_EQ(registrar_->state().workers.at("0").beat.group, current().number);
  // Nor does it renew the lease.
  now_ += options_.lease;
  say(worker, old);
  registrar_->tick(now_);
  EXPECT_FALSE(current().has({"0", 1}));
}

// Lanes moved just when two could not reach each other any more: that try counts, too.
TEST_F(RegistrarTest, AConflictInAGroupThatWasToBeLeftByPlanCounts) {
  for (const char* id : {"0", "1", "2"}) {
    join(id, 1);
    form();
  }
  const RosterNumber old = current().number;
  join("3", 1);
  ASSERT_GT(current().number, old);
  for (const char* id : {"0", "1"}) {
    Heartbeat beat = beat_of(workers_[id]);
    beat.group = 0;
    beat.broken = old;
    beat.suspect = id == std::string("0") ? "1" : "0";
    say(workers_[id], beat);
  }
  ASSERT_THAT(registrar_->state().conflicts, SizeIs(1)) << "once, although both say so";
  EXPECT_EQ(registrar_->state().conflicts[0].rosters, 1);
  EXPECT_EQ(registrar_->state().conflicts[0].last, old);
}

TEST_F(RegistrarTest, AddressesComeWhenAllAreIn) {
  join("0", 1);
  form();
  join("1", 2);
  registrar_->offer_addresses(now_, workers_["0"].session, current().number, kAll, "a");
  deliver();
  EXPECT_THAT(workers_["0"].heard<Addresses>(), SizeIs(1)) << "only that of the first roster";
  registrar_->offer_addresses(now_, workers_["1"].session, current().number, kAll, "b");
  deliver();
  for (const char* id : {"0", "1"}) {
    const Addresses last = workers_[id].heard<Addresses>().back();
    ASSERT_TRUE(last.blobs);
    EXPECT_THAT(*last.blobs, ElementsAre("a", "b"));
  }
}

TEST_F(RegistrarTest, AddressesFailAtOnceWhenTheRosterIsNoMore) {
  join("0", 1);
  form();
  join("1", 2);
  const RosterNumber number = current().number;
  registrar_->offer_addresses(now_, workers_["0"].session, number, kAll, "a");
  drop("1");
  const Addresses last = workers_["0"].heard<Addresses>().back();
  EXPECT_EQ(last.roster, number);
  EXPECT_FALSE(last.blobs);
  EXPECT_THAT(last.reason, HasSubstr("has replaced it: worker 1 was removed"));
  // And for one who asks too late.
  registrar_->offer_addresses(now_, workers_["0"].session, number, kAll, "a");
  deliver();
  EXPECT_FALSE(workers_["0"].heard<Addresses>().back().blobs);
}

TEST_F(RegistrarTest, ALauncherIsBelievedIfItMeansThisProcess) {
  join("0", 1);
  form();
  join("1", 2);
  form();
  registrar_->exited(now_, "1", 999, "exited with code 1");  // the one before it
  EXPECT_TRUE(current().has({"1", 2}));
  registrar_->exited(now_, "1", 2, "exited with code 1");
  EXPECT_FALSE(current().has({"1", 2}));
  EXPECT_THAT(current().reason, HasSubstr("worker 1 was removed: exited with code 1"));
}

TEST_F(RegistrarTest, WhoLeavesIsReleasedWhenTheOthersHaveMovedOn) {
  join("0", 1);
  form();
  join("1", 2);
  form();
  Heartbeat beat = beat_of(workers_["1"]);
  beat.leaving = true;
  say(workers_["1"], beat);
  EXPECT_FALSE(current().has({"1", 2}));
  EXPECT_THAT(workers_["1"].heard<Released>(), IsEmpty()) << "worker 0 is still in their group";
  EXPECT_EQ(workers_["1"].roster, current()) << "it must know, or it would wait for the commit";
  registrar_->offer_addresses(now_, workers_["0"].session, current().number, kAll, "a");
  deliver();
  EXPECT_THAT(workers_["1"].heard<Released>(), SizeIs(1));
  beat.sequence = ++workers_["1"].beats;
  beat.activity = Activity::kLeft;
  say(workers_["1"], beat);
  const RosterNumber number = current().number;
  drop("1");
  EXPECT_EQ(current().number, number) << "nobody is disturbed by its going";
  const auto gone = registrar_->take_gone();
  ASSERT_THAT(gone, SizeIs(1));
  EXPECT_EQ(gone[0].cause, RemovalCause::kLeft);
}

TEST_F(RegistrarTest, ANewCoordinatorTakesOverWhatTheWorkersHold) {
  join("0", 1);
  join("1", 2);
  form();
  join("2", 3);
  form();
  const Roster held = current();
  options_.term = 10;
  options_.fresh = false;
  start();
  join("0", 1, held);
  join("2", 3, held);
  EXPECT_THAT(registrar_->standing(), HasSubstr("2 of 3 members"));
  join("1", 2, held);
  form();
  EXPECT_EQ(current(), held) << "a restart of the coordinator disturbs nobody";
  const auto issued = registrar_->take_issued();
  ASSERT_THAT(issued, SizeIs(1)) << "the record of this coordinator begins with what it adopted";
  EXPECT_EQ(*issued[0].roster, held);
  // And then it goes on as ever.
  drop("1");
  EXPECT_EQ(term_of(current().number), 10);
  EXPECT_EQ(sequence_of(current().number), sequence_of(held.number) + 1);
}

// It has left, but before all others had moved on one of them was lost: the next roster does not
// know it any more.
TEST_F(RegistrarTest, WhoHasLeftIsReleasedAlsoIfAMemberIsLostMeanwhile) {
  join("0", 1);
  form();
  join("1", 2);
  form();
  join("2", 3);
  form();
  ASSERT_EQ(current().members.size(), 3);
  Worker& leaver = workers_["2"];
  Heartbeat beat = beat_of(leaver);
  beat.leaving = true;
  say(leaver, beat);
  ASSERT_FALSE(current().has(leaver.key));
  beat = beat_of(leaver);
  beat.leaving = true;
  beat.group = 0;
  beat.activity = Activity::kLeft;
  say(leaver, beat);
  EXPECT_THAT(leaver.heard<Released>(), IsEmpty()) << "the others have not moved on";
  drop("1");
  EXPECT_THAT(leaver.heard<Released>(), SizeIs(1));
}

TEST_F(RegistrarTest, WhoConnectedBeforeTheEndAndJoinsAfterItIsToldToo) {
  join("0", 1);
  form();
  Worker& late = workers_["late"];
  late.session = ++sessions_;
  registrar_->connected(late.session);
  registrar_->stop(now_, "enough");
  JoinRequest request;
  request.key = {"late", 9};
  request.job = "story";
  request.fingerprint = kAvx512;
  registrar_->join(now_, late.session, request);
  deliver();
  EXPECT_THAT(late.heard<Ended>(), SizeIs(1));
}

TEST_F(RegistrarTest, ANumberThatNoCoordinatorIssuedIsRefused) {
  join("0", 1);
  form();
  const RosterNumber before = current().number;
  Worker& forged = workers_["1"];
  forged.session = ++sessions_;
  JoinRequest request;
  request.key = {"1", 2};
  request.job = "story";
  request.fingerprint = kAvx512;
  request.highest = ~RosterNumber{0};
  registrar_->connected(forged.session);
  registrar_->join(now_, forged.session, request);
  deliver();
  const auto refused = forged.heard<Refused>();
  ASSERT_THAT(refused, SizeIs(1));
  EXPECT_THAT(refused[0].reason, HasSubstr("its number is too high"));
  // In a heartbeat it is not believed either.
  Heartbeat beat = beat_of(workers_["0"]);
  beat.known = ~RosterNumber{0};
  say(workers_["0"], beat);
  join("2", 3);
  EXPECT_EQ(sequence_of(current().number), sequence_of(before) + 1);
  EXPECT_EQ(term_of(current().number), term_of(before));
}

TEST_F(RegistrarTest, ARosterThatNoCoordinatorIssuedIsNotTakenOver) {
  join("0", 1);
  join("1", 2);
  form();
  const Roster held = current();
  options_.fresh = false;
  const auto refusal = [&](const Roster& wrong) {
    start();
    const auto refused = join("0", 1, wrong).heard<Refused>();
    EXPECT_EQ(current().number, refused.empty() ? wrong.number : 0);
    return refused.empty() ? std::string() : refused[0].reason;
  };
  Roster wrong = held;
  wrong.members[1].lanes = wrong.members[0].lanes;
  EXPECT_THAT(refusal(wrong), HasSubstr("given out twice"));
  wrong = held;
  wrong.members[1].key.id = "0";
  EXPECT_THAT(refusal(wrong), HasSubstr("double"));
  wrong = held;
  wrong.members.erase(wrong.members.begin());
  EXPECT_THAT(refusal(wrong), HasSubstr("the worker is not in it"));
  wrong = held;
  wrong.job = "another";
  EXPECT_THAT(refusal(wrong), HasSubstr("another job"));
  EXPECT_EQ(refusal(held), "") << "the roster itself is fine";
}

// The wall clock was set back: the new coordinator's term is below that of the one before, which
// may have issued further numbers that only a silent worker knows.
TEST_F(RegistrarTest, AClockThatWasSetBackLeadsToNoNumberTwice) {
  join("0", 1);
  join("1", 2);
  form();
  const Roster held = current();
  drop("1");
  const Roster unheard = current();  // worker 0 does not get it
  options_.term = 3;
  options_.nonce = 77;
  options_.fresh = false;
  start();
  join("0", 1, held);
  now_ += options_.grace;
  say(workers_["0"], beat_of(workers_["0"]));
  EXPECT_GT(current().number, unheard.number);
  EXPECT_GT(term_of(current().number), term_of(unheard.number));
}

TEST_F(RegistrarTest, TheNewestRosterThatSomebodyHoldsCounts) {
  join("0", 1);
  join("1", 2);
  form();
  const Roster old = current();
  drop("1");
  form();
  const Roster newest = current();
  options_.term = 10;
  options_.fresh = false;
  start();
  // The one that was put out is first to come.
  join("1", 2, old);
  join("0", 1, newest);
  EXPECT_EQ(current().number, newest.number);
  EXPECT_THAT(workers_["1"].heard<Removed>(), SizeIs(1));
}

TEST_F(RegistrarTest, WhoMissedTheNewestRosterGetsItFromTheNewCoordinator) {
  join("0", 1);
  form();
  join("1", 2);
  form();
  const Roster old = current();
  join("2", 3);  // workers 0 and 1 do not hear of this any more
  const Roster newest = current();
  options_.term = 10;
  options_.fresh = false;
  start();
  join("0", 1, old);
  join("2", 3, newest);
  EXPECT_EQ(workers_["0"].roster, old) << "it has not been told yet";
  join("1", 2, old);
  for (const char* id : {"0", "1", "2"}) EXPECT_EQ(workers_[id].roster, newest) << id;
}

TEST_F(RegistrarTest, ABlameForEachOtherIsCountedOncePerRoster) {
  join("0", 1);
  join("1", 2);
  form();
  for (const auto& [id, suspect] : {std::pair{"0", "1"}, std::pair{"1", "0"}}) {
    Heartbeat beat = beat_of(workers_[id]);
    beat.group = 0;
    beat.broken = current().number;
    beat.suspect = suspect;
    say(workers_[id], beat);
  }
  now_ += options_.confirm;
  registrar_->tick(now_);
  deliver();
  ASSERT_THAT(registrar_->state().conflicts, SizeIs(1));
  EXPECT_EQ(registrar_->state().conflicts[0].rosters, 1);
  // A commit in a later group forgives all.
  form();
  Heartbeat beat = beat_of(workers_["0"]);
  beat.step = 5;
  say(workers_["0"], beat);
  EXPECT_THAT(registrar_->state().conflicts, IsEmpty());
}

TEST_F(RegistrarTest, StatusSaysWhoDoesWhatAndWhy) {
  options_.max_workers = 2;
  start();
  join("0", 1);
  form();
  join("1", 2);
  form();
  join("2", 3);
  const StatusReport report = status_of(now_ + 1s, *registrar_);
  ASSERT_THAT(report.workers, SizeIs(3));
  EXPECT_EQ(report.workers[0].standing, "member");
  EXPECT_THAT(report.workers[0].member.lanes, SizeIs(2));
  EXPECT_EQ(report.workers[2].standing, "spare");
  EXPECT_EQ(report.workers[2].heard_ago, 1s);
  EXPECT_THAT(report.events.back().text, HasSubstr("worker 1 joins"));
}

TEST_F(RegistrarTest, TheRingOfEventsIsBounded) {
  for (uint64_t i = 1; i <= 300; ++i) {
    join("0", i);
    drop("0");
  }
  EXPECT_THAT(registrar_->events(), SizeIs(Registrar::kEvents));
}

TEST_F(RegistrarTest, AllAreToldThatTheJobIsFinished) {
  options_.max_workers = 2;
  start();
  Worker& first = join("0", 1);
  form();
  Worker& other = join("1", 2);
  form();
  Worker& spare = join("2", 3);
  Heartbeat wrong = beat_of(spare);
  wrong.finished = true;
  say(spare, wrong);
  EXPECT_FALSE(registrar_->state().ended) << "it is not in, so it cannot know";
  Heartbeat beat = beat_of(first);
  beat.step = 500;
  beat.finished = true;
  say(first, beat);
  const Ended finished{true, "the job is finished after step 500"};
  // A member that did not see the last commit, or waits for another roster, is not needed either.
  for (const Worker* worker : {&first, &other, &spare}) {
    EXPECT_THAT(worker->heard<Ended>(), ElementsAre(finished)) << worker->key.id;
    EXPECT_EQ(worker->session, 0) << "nothing follows";
  }
  EXPECT_THAT(join("3", 4).heard<Ended>(), ElementsAre(finished)) << "one that comes too late";
  EXPECT_THAT(join("1", 2, other.roster).heard<Ended>(), ElementsAre(finished))
      << "one that was away";
  // That they go now is no loss.
  now_ += 10s;
  registrar_->tick(now_);
  registrar_->exited(now_, "0", 0, "exited with code 0");
  registrar_->stop(now_, "too late");
  EXPECT_THAT(registrar_->take_gone(), IsEmpty());
  EXPECT_THAT(current().members, SizeIs(2));
  const StatusReport report = status_of(now_, *registrar_);
  EXPECT_TRUE(report.finished);
  EXPECT_EQ(report.ended, finished.reason);
  EXPECT_EQ(report.step, 500);
  EXPECT_THAT(report.workers, SizeIs(3));
}

TEST_F(RegistrarTest, AJobThatIsStoppedSaysSo) {
  Worker& worker = join("0", 1);
  form();
  registrar_->stop(now_, "interrupted from the keyboard");
  deliver();
  EXPECT_THAT(worker.heard<Ended>(), ElementsAre(Ended{false, "interrupted from the keyboard"}));
  EXPECT_THAT(registrar_->events().back().text,
              HasSubstr("the job is stopped: interrupted from the keyboard"));
  EXPECT_FALSE(status_of(now_, *registrar_).finished);
  EXPECT_THAT(join("1", 2, {}).heard<Ended>(), SizeIs(1));
}

TEST_F(RegistrarTest, ASpareTakesThePlaceOfAMemberThatIsLost) {
  options_.max_workers = 2;
  start();
  join("0", 1);
  form();
  join("1", 2);
  form();
  Worker& spare = join("2", 3);
  EXPECT_THAT(spare.heard<RosterDiff>(), IsEmpty()) << "welcome, but there is nothing to do";
  EXPECT_THAT(spare.heard<Welcome>(), SizeIs(1));
  drop("0");
  ASSERT_TRUE(current().has(spare.key)) << "in the same roster that is without the lost one";
  EXPECT_THAT(spare.heard<RosterDiff>(), SizeIs(1));
  EXPECT_THAT(current().reason,
              HasSubstr("worker 0 was removed: its connection broke; worker 2 joins"));
  EXPECT_THAT(current().members, SizeIs(2));
}

// A coordinator with thousands of workers puts each difference into bytes once: those with the same
// base are told the same object.
TEST_F(RegistrarTest, WorkersWithTheSameBaseShareOneMessage) {
  options_.expected = 3;
  start();
  for (const char* id : {"a", "b", "c"}) join(id, 1);
  const RosterNumber before = registrar_->state().current.number;
  registrar_->exited(now_, "c", 1, "it was killed");
  std::vector<std::shared_ptr<const ToWorker>> rosters;
  for (const Outgoing& out : registrar_->take_outgoing()) {
    if (std::holds_alternative<RosterDiff>(*out.message)) rosters.push_back(out.message);
  }
  ASSERT_THAT(rosters, testing::SizeIs(2));
  EXPECT_EQ(rosters[0], rosters[1]);
  EXPECT_EQ(std::get<RosterDiff>(*rosters[0]).base, before);
}

TEST_F(RegistrarTest, WhatArrivesTogetherIsDecidedTogether) {
  options_.expected = 4;
  start();
  for (const char* id : {"a", "b", "c", "d"}) join(id, 1);
  const RosterNumber before = registrar_->state().current.number;
  registrar_->defer_decisions();
  registrar_->exited(now_, "c", 1, "it was killed");
  registrar_->exited(now_, "d", 1, "it was killed");
  EXPECT_EQ(registrar_->state().current.number, before);
  registrar_->decide_now(now_);
  EXPECT_EQ(registrar_->state().current.number, before + 1);
  EXPECT_THAT(registrar_->state().current.members, testing::SizeIs(2));
  // Nothing has arrived: nothing is decided.
  registrar_->defer_decisions();
  registrar_->decide_now(now_ + 1ms);
  EXPECT_EQ(registrar_->state().current.number, before + 1);
}

}  // namespace
}  // namespace muster::roster
