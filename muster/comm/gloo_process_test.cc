// Gloo groups of real processes that are killed and stopped, while they work and while they form.
#include <chrono>
#include <csignal>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/comm/group_testing.h"
#include "muster/comm/peer_watch.h"
#include "muster/comm/process_testing.h"

namespace muster::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Nothing here may take this long; all deadlines that are not under test are above it.
constexpr auto kSoon = seconds(10);
constexpr auto kPatience = seconds(60);

int64_t now_ns() { return steady_clock::now().time_since_epoch().count(); }
Duration since(const Report& report, int64_t from) { return Duration(report.ended_ns - from); }

// What befalls a member between giving its address and connecting.
class FatalRendezvous final : public Rendezvous {
 public:
  FatalRendezvous(const std::string& folder, int fatal_signal)
      : real_(folder), signal_(fatal_signal) {}
  Result<std::vector<std::string>> exchange(int rank, int size, const std::string& blob,
                                            Moment deadline, std::stop_token stop) override {
    auto result = real_.exchange(rank, size, blob, deadline, stop);
    ::raise(signal_);
    return result;
  }

 private:
  FileRendezvous real_;
  const int signal_;
};

Result<std::unique_ptr<Group>> join(const MeetingFolder& folder, int rank, int size,
                                    bool shared_memory, Duration timeout = kPatience,
                                    GroupFailure* failure = nullptr) {
  MUSTER_TRY(auto device, GlooDevice::open("127.0.0.1"));
  FileRendezvous rendezvous(folder.path());
  return make_gloo_group({.device = device,
                          .rendezvous = &rendezvous,
                          .rank = rank,
                          .names = test_names(size),
                          .timeout = timeout,
                          .shared_memory = shared_memory},
                         failure);
}

struct Case {
  int size;
  size_t count;
  bool shared_memory;
};

// Sums until something fails; `progress` counts.
void sum_for_ever(const MeetingFolder& folder, int rank, const Case& c, Duration timeout,
                  Report& report) {
  const auto [size, count, shared_memory] = c;
  auto group = join(folder, rank, size, shared_memory);
  if (!group.ok()) return report.finish(group.error().message());
  if ((*group)->transport() != (shared_memory ? "shared memory" : "tcp")) {
    return report.finish("the wrong transport");
  }
  std::vector<int32_t> data(count);
  while (true) {
    std::fill(data.begin(), data.end(), rank + 1);
    const Status status = (*group)->allreduce_sum(std::span(data), {.timeout = timeout});
    if (status.ok() && data[count - 1] != size * (size + 1) / 2) {
      return report.finish("a wrong sum");
    }
    if (!status.ok()) {
      report.finish(**group, status);
      group->reset();  // must not hang either
      report.progress = 1'000'000;
      return;
    }
    ++report.progress;
  }
}

class GlooProcessTest : public ::testing::TestWithParam<Case> {};

TEST_P(GlooProcessTest, AKilledPeerIsNoticedByAllAtOnce) {
  const int size = GetParam().size;
  const int victim = size - 2;
  for (int round = 0; round < 3; ++round) {
    const MeetingFolder folder;
    Processes p(size, [&](int rank, Report& report) {
      sum_for_ever(folder, rank, GetParam(), kPatience, report);
    });
    ASSERT_TRUE(p.wait_progress(victim, 3 + round));
    const int64_t killed = now_ns();
    p.signal(victim, SIGKILL);
    for (int r = 0; r < size; ++r) {
      if (r == victim) continue;
      ASSERT_TRUE(p.wait_done(r)) << r;
      EXPECT_LT(since(p.report(r), killed), kSoon) << r;
      EXPECT_EQ(p.report(r).kind, FailureKind::kPeerLost) << r << p.report(r).message;
      EXPECT_EQ(p.report(r).origin, victim) << r << p.report(r).message;
      EXPECT_THAT(p.report(r).message,
                  AllOf(HasSubstr("allreduce #"), HasSubstr(test_names(size)[size_t(victim)])));
      EXPECT_TRUE(Processes::eventually([&] { return p.report(r).progress == 1'000'000; }));
      EXPECT_EQ(p.reap(r, false), 0) << r;
    }
  }
}

TEST_P(GlooProcessTest, AStoppedPeerIsNamedAtTheDeadline) {
  const int size = GetParam().size;
  const int victim = 1;
  const MeetingFolder folder;
  Processes p(size, [&](int rank, Report& report) {
    sum_for_ever(folder, rank, GetParam(), seconds(2), report);
  });
  ASSERT_TRUE(p.wait_progress(victim, 3));
  p.signal(victim, SIGSTOP);
  bool named = false;
  for (int r = 0; r < size; ++r) {
    if (r == victim) continue;
    ASSERT_TRUE(p.wait_done(r)) << r;
    EXPECT_EQ(p.report(r).kind, FailureKind::kDeadline) << r << p.report(r).message;
    EXPECT_EQ(p.report(r).origin, victim) << r << p.report(r).message;
    named |= p.report(r).suspect == victim;
    EXPECT_THAT(p.report(r).message, HasSubstr("(worker-b) is silent")) << r;
    EXPECT_TRUE(Processes::eventually([&] { return p.report(r).progress == 1'000'000; }));
    EXPECT_EQ(p.reap(r, false), 0) << r;
  }
  EXPECT_TRUE(named) << "the first to find out suspects it";
  // It wakes up in a world that has gone on, and says so.
  p.signal(victim, SIGCONT);
  ASSERT_TRUE(p.wait_done(victim));
  EXPECT_THAT(p.report(victim).message, HasSubstr("(worker-b) is silent"));
  EXPECT_EQ(p.report(victim).origin, victim);
  EXPECT_EQ(p.reap(victim, false), 0);
}

TEST_P(GlooProcessTest, AbortEndsAnAllreduceWithAStoppedPeer) {
  const auto [size, count, shared_memory] = GetParam();
  const int victim = size - 1;
  const MeetingFolder folder;
  Processes p(size, [&](int rank, Report& report) {
    auto group = join(folder, rank, size, shared_memory);
    if (!group.ok()) return report.finish(group.error().message());
    // What another thread of a worker does when the coordinator tells it of a new roster.
    std::thread watcher;
    if (rank == 0) {
      watcher = std::thread([&] {
        while (report.progress < 1000) std::this_thread::sleep_for(milliseconds(1));
        (*group)->abort("there is a new roster");
      });
    }
    std::vector<int32_t> data(count);
    Status status;
    while (status.ok()) {
      status = (*group)->allreduce_sum(std::span(data), {.timeout = kPatience});
      ++report.progress;
    }
    if (watcher.joinable()) watcher.join();
    report.finish(**group, status);
  });
  ASSERT_TRUE(p.wait_progress(victim, 3));
  p.signal(victim, SIGSTOP);
  std::this_thread::sleep_for(milliseconds(50));  // let the others run into it
  const int64_t aborted = now_ns();
  p.report(0).progress = 1000;
  for (int r = 0; r < size; ++r) {
    if (r == victim) continue;
    ASSERT_TRUE(p.wait_done(r)) << r;
    EXPECT_LT(since(p.report(r), aborted), kSoon) << r;
    EXPECT_EQ(p.report(r).kind, FailureKind::kAborted) << r << p.report(r).message;
    EXPECT_EQ(p.report(r).origin, 0) << r;
    EXPECT_THAT(p.report(r).message, HasSubstr("there is a new roster"));
  }
}

// Both members wait for each other in turn with messages of many segments: the kill or stop falls
// into the middle of one.
INSTANTIATE_TEST_SUITE_P(Sizes, GlooProcessTest,
                         ::testing::Values(Case{2, 1000, false}, Case{2, 8'000'000, false},
                                           Case{3, 3'000'000, false}, Case{4, 1000, false},
                                           Case{4, 2'000'000, false}, Case{2, 1000, true},
                                           Case{2, 8'000'000, true}, Case{4, 2'000'000, true}),
                         [](const auto& info) {
                           return (info.param.shared_memory ? "Shared" : "Gloo") +
                                  std::to_string(info.param.size) + "Of" +
                                  std::to_string(info.param.count);
                         });

// Gloo itself does not tell an operation that its connection broke, or was closed, in the middle of
// its message. The receiver's memory is shared with the test, so that it sees when that is.
class MiddleOfAMessageTest : public ::testing::TestWithParam<bool> {};

TEST_P(MiddleOfAMessageTest, TheReceiverIsWoken) {
  const bool kill = GetParam();  // the sender; else it is stopped and the receiver aborts
  constexpr size_t kBytes = 256 << 20;
  void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* received = static_cast<volatile uint8_t*>(memory);
  {
    const MeetingFolder folder;
    Processes p(2, [&](int rank, Report& report) {
      auto group = join(folder, rank, 2, false);
      if (!group.ok()) return report.finish(group.error().message());
      if (rank == 1) {
        const std::vector<uint8_t> data(kBytes, 7);
        (void)(*group)->send(std::span(data), 0, {.timeout = kPatience});
        ::pause();
      }
      std::thread watcher([&] {
        while (report.progress == 0) std::this_thread::sleep_for(milliseconds(1));
        if (report.progress == 1) (*group)->abort("a new roster");
      });
      const std::span<uint8_t> into(static_cast<uint8_t*>(memory), kBytes);
      const Status status = (*group)->recv(into, 1, {.timeout = kPatience});
      if (kill) report.progress = 2;
      watcher.join();
      report.finish(**group, status);
    });
    ASSERT_TRUE(Processes::eventually([&] { return received[1 << 20] == 7; }));
    p.signal(1, SIGSTOP);
    std::this_thread::sleep_for(milliseconds(100));  // what is in the sockets may arrive
    ASSERT_EQ(received[kBytes - 1], 0) << "the message was too short to stop in its middle";
    const int64_t began = now_ns();
    if (kill) {
      p.signal(1, SIGKILL);
    } else {
      p.report(0).progress = 1;
    }
    ASSERT_TRUE(p.wait_done(0));
    EXPECT_LT(since(p.report(0), began), kSoon);
    EXPECT_EQ(p.report(0).origin, kill ? 1 : 0) << p.report(0).message;
    EXPECT_EQ(p.report(0).kind, kill ? FailureKind::kPeerLost : FailureKind::kAborted);
  }
  ::munmap(memory, kBytes);
}

INSTANTIATE_TEST_SUITE_P(Ways, MiddleOfAMessageTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Kill" : "Abort"; });

// A member that is alive but elsewhere is told from one that is stopped, and from one that waits.
TEST(GlooProcessTest, OneThatDoesNotComeIsToldFromOneThatWaitsForIt) {
  const MeetingFolder folder;
  Processes p(4, [&](int rank, Report& report) {
    auto group = join(folder, rank, 4, false);
    if (!group.ok()) return report.finish(group.error().message());
    if (rank == 3) {
      ::pause();  // in the data loader, say
      return;
    }
    std::vector<int32_t> data(1000);
    report.finish(**group, (*group)->barrier({.timeout = seconds(1)}));
  });
  for (int r = 0; r < 3; ++r) {
    ASSERT_TRUE(p.wait_done(r));
    // A barrier goes by way of others: some wait for a member that waits itself.
    EXPECT_EQ(p.report(r).origin, 3) << r << p.report(r).message;
    EXPECT_THAT(p.report(r).message, HasSubstr("rank 3 (worker-d) lives, but did not come"));
  }
}

TEST(GlooProcessTest, OneWithoutSharedMemorySpeaksForAll) {
  const MeetingFolder folder;
  Processes p(3, [&](int rank, Report& report) {
    auto group = join(folder, rank, 3, rank != 1);
    if (!group.ok()) return report.finish(group.error().message());
    std::vector<int32_t> data(100'000, 1);
    const Status status = (*group)->allreduce_sum(std::span(data));
    report.finish(status.ok() && data[99'999] == 3 ? std::string((*group)->transport()) : "bad");
  });
  for (int r = 0; r < 3; ++r) {
    ASSERT_TRUE(p.wait_done(r));
    EXPECT_STREQ(p.report(r).message, "tcp");
  }
}

class GlooFormingTest : public ::testing::TestWithParam<int> {};

// `victim` dies after the rendezvous: all others fail at once.
void expect_death_is_noticed(int size, int victim) {
  const MeetingFolder folder;
  Processes p(size, [&](int rank, Report& report) {
    if (rank == victim) {
      FatalRendezvous fatal(folder.path(), SIGKILL);
      auto device = *GlooDevice::open("127.0.0.1");
      (void)make_gloo_group({.device = device,
                             .rendezvous = &fatal,
                             .rank = rank,
                             .names = test_names(size),
                             .timeout = kPatience});
      return;
    }
    GroupFailure failure;
    auto group = join(folder, rank, size, true, kPatience, &failure);
    report.set(failure);
    report.finish(group.ok() ? "good" : group.error().message());
  });
  const int64_t began = now_ns();
  bool named = false;
  for (int r = 0; r < size; ++r) {
    if (r == victim) continue;
    ASSERT_TRUE(p.wait_done(r)) << r;
    EXPECT_LT(since(p.report(r), began), kSoon) << r;
    EXPECT_THAT(std::string(p.report(r).message), HasSubstr("cannot form a group")) << r;
    // It died, and its machine said so; on a slow one some may have waited for it for long enough.
    EXPECT_TRUE(p.report(r).suspect == kNobody || p.report(r).suspect == victim) << r;
    named |= std::string(p.report(r).message).find(fmt::format("rank {} (worker-", victim)) !=
             std::string::npos;
  }
  // The members that notice it leave, so later ones may find one of those gone instead.
  EXPECT_TRUE(named);
}

TEST_P(GlooFormingTest, APeerThatDiesBeforeItConnectsFailsTheOthersAtOnce) {
  for (int victim = 0; victim < GetParam(); ++victim) expect_death_is_noticed(GetParam(), victim);
}

// Not all that wait to be dialled by the victim probe it.
TEST(GlooFormingTest, ADeathBeforeConnectingReachesAllOfALargerGroup) {
  constexpr int kSize = 4 * PeerWatch::kProbes;
  for (const int victim : {0, kSize / 2, kSize - 1}) expect_death_is_noticed(kSize, victim);
}

TEST_P(GlooFormingTest, APeerThatStopsBeforeItConnectsIsNamedAtTheDeadline) {
  const int size = GetParam();
  const int victim = size - 1;
  bool named = false;
  const MeetingFolder folder;
  Processes p(size, [&](int rank, Report& report) {
    FatalRendezvous fatal(folder.path(), SIGSTOP);
    FileRendezvous sound(folder.path());
    auto device = *GlooDevice::open("127.0.0.1");
    Rendezvous* rendezvous = rank == victim ? static_cast<Rendezvous*>(&fatal) : &sound;
    GroupFailure failure;
    auto group = make_gloo_group({.device = device,
                                  .rendezvous = rendezvous,
                                  .rank = rank,
                                  .names = test_names(size),
                                  .timeout = seconds(2)},
                                 &failure);
    report.set(failure);
    report.finish(group.ok() ? "good" : group.error().message());
  });
  for (int r = 0; r < size; ++r) {
    if (r == victim) continue;
    ASSERT_TRUE(p.wait_done(r)) << r;
    EXPECT_THAT(p.report(r).message,
                AllOf(HasSubstr("rank " + std::to_string(victim) + " (worker-"),
                      HasSubstr("did not connect in time")));
    EXPECT_EQ(p.report(r).origin, victim) << r;
    named |= p.report(r).suspect == victim;
  }
  EXPECT_TRUE(named) << "the first to find out suspects it";
  p.signal(victim, SIGCONT);
  ASSERT_TRUE(p.wait_done(victim));
  EXPECT_THAT(p.report(victim).message, HasSubstr("cannot form a group"));
  EXPECT_EQ(p.report(victim).suspect, kNobody) << p.report(victim).message;
}

INSTANTIATE_TEST_SUITE_P(Sizes, GlooFormingTest, ::testing::Values(2, 4));

TEST(GlooFormingTest, APeerThatNeverComesIsNamed) {
  const MeetingFolder folder;
  Processes p(2, [&](int rank, Report& report) {
    auto group = join(folder, rank, 3, true, milliseconds(300));
    report.finish(group.ok() ? "good" : group.error().message());
  });
  for (int r = 0; r < 2; ++r) {
    ASSERT_TRUE(p.wait_done(r));
    EXPECT_THAT(p.report(r).message, HasSubstr("rank 2 of 3 did not come"));
  }
}

TEST(GlooFormingTest, ARankThatComesTwiceIsRefused) {
  for (const bool files : {false, true}) {
    const MeetingFolder folder;
    MemoryRendezvous memory;
    FileRendezvous file(folder.path());
    Rendezvous& rendezvous = files ? static_cast<Rendezvous&>(file) : memory;
    const auto deadline = [] { return steady_clock::now() + milliseconds(20); };
    EXPECT_THAT(rendezvous.exchange(0, 2, "a", deadline(), {}).error().message(),
                HasSubstr("rank 1 of 2 did not come"));
    EXPECT_THAT(rendezvous.exchange(0, 2, "b", deadline(), {}).error().message(),
                HasSubstr("rank 0"));
    EXPECT_FALSE(rendezvous.exchange(1, 3, "c", deadline(), {}).ok());
  }
}

TEST(GlooFormingTest, CanBeStoppedWhileItMeetsAndWhileItConnects) {
  auto device = *GlooDevice::open("127.0.0.1");
  for (const bool address_known : {false, true}) {
    MemoryRendezvous rendezvous;
    // A peer that gives an address (where somebody listens) and never connects.
    const Listener elsewhere = *listen_at(device->address(), 1);
    std::thread ghost;
    if (address_known) {
      ghost = std::thread([&] {
        (void)rendezvous.exchange(1, 2,
                                  "127.0.0.1 " + std::to_string(elsewhere.address.port()) + " 1",
                                  steady_clock::now() + kPatience, {});
      });
    }
    std::stop_source stop;
    std::thread stopper([&] {
      std::this_thread::sleep_for(milliseconds(50));
      stop.request_stop();
    });
    const auto before = steady_clock::now();
    auto group = make_gloo_group({.device = device,
                                  .rendezvous = &rendezvous,
                                  .rank = 0,
                                  .names = test_names(2),
                                  .timeout = kPatience,
                                  .stop = stop.get_token()});
    EXPECT_LT(steady_clock::now() - before, kSoon);
    ASSERT_FALSE(group.ok());
    EXPECT_THAT(group.error().message(), HasSubstr("stop"));
    stopper.join();
    if (ghost.joinable()) ghost.join();
  }
}

TEST(GlooDeviceTest, AnAddressThatIsNotHereIsRefusedInWords) {
  EXPECT_THAT(GlooDevice::open("192.0.2.1").error().message(), HasSubstr("192.0.2.1"));
  EXPECT_THAT(GlooDevice::open("no-such-host.invalid").error().message(),
              HasSubstr("no-such-host.invalid"));
}

}  // namespace
}  // namespace muster::comm
