// Audits in groups of real workers, within this process: a bit of a state is flipped, a gradient is
// wrong, and all members must notice and name the right one.
#include "muster/train/audit/auditor.h"

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/random.h"
#include "muster/comm/local_group.h"
#include "muster/train/jobs_testing.h"
#include "muster/train/membership/recovery.h"

namespace muster::train {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kJob = R"(
model: { layers: [ { linear: { out: 50 } }, relu, { linear: { out: 2 } } ] }
data: { train: { format: points, args: { size: 300 } } }
batch: 24
lanes: 6
steps: 400
threads: 1
optimizer: { kind: adam, lr: 0.01 }
audit: { every: 10, lanes: 12 }
)";
constexpr size_t kLanes = 6;
const comm::OpOptions kOptions{.timeout = std::chrono::seconds(20)};

// The members of one group, each on a thread of its own.
class AuditorTest : public testing::Test {
 protected:
  struct Worker {
    std::unique_ptr<Session> session;
    std::unique_ptr<comm::Group> group;
    Result<StepReport> last = StepReport{};
    Result<Verdict> verdict = Verdict{};
    Arena& arena() const { return session->arena(); }
  };

  void start(size_t workers, const std::vector<std::string>& more = {}) {
    std::vector<std::string> names;
    for (size_t i = 0; i < workers; ++i) names.push_back(fmt::format("w{}", i));
    hub_ = comm::LocalHub::create(names);
    workers_.resize(workers);
    std::vector<std::vector<int>> lanes(workers);
    for (size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane % workers].push_back(static_cast<int>(lane));
    }
    together([&](Worker& worker, int rank) {
      worker.session = open_session(kJob, more);
      worker.group = hub_->join(rank).value();
      worker.session->assign(lanes, *worker.group, kOptions.timeout);
    });
  }

  void together(const std::function<void(Worker&, int rank)>& body) {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < workers_.size(); ++i) {
      threads.emplace_back([&, i] { body(workers_[i], static_cast<int>(i)); });
    }
    for (auto& thread : threads) thread.join();
  }

  // False: an audit found something.
  bool run(int64_t steps) {
    together([&](Worker& worker, int) {
      for (int64_t i = 0; i < steps && worker.last.ok(); ++i) worker.last = worker.session->step();
    });
    bool ok = true;
    for (const auto& worker : workers_) {
      EXPECT_EQ(worker.last.ok(), workers_[0].last.ok());
      EXPECT_NE(worker.last.ok(), worker.session->auditor().has_finding())
          << (worker.last.ok() ? "" : worker.last.error().message());
      ok &= worker.last.ok();
    }
    return ok;
  }

  // All come to the same verdict.
  Verdict judge() {
    together([&](Worker& worker, int) {
      worker.verdict = worker.session->auditor().judge(
          [&](int lane) { return worker.session->strategy().recompute(lane); });
      worker.last = StepReport{};
    });
    for (const auto& worker : workers_) {
      EXPECT_TRUE(worker.verdict.ok());
      EXPECT_EQ(worker.verdict->faulty, workers_[0].verdict->faulty);
      EXPECT_EQ(worker.verdict->trusted, workers_[0].verdict->trusted);
    }
    return *workers_[0].verdict;
  }

  // Where in the arena's bytes.
  static size_t counters_at(Arena& arena) {
    return static_cast<size_t>(reinterpret_cast<std::byte*>(&arena.counters()) -
                               arena.bytes().data());
  }

  std::shared_ptr<comm::LocalHub> hub_;
  std::vector<Worker> workers_;
};

TEST_F(AuditorTest, EqualWorkersAreNotAccused) {
  for (const size_t workers : {1U, 2U, 3U, 6U}) {
    start(workers);
    EXPECT_TRUE(run(60));
    const int64_t trusted = workers_[0].session->auditor().trusted();
    // All parts of the state were compared in the last 10 steps, lanes in the last 12 at most.
    // What one worker computes alone is taken for right.
    EXPECT_LE(trusted, workers == 1 ? 59 : 50);
    EXPECT_GE(trusted, workers == 1 ? 59 : 48);
  }
}

// With rounds the whole state is compared in each of them, so only one round is lost.
TEST_F(AuditorTest, AFlippedBitIsFoundInTheNextRound) {
  start(3, {"sync.strategy=diloco", "sync.replicas=6", "sync.period=5"});
  EXPECT_TRUE(run(4));
  workers_[1].arena().bytes()[17] ^= std::byte{4};
  EXPECT_FALSE(run(1));
  const auto verdict = judge();
  EXPECT_THAT(verdict.faulty, ElementsAre(1));
  EXPECT_EQ(verdict.trusted, 19);  // so the state after 15 steps is
}

// Any bit of the state, also of the optimizer's and the scales.
TEST_F(AuditorTest, AFlippedBitIsFoundWithinASweep) {
  RandomStream random(7, Purpose::kUser);
  start(3);
  EXPECT_TRUE(run(21));
  for (int i = 0; i < 40; ++i) {
    const auto victim = static_cast<size_t>(random.below(3));
    const auto bytes = workers_[victim].arena().bytes();
    // Which part is compared when depends on the step alone: the others go on in step.
    const std::vector<std::byte> before(bytes.begin(), bytes.end());
    // Damage to the counters a worker notices by itself (below).
    const size_t bit = random.below(8 * counters_at(workers_[victim].arena()));
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    const int64_t step = workers_[(victim + 1) % 3].arena().counters().step;
    EXPECT_FALSE(run(10)) << "bit " << bit << " of " << 8 * bytes.size();
    const auto verdict = judge();
    EXPECT_THAT(verdict.faulty, ElementsAre(static_cast<int>(victim))) << verdict.what;
    EXPECT_LE(verdict.trusted, step);
    // All go on with the state of a healthy one, as after a rollback.
    const auto good = workers_[(victim + 1) % 3].arena().bytes();
    for (auto& worker : workers_) {
      std::ranges::copy(good, worker.arena().bytes().begin());
      worker.arena().seal_counters();
      worker.session->strategy().forget();
    }
    EXPECT_TRUE(run(1));
  }
}

// Two that differ: it is known that one is wrong, and not which.
TEST_F(AuditorTest, OfTwoNobodyIsAccused) {
  start(2);
  EXPECT_TRUE(run(12));
  workers_[1].arena().weights()[5] += 1;
  EXPECT_FALSE(run(10));
  EXPECT_THAT(judge().faulty, IsEmpty());
}

// States are not compared here, only lanes: a worker with another weight computes other gradients.
TEST_F(AuditorTest, AWrongGradientIsFoundAndWhoseItIs) {
  for (const size_t workers : {3U, 4U}) {
    for (size_t victim = 0; victim < workers; ++victim) {
      start(workers, {"audit.every=0"});
      EXPECT_TRUE(run(9));
      workers_[victim].arena().weights()[5] += 1;
      EXPECT_FALSE(run(9));  // lanes are compared every 6 or 8 steps
      const auto verdict = judge();
      EXPECT_THAT(verdict.faulty, ElementsAre(static_cast<int>(victim))) << verdict.what;
      EXPECT_LE(verdict.trusted, 9);
    }
  }
}

TEST_F(AuditorTest, OfTwoThatComputeDifferentlyNobodyIsAccused) {
  start(2, {"audit.every=0"});
  EXPECT_TRUE(run(9));
  workers_[0].arena().weights()[5] += 1;
  EXPECT_FALSE(run(9));
  EXPECT_THAT(judge().faulty, IsEmpty());
}

TEST_F(AuditorTest, DamagedCountersAreNotUsed) {
  start(1);
  EXPECT_TRUE(run(3));
  auto& worker = workers_[0];
  const auto bytes = worker.arena().bytes();
  const size_t first = 8 * counters_at(worker.arena());
  for (size_t bit = first; bit < first + 8 * sizeof(Counters); bit += 37) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(worker.session->step().ok());
    EXPECT_TRUE(worker.session->auditor().own_damage());
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_TRUE(worker.session->step().ok());
  }
}

TEST_F(AuditorTest, WholeStatesAreCompared) {
  start(3);
  EXPECT_TRUE(run(5));
  const auto compare = [&] {
    std::vector<std::optional<Verdict>> verdicts(3);
    together([&](Worker& worker, int rank) {
      auto verdict = worker.session->auditor().compare_states(*worker.group, kOptions);
      ASSERT_TRUE(verdict.ok());
      verdicts[static_cast<size_t>(rank)] = *std::move(verdict);
    });
    return verdicts[0];
  };
  EXPECT_FALSE(compare());
  workers_[2].arena().bytes()[100] ^= std::byte{16};
  const auto verdict = compare();
  ASSERT_TRUE(verdict);
  EXPECT_THAT(verdict->faulty, ElementsAre(2));
  EXPECT_EQ(verdict->trusted, 5);  // the comparison before
}

TEST_F(AuditorTest, OfWorkersThatMayRoundDifferentlyOnlyStatesAreCompared) {
  start(3, {"numerics=tolerant", "audit.every=0"});
  EXPECT_TRUE(run(5));
  const float weight = std::exchange(workers_[2].arena().weights()[0], 0.5F);
  EXPECT_TRUE(run(30));  // its lanes have other gradients
  start(3, {"numerics=tolerant"});
  EXPECT_TRUE(run(5));
  workers_[2].arena().weights()[0] = weight + 1;
  EXPECT_FALSE(run(30));
  EXPECT_THAT(judge().faulty, ElementsAre(2));
}

}  // namespace
}  // namespace muster::train
