// Membership: a real coordinator, real groups over loopback, a thread for each worker. Workers
// come, go and break off at random moments; the bits stay those of one worker alone.
#include "muster/train/membership/membership.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "muster/roster/coordinator.h"
#include "muster/train/jobs_testing.h"

namespace muster::train {
namespace {

const char* const kJob = R"(
name: crew
model: { layers: [ { linear: { out: 50 } }, relu, { linear: { out: 2 } } ] }
data: { train: { format: points, args: { size: 300 } } }
batch: 24
lanes: 6
steps: 40
threads: 1
optimizer: { kind: adam, lr: 0.01, clip: { norm: 1.0 } }
)";
constexpr int64_t kSteps = 40;

std::string undisturbed() {
  const auto session = open_session(kJob);
  for (int64_t i = 0; i < kSteps; ++i) EXPECT_TRUE(session->step().ok());
  return session->arena().weights_hash().hex();
}

class MembershipTest : public testing::Test {
 protected:
  void start(int expected) {
    roster::CoordinatorOptions options;
    options.roster.job = "crew";
    options.roster.lanes = 6;
    options.roster.expected = expected;
    options.roster.term = 1;
    auto coordinator = roster::Coordinator::start(std::move(options), clock_);
    ASSERT_TRUE(coordinator.ok()) << coordinator.error().message();
    coordinator_ = *std::move(coordinator);
  }

  struct Life {
    std::string hash;
    int entries = 0;
    bool took_over = false;  // the state of the others
    bool released = false;
  };

  // A worker from joining to the end. It breaks off after `dies_after` steps (its process is gone:
  // nothing is said to anybody), or asks to leave after `leaves_after`.
  Life live(const std::string& id, int64_t dies_after = -1, int64_t leaves_after = -1) {
    Life life;
    const auto session = open_session(kJob);
    MembershipOptions options;
    options.coordinators = {coordinator_->address()};
    options.job = "crew";
    options.id = id;
    auto joined = Membership::join(*session, options, clock_, log_);
    EXPECT_TRUE(joined.ok()) << joined.error().message();
    if (!joined.ok()) return life;
    Membership& membership = **joined;
    const auto& counters = session->arena().counters();
    bool in = false;
    for (int64_t steps = 0; !in || counters.step < kSteps;) {
      if (!in) {
        const auto entry = membership.enter(
            {.restorable = [](const roster::Rollback&, bool) { return Recovery::Restorable{}; },
             .restore = [&](uint64_t) -> Result<bool> {
               MUSTER_RETURN_IF_ERROR(session->reset());
               return true;
             },
             .give_up = {},
             .roll_back = {}});
        EXPECT_TRUE(entry.ok()) << entry.error().message();
        if (!entry.ok()) return life;
        life.released = entry->how == Membership::Entry::How::kReleased;
        if (life.released) return life;
        ++life.entries;
        life.took_over |= entry->other_state;
        in = true;
        continue;
      }
      if (steps == dies_after) return life;
      if (steps == leaves_after) membership.leave();
      const auto report =
          session->step([&] { return CommitFlags{.newer_roster = membership.roster_byte()}; });
      if (report.ok()) {
        ++steps;
        committed_ = std::max(committed_.load(), counters.step);
        in = !membership.committed(session->strategy().agreed_flags().newer_roster);
      } else {
        EXPECT_TRUE(membership.lost(report.error())) << report.error().message();
        in = false;
      }
    }
    membership.finished();
    life.hash = session->arena().weights_hash().hex();
    return life;
  }

  const SystemClock clock_;
  Log log_;
  std::unique_ptr<roster::Coordinator> coordinator_;
  std::atomic<int64_t> committed_{0};
};

TEST_F(MembershipTest, SeveralWorkersGiveTheBitsOfOne) {
  start(3);
  std::vector<Life> lives(3);
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] { lives[i] = live(fmt::format("w{}", i)); });
    }
  }
  for (const auto& life : lives) {
    EXPECT_EQ(life.hash, undisturbed());
    EXPECT_EQ(life.entries, 1);
  }
}

TEST_F(MembershipTest, WhenOneBreaksOffTheOthersGoOn) {
  start(3);
  std::vector<Life> lives(3);
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] { lives[i] = live(fmt::format("w{}", i), i == 1 ? 10 : -1); });
    }
  }
  EXPECT_EQ(lives[0].hash, undisturbed());
  EXPECT_EQ(lives[2].hash, undisturbed());
  EXPECT_EQ(lives[1].hash, "");
  EXPECT_GE(lives[0].entries, 2);
}

TEST_F(MembershipTest, OneLeavesAndAnotherJoinsWithoutARedo) {
  start(2);
  std::vector<Life> lives(3);
  {
    std::vector<std::jthread> threads;
    threads.emplace_back([&] { lives[0] = live("w0"); });
    threads.emplace_back([&] { lives[1] = live("w1", -1, 10); });
    threads.emplace_back([&] {
      while (committed_ < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      lives[2] = live("w2");
    });
  }
  EXPECT_EQ(lives[0].hash, undisturbed());
  EXPECT_TRUE(lives[1].released);
  if (!lives[2].hash.empty()) {
    EXPECT_EQ(lives[2].hash, undisturbed());
    EXPECT_TRUE(lives[2].took_over);
  }
}

}  // namespace
}  // namespace muster::train
