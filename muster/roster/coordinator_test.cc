// The coordinator and its clients over real connections, in one process.
#include "muster/roster/coordinator.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/roster/client.h"
#include "muster/roster/follow_testing.h"

namespace muster::roster {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::SizeIs;

// Long enough for a machine under a sanitizer and other people's builds; never waited for in full
// unless something is wrong.
constexpr auto kPatience = 30s;

const std::string kAll(kTrainers);  // the group of all members here
const JobFingerprint kSame = {"kernels", "model", "train", "test"};

ClientOptions client_options(const std::string& address, const std::string& id,
                             const JobFingerprint& fingerprint = kSame) {
  ClientOptions options;
  options.addresses = {address};
  options.follower.join.job = "job";
  options.follower.join.key.id = id;
  options.follower.join.fingerprint = fingerprint;
  return options;
}

// A client with a thread that follows rosters.
class TestWorker {
 public:
  TestWorker(const std::string& address, const std::string& id, const Clock& clock,
             const JobFingerprint& fingerprint = kSame) {
    ClientOptions options = client_options(address, id, fingerprint);
    options.on_abort = [this](RosterNumber number, const std::string&) { aborted_ = number; };
    client_ = Client::start(std::move(options), clock).value();
    thread_ = std::thread([this] { told_ = follow_rosters(*client_, aborted_, stop_, leave_); });
  }
  ~TestWorker() { stop(); }
  void stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    client_.reset();
  }
  void leave() {
    leave_ = true;
    thread_.join();
    client_.reset();
  }
  // Waits until it has stopped following by itself; returns what it was told.
  const Instruction& join() {
    if (thread_.joinable()) thread_.join();
    return told_;
  }
  Client& client() { return *client_; }

 private:
  std::atomic<RosterNumber> aborted_{0};
  std::unique_ptr<Client> client_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> leave_{false};
  Instruction told_;
  std::thread thread_;
};

class CoordinatorTest : public testing::Test {
 protected:
  CoordinatorTest() {
    options_.roster.job = "job";
    options_.roster.lanes = 4;
    options_.roster.term = term_from_clock(clock_);
    options_.roster.lease = 5s;
    options_.on_gone = [this](const Gone& gone) {
      const std::lock_guard lock(mutex_);
      gone_.push_back(gone);
    };
  }
  void start() {
    coordinator_ = Coordinator::start(options_, clock_).value();
    options_.address = coordinator_->address();  // and there again after a restart
  }
  TestWorker& add(const std::string& id) {
    return *workers_.emplace(id, std::make_unique<TestWorker>(options_.address, id, clock_))
                .first->second;
  }
  // One that does nothing by itself.
  std::unique_ptr<Client> client(const std::string& id) {
    return Client::start(client_options(options_.address, id), clock_).value();
  }
  // Waits until it is told to form a group; null: it is told something else.
  static RosterPtr form(Client& client) {
    const Instruction next = client.next(kPatience);
    return next.kind == Instruction::Kind::kForm ? next.roster : nullptr;
  }
  // Whether it comes true before patience ends.
  template <typename F>
  static bool eventually(F condition) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(2ms);
    }
    return true;
  }
  // All of these, and no others, are in the group of the present roster.
  bool train_together(const std::vector<std::string>& ids) {
    return eventually([&] {
      const StatusReport report = coordinator_->status();
      std::vector<std::string> in;
      for (const WorkerStatus& worker : report.workers) {
        if (worker.beat.group == report.roster.number && report.roster.has(worker.member.key)) {
          in.push_back(worker.member.key.id);
        }
      }
      std::ranges::sort(in);
      return in == ids && report.roster.members.size() == ids.size();
    });
  }
  std::vector<Gone> gone() {
    const std::lock_guard lock(mutex_);
    return gone_;
  }

  const SystemClock clock_;
  CoordinatorOptions options_;
  std::mutex mutex_;
  std::vector<Gone> gone_;
  std::unique_ptr<Coordinator> coordinator_;  // after what its callbacks use
  std::map<std::string, std::unique_ptr<TestWorker>> workers_;
};

TEST_F(CoordinatorTest, ThreeJoinOneAfterTheOther) {
  start();
  add("a");
  ASSERT_TRUE(train_together({"a"}));
  add("b");
  add("c");
  ASSERT_TRUE(train_together({"a", "b", "c"}));
  size_t lanes = 0;
  for (const Member& member : coordinator_->status().roster.members) lanes += member.lanes.size();
  EXPECT_EQ(lanes, 4);
  EXPECT_EQ(*workers_["a"]->client().newest(), coordinator_->status().roster);
}

TEST_F(CoordinatorTest, AddressesOfAllReachAll) {
  options_.roster.expected = 2;
  start();
  std::vector<std::unique_ptr<Client>> clients;
  for (const char* id : {"a", "b"}) clients.push_back(client(id));
  RosterPtr roster;
  for (auto& one : clients) roster = form(*one);
  ASSERT_TRUE(roster);
  const std::string big(6 << 20, 'x');  // more than gRPC takes by default
  const int rank = roster->rank_of(clients[0]->key());
  std::thread other([&] {
    const auto all = clients[1]->exchange(roster->number, kAll, "second");
    ASSERT_TRUE(all.ok()) << all.error().message();
    EXPECT_EQ((*all)[static_cast<size_t>(rank)].size(), big.size());
  });
  const auto all = clients[0]->exchange(roster->number, kAll, big);
  other.join();
  ASSERT_TRUE(all.ok()) << all.error().message();
  EXPECT_EQ((*all)[static_cast<size_t>(1 - rank)], "second");
}

TEST_F(CoordinatorTest, AnExchangeEndsWhenItsRosterIsSuperseded) {
  options_.roster.expected = 2;
  start();
  auto waits = client("a");
  auto dies = client("b");
  const RosterPtr roster = form(*waits);
  ASSERT_TRUE(roster);
  std::thread killer([&] {
    std::this_thread::sleep_for(50ms);
    dies.reset();
  });
  const auto begin = std::chrono::steady_clock::now();
  const auto all = waits->exchange(roster->number, kAll, "x");
  killer.join();
  ASSERT_FALSE(all.ok());
  EXPECT_THAT(all.error().message(), HasSubstr("worker b was removed"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience / 2);
}

TEST_F(CoordinatorTest, AnExchangeEndsWhenItIsStopped) {
  options_.roster.expected = 2;
  start();
  auto one = client("a");
  auto other = client("b");
  const RosterPtr roster = form(*one);
  ASSERT_TRUE(roster);
  std::stop_source source;
  std::thread stopper([&] {
    std::this_thread::sleep_for(20ms);
    source.request_stop();
  });
  const auto stopped = one->exchange(roster->number, kAll, "x", source.get_token());
  stopper.join();
  ASSERT_FALSE(stopped.ok());
  EXPECT_THAT(stopped.error().message(), HasSubstr("was stopped"));
}

// A member whose own thread hangs before it gives its addresses: no retry restarts the clock.
TEST_F(CoordinatorTest, AMemberThatDoesNotFormItsGroupIsRemovedAfterHangTimeout) {
  options_.roster.expected = 3;
  options_.roster.hang_timeout = 1s;
  start();
  add("a");
  add("b");
  auto hangs = client("c");
  const Moment begin = clock_.now();
  ASSERT_TRUE(train_together({"a", "b"}));
  EXPECT_LT(clock_.now() - begin, 10s);
  ASSERT_TRUE(eventually([&] { return !gone().empty(); }));
  EXPECT_EQ(gone()[0].key.id, "c");
  EXPECT_EQ(gone()[0].cause, RemovalCause::kHung);
}

TEST_F(CoordinatorTest, AClosedLineIsADeath) {
  start();
  add("a");
  add("b");
  ASSERT_TRUE(train_together({"a", "b"}));
  workers_["b"]->stop();
  ASSERT_TRUE(train_together({"a"}));
  EXPECT_THAT(coordinator_->status().roster.reason, HasSubstr("its connection broke"));
}

TEST_F(CoordinatorTest, WhoLeavesIsNotADeath) {
  start();
  add("a");
  add("b");
  ASSERT_TRUE(train_together({"a", "b"}));
  workers_["b"]->leave();
  ASSERT_TRUE(train_together({"a"}));
  ASSERT_TRUE(eventually([&] { return gone().size() == 1; }));
  EXPECT_EQ(gone()[0].cause, RemovalCause::kLeft);
}

TEST_F(CoordinatorTest, ARestartOfTheCoordinatorDisturbsNobody) {
  start();
  add("a");
  add("b");
  add("c");
  ASSERT_TRUE(train_together({"a", "b", "c"}));
  const Roster before = coordinator_->status().roster;
  coordinator_.reset();
  ASSERT_TRUE(eventually([&] { return !workers_["a"]->client().connected(); }));
  EXPECT_EQ(*workers_["a"]->client().newest(), before) << "training goes on without it";
  std::this_thread::sleep_for(50ms);
  options_.roster.fresh = false;
  options_.roster.term = term_from_clock(clock_);
  options_.roster.grace = kPatience;
  start();
  ASSERT_TRUE(train_together({"a", "b", "c"}));
  EXPECT_EQ(coordinator_->status().roster, before);
  add("d");
  ASSERT_TRUE(train_together({"a", "b", "c", "d"}));
  EXPECT_GT(term_of(coordinator_->status().roster.number), term_of(before.number));
}

TEST_F(CoordinatorTest, OtherNumericsAndOtherDataAreRefused) {
  start();
  add("a");
  ASSERT_TRUE(train_together({"a"}));
  // Each part crosses the wire, and is named.
  const std::vector<std::pair<std::string JobFingerprint::*, std::string>> parts = {
      {&JobFingerprint::kernels, "the numerics of kernels (other, not kernels)"},
      {&JobFingerprint::model, "the numerics of the model (other, not model)"},
      {&JobFingerprint::train_data, "data.train (other, not train)"},
      {&JobFingerprint::test_data, "data.test (other, not test)"},
      {&JobFingerprint::model_file, "model.file (other, not none)"}};
  for (const auto& [part, text] : parts) {
    JobFingerprint fingerprint = kSame;
    fingerprint.*part = "other";
    TestWorker other(options_.address, "b", clock_, fingerprint);
    const Instruction told = other.join();
    ASSERT_EQ(told.kind, Instruction::Kind::kRefused);
    EXPECT_THAT(told.reason,
                HasSubstr("worker b differs from the workers of this job in " + text + ":"));
  }
}

TEST_F(CoordinatorTest, ALaunchersNoticeIsFasterThanAnyTimeout) {
  start();
  add("a");
  add("b");
  ASSERT_TRUE(train_together({"a", "b"}));
  ASSERT_TRUE(send_exited(options_.address, "job", "b", 0, "exited with code 3", kPatience).ok());
  ASSERT_TRUE(eventually([&] { return !gone().empty(); }));
  EXPECT_EQ(gone()[0].reason, "exited with code 3");
  // It was alive after all: it is told that it is out, and asks in again.
  ASSERT_TRUE(train_together({"a", "b"}));
}

TEST_F(CoordinatorTest, ASpareWaitsUntilItIsNeeded) {
  options_.roster.max_workers = 2;
  start();
  add("a");
  add("b");
  ASSERT_TRUE(train_together({"a", "b"}));
  auto spare = client("c");
  ASSERT_TRUE(eventually([&] { return coordinator_->status().workers.size() == 3; }));
  EXPECT_EQ(coordinator_->status().workers[2].standing, "spare");
  EXPECT_EQ(spare->next(20ms).kind, Instruction::Kind::kWait);
  EXPECT_TRUE(spare->connected());
  workers_["a"]->stop();
  const RosterPtr roster = form(*spare);
  ASSERT_TRUE(roster);
  EXPECT_TRUE(roster->has(spare->key()));
  EXPECT_THAT(roster->reason, HasSubstr("worker a was removed"));
}

TEST_F(CoordinatorTest, WhoWaitsIsToldThatTheJobIsFinished) {
  options_.roster.max_workers = 2;
  start();
  add("a");
  add("b");
  ASSERT_TRUE(train_together({"a", "b"}));
  auto spare = client("c");
  workers_["a"]->client().finished();
  EXPECT_EQ(spare->next(kPatience).kind, Instruction::Kind::kFinished);
  spare->leave();
  EXPECT_EQ(spare->next(kPatience).kind, Instruction::Kind::kFinished) << "also if it leaves";
  EXPECT_THAT(spare->reason(), HasSubstr("the job is finished after step"));
  EXPECT_EQ(client("late")->next(kPatience).kind, Instruction::Kind::kFinished);
  EXPECT_TRUE(coordinator_->end("nobody needs it", kPatience));
  EXPECT_TRUE(coordinator_->status().finished);
  EXPECT_THAT(gone(), testing::IsEmpty()) << "nobody was lost";
}

TEST_F(CoordinatorTest, AJobThatIsStoppedTellsItsWorkers) {
  start();
  add("a");
  ASSERT_TRUE(train_together({"a"}));
  auto other = client("b");
  const RosterPtr roster = form(*other);
  ASSERT_TRUE(roster);
  ASSERT_TRUE(coordinator_->end("interrupted from the keyboard", kPatience));
  coordinator_.reset();
  const auto all = other->exchange(roster->number, kAll, "x");
  ASSERT_FALSE(all.ok());
  EXPECT_EQ(all.error().message(), "the job was stopped: interrupted from the keyboard");
  other->failed(roster->number, "", all.error().message());
  EXPECT_EQ(other->next(kPatience).kind, Instruction::Kind::kStopped);
  EXPECT_EQ(other->reason(), "interrupted from the keyboard");
  // One that trains is told too: its group is aborted.
  EXPECT_EQ(workers_["a"]->join().kind, Instruction::Kind::kStopped);
}

// SIGSTOP, Ctrl-Z, a log on slow storage: it is not the workers that were away.
TEST_F(CoordinatorTest, ACallbackThatTakesLongDelaysNobody) {
  options_.roster.lease = 800ms;
  options_.roster.heartbeat = 100ms;
  // Shared: events are told until the coordinator is destroyed, after this function has returned.
  const auto slow = std::make_shared<std::atomic<bool>>(false);
  options_.on_event = [slow](const Event&) {
    if (slow->exchange(false)) std::this_thread::sleep_for(2s);
  };
  start();
  add("a");
  add("b");
  ASSERT_TRUE(train_together({"a", "b"}));
  *slow = true;
  add("c");
  ASSERT_TRUE(train_together({"a", "b", "c"}));
  std::this_thread::sleep_for(1s);
  EXPECT_THAT(gone(), testing::IsEmpty());
}

TEST_F(CoordinatorTest, StatusFromAfar) {
  options_.roster.max_workers = 2;
  options_.servers = "host:9000";
  start();
  add("a");
  ASSERT_TRUE(train_together({"a"}));
  add("b");
  ASSERT_TRUE(train_together({"a", "b"}));
  workers_["a"]->stop();
  add("c");
  ASSERT_TRUE(train_together({"b", "c"}));
  add("d");
  // What a heartbeat says is there with the next one.
  ASSERT_TRUE(eventually([&] {
    const StatusReport now = coordinator_->status();
    return now.workers.size() == 3 && now.workers[0].lane_seconds > 0 && now.step > 0;
  }));
  const auto report = fetch_status(options_.address, kPatience);
  ASSERT_TRUE(report.ok()) << report.error().message();
  EXPECT_EQ(report->job, "job");
  EXPECT_EQ(report->lanes, 4);
  EXPECT_EQ(report->min_workers, 1);
  EXPECT_EQ(report->max_workers, 2);
  EXPECT_EQ(report->roster, coordinator_->status().roster);
  EXPECT_GT(report->step, 0);
  EXPECT_GT(report->up, 0ns);
  EXPECT_FALSE(report->finished);
  EXPECT_EQ(report->ended, "");
  EXPECT_EQ(report->servers, "host:9000");
  ASSERT_THAT(report->workers, SizeIs(3));
  const WorkerStatus& member = report->workers[0];
  EXPECT_EQ(member.member.key.id, "b");
  EXPECT_EQ(member.standing, "member");
  EXPECT_THAT(member.member.lanes, SizeIs(2));
  EXPECT_DOUBLE_EQ(member.lane_seconds, 0.001);
  EXPECT_GT(member.beat.step, 0);
  EXPECT_EQ(member.beat.group, report->roster.number);
  EXPECT_EQ(report->workers[2].standing, "spare");
  std::string events;
  for (const EventLine& event : report->events) events += event.text + "\n";
  EXPECT_THAT(events, HasSubstr("worker a was removed: its connection broke"));
  EXPECT_THAT(events, HasSubstr("worker c joins"));
  coordinator_.reset();
  const auto nobody = fetch_status(options_.address, 2s);
  ASSERT_FALSE(nobody.ok());
  EXPECT_THAT(nobody.error().message(), HasSubstr("no coordinator answers at " + options_.address));
}

TEST_F(CoordinatorTest, APortThatIsTakenIsSaidSo) {
  start();
  testing::internal::CaptureStderr();
  const auto second = Coordinator::start(options_, clock_);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "gRPC has nothing to add";
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error().message(), HasSubstr("cannot listen on " + options_.address));
  options_.address = "nonsense";
  EXPECT_FALSE(Coordinator::start(options_, clock_).ok());
}

TEST_F(CoordinatorTest, ManyComeAndGoAtOnce) {
  options_.roster.lanes = 64;
  start();
  std::vector<std::string> ids;
  for (int i = 0; i < 12; ++i) {
    ids.push_back("w" + std::to_string(100 + i));
    add(ids.back());
  }
  ASSERT_TRUE(train_together(ids));
  for (int i = 0; i < 6; ++i) workers_[ids[static_cast<size_t>(i)]]->stop();
  ASSERT_TRUE(train_together({ids.begin() + 6, ids.end()}));
}

}  // namespace
}  // namespace muster::roster
