// Groups break at every moment of a step; whoever is left forms another one and goes on. In the end
// the bits must be those of a run in which nothing happened.
#include "muster/train/membership/recovery.h"

#include <functional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "muster/base/random.h"
#include "muster/comm/local_group.h"
#include "muster/sync/recipe.h"
#include "muster/train/jobs_testing.h"
#include "muster/train/step/lockstep.h"

namespace muster::train {
namespace {

using roster::Action;

const char* const kJob = R"(
model: { layers: [ { linear: { out: 50 } }, relu, { linear: { out: 2 } } ] }
data: { train: { format: points, args: { size: 300 } } }
batch: 24
lanes: 6
steps: 12
threads: 1
optimizer: { kind: adam, lr: 0.01, clip: { norm: 1.0 } }
)";
const comm::OpOptions kOptions{.timeout = std::chrono::seconds(20)};

// A worker: its state outlives groups.
struct Worker {
  explicit Worker(const std::vector<std::string>& sets = {}) : session(open_session(kJob, sets)) {}

  std::unique_ptr<Session> session;
  Recovery recovery{session->strategy(), session->auditor(), kNoVitals};
  std::optional<Recovery::Outcome> outcome;

  Lockstep& lockstep() const { return static_cast<Lockstep&>(session->strategy()); }
  Status enter(comm::Group& group) {
    const auto restore = [&](uint64_t) -> Result<bool> {
      MUSTER_RETURN_IF_ERROR(session->reset());
      return true;
    };
    MUSTER_TRY(outcome, recovery.run(group, {}, restore, kOptions));
    std::vector<std::vector<int>> units(static_cast<size_t>(group.size()));
    for (size_t unit = 0; unit < static_cast<size_t>(sync::units_of(session->job())); ++unit) {
      units[unit % units.size()].push_back(static_cast<int>(unit));
    }
    session->assign(units, group, kOptions.timeout);
    return {};
  }
  Action action(int rank) const { return outcome->agreement.actions[static_cast<size_t>(rank)]; }
  std::string hash() const { return session->arena().weights_hash().hex(); }
};

// Runs body(worker, group) on a thread for each worker, in a group of their own.
void together(const std::vector<Worker*>& workers,
              const std::function<void(Worker&, comm::Group&)>& body) {
  std::vector<std::string> names;
  for (size_t i = 0; i < workers.size(); ++i) names.push_back(fmt::format("w{}", i));
  const auto hub = comm::LocalHub::create(names);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < workers.size(); ++i) {
    threads.emplace_back([&, i] {
      auto group = hub->join(static_cast<int>(i));
      ASSERT_TRUE(group.ok());
      body(*workers[i], **group);
    });
  }
  for (auto& thread : threads) thread.join();
}

void steps(Worker& worker, int64_t until) {
  while (worker.session->arena().counters().step < until) {
    const auto report = worker.session->step();
    ASSERT_TRUE(report.ok()) << report.error().message();
  }
}

std::string undisturbed(const std::vector<std::string>& sets = {}) {
  Worker alone(sets);
  steps(alone, 12);
  return alone.hash();
}

TEST(Recovery, WhoMissedACommitButHasTheSumsRollsForward) {
  Worker a, b, c;
  together({&a, &b, &c}, [&](Worker& worker, comm::Group& group) {
    ASSERT_TRUE(worker.enter(group).ok());
    EXPECT_EQ(worker.action(group.rank()), Action::kRestore);
    steps(worker, 4);
    auto& lockstep = worker.lockstep();
    ASSERT_TRUE(lockstep.compute().ok());
    ASSERT_TRUE(lockstep.commit({}).ok());
    // The message of the commit reaches only the first.
    if (group.rank() == 0) {
      ASSERT_TRUE(lockstep.apply().ok());
    }
  });
  EXPECT_EQ(a.session->arena().counters().step, 5);
  EXPECT_EQ(b.session->arena().counters().step, 4);
  together({&b, &a}, [&](Worker& worker, comm::Group& group) {  // and c is gone
    ASSERT_TRUE(worker.enter(group).ok());
    EXPECT_EQ(worker.action(0), Action::kRollForward);
    EXPECT_EQ(worker.action(1), Action::kGoOn);
    EXPECT_EQ(worker.outcome->rolled, group.rank() == 0);
    steps(worker, 12);
  });
  EXPECT_EQ(a.hash(), undisturbed());
  EXPECT_EQ(b.hash(), undisturbed());
}

TEST(Recovery, IfNobodySawTheCommitAllDoTheStepAgain) {
  Worker a, b, c;
  together({&a, &b, &c}, [&](Worker& worker, comm::Group& group) {
    ASSERT_TRUE(worker.enter(group).ok());
    steps(worker, 4);
    ASSERT_TRUE(worker.lockstep().compute().ok());
    ASSERT_TRUE(worker.lockstep().commit({}).ok());
    // The only one that applies it dies.
    if (&worker == &c) {
      ASSERT_TRUE(worker.lockstep().apply().ok());
    }
  });
  together({&a, &b}, [&](Worker& worker, comm::Group& group) {
    ASSERT_TRUE(worker.enter(group).ok());
    EXPECT_EQ(worker.action(group.rank()), Action::kGoOn);
    EXPECT_EQ(worker.outcome->agreement.position.step, 4U);
    steps(worker, 12);
  });
  EXPECT_EQ(a.hash(), undisturbed());
  EXPECT_EQ(b.hash(), undisturbed());
}

// The second one has entered, was given up, and has left before the first one, which was suspended,
// looks for checkpoints and finds one of the group that has replaced theirs.
TEST(Recovery, OneThatOthersHaveLeftLoadsNothing) {
  Worker a, b;
  bool loaded = false;
  together({&a, &b}, [&](Worker& worker, comm::Group& group) {
    if (group.rank() == 1) {
      std::vector<char> reports(2 * roster::StateReport::kBytes);
      const auto mine = roster::StateReport{}.encode();
      std::ranges::copy(mine, reports.begin() + roster::StateReport::kBytes);
      ASSERT_TRUE(group.allgather(std::span(reports), kOptions).ok());
      group.abort("has left");
      return;
    }
    const auto restore = [&](uint64_t) -> Result<bool> {
      loaded = true;
      return true;
    };
    const Recovery::Restorable newer{.step = 8, .rollback = {}};
    EXPECT_FALSE(worker.recovery.run(group, newer, restore, kOptions).ok());
  });
  EXPECT_FALSE(loaded);
}

TEST(Recovery, AJoinerTakesOverTheState) {
  Worker a, b, late;
  together({&a, &b}, [&](Worker& worker, comm::Group& group) {
    ASSERT_TRUE(worker.enter(group).ok());
    steps(worker, 5);
  });
  together({&a, &late, &b}, [&](Worker& worker, comm::Group& group) {
    ASSERT_TRUE(worker.enter(group).ok());
    EXPECT_EQ(worker.action(1), Action::kReceive);
    EXPECT_EQ(worker.outcome->received,
              &worker == &late ? late.session->arena().bytes().size() : 0);
    steps(worker, 12);
  });
  EXPECT_EQ(late.hash(), undisturbed());
  EXPECT_EQ(a.hash(), undisturbed());
}

TEST(Recovery, OneThatWasAwayForLongTakesOverTheState) {
  Worker a, b;
  together({&a, &b}, [&](Worker& worker, comm::Group& group) {
    ASSERT_TRUE(worker.enter(group).ok());
    steps(worker, 3);
  });
  together({&a}, [&](Worker& worker, comm::Group& group) {
    ASSERT_TRUE(worker.enter(group).ok());
    steps(worker, 8);
  });
  together({&b, &a}, [&](Worker& worker, comm::Group& group) {
    ASSERT_TRUE(worker.enter(group).ok());
    EXPECT_EQ(worker.action(0), Action::kReceive);
    steps(worker, 12);
  });
  EXPECT_EQ(b.hash(), undisturbed());
}

// Random: in each round some of four workers take part, one of them aborts the group at a moment
// that it draws, and what was under way fails wherever it was.
void break_groups(uint64_t seed, const std::vector<std::string>& sets) {
  const std::string expected = undisturbed(sets);
  RandomStream random(seed, Purpose::kUser);
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < 4; ++i) workers.push_back(std::make_unique<Worker>(sets));
  const auto done = [&] {
    return std::ranges::any_of(workers, [](const auto& w) {
      return w->recovery.has_state() && w->session->arena().counters().step == 12;
    });
  };
  for (int round = 0; round < 200 && !done(); ++round) {
    std::vector<Worker*> present;
    for (auto& worker : workers) {
      if (random.below(4) == 0) continue;
      if (random.below(8) == 0)
        worker = std::make_unique<Worker>(sets);  // died, and was started again
      present.push_back(worker.get());
    }
    // Somebody with the state should stay, or the job begins anew: right, but it takes long.
    const auto has_state = [](const auto& w) { return w->recovery.has_state(); };
    if (present.empty()) continue;
    if (std::ranges::any_of(workers, has_state) && std::ranges::none_of(present, has_state))
      continue;
    const auto culprit = random.below(present.size());
    // Longer and longer, so that on a busy machine too they get to the end.
    const auto patience = random.below(6000) * static_cast<uint64_t>(1 + round / 8);
    together(present, [&](Worker& worker, comm::Group& group) {
      std::thread fault;
      if (static_cast<uint64_t>(group.rank()) == culprit) {
        fault = std::thread([&] {
          std::this_thread::sleep_for(std::chrono::microseconds(patience));
          group.abort("the test says so");
        });
      }
      if (worker.enter(group).ok()) {
        while (worker.session->arena().counters().step < 12 && worker.session->step().ok()) {
        }
      }
      if (fault.joinable()) fault.join();
    });
  }
  ASSERT_TRUE(done()) << "no worker came to the end in 200 rounds";
  for (const auto& worker : workers) {
    const bool ended =
        worker->recovery.has_state() && worker->session->arena().counters().step == 12;
    if (ended) {
      EXPECT_EQ(worker->hash(), expected);
    }
  }
}

class RecoveryAtRandom : public testing::TestWithParam<uint64_t> {};

TEST_P(RecoveryAtRandom, GivesTheSameBits) { break_groups(GetParam(), {}); }

INSTANTIATE_TEST_SUITE_P(Seeds, RecoveryAtRandom, testing::Range<uint64_t>(0, 20));

class RecoveryOfStrategies
    : public testing::TestWithParam<std::tuple<std::string, std::vector<std::string>>> {};

TEST_P(RecoveryOfStrategies, GivesTheSameBits) {
  auto sets = std::get<1>(GetParam());
  sets.emplace_back("sync.replicas=3");
  for (const uint64_t seed : {0, 1, 2, 3}) break_groups(seed, sets);
}

INSTANTIATE_TEST_SUITE_P(
    Rows, RecoveryOfStrategies,
    testing::Values(
        std::tuple("diloco", std::vector<std::string>{"sync.strategy=diloco", "sync.period=2",
                                                      "sync.merge=radial"}),
        std::tuple("muloco",
                   std::vector<std::string>{"sync.strategy=muloco", "sync.period=2",
                                            "optimizer.kind=muon", "optimizer.momentum=0.9"}),
        std::tuple("desloc", std::vector<std::string>{"sync.strategy=desloc", "sync.period=1",
                                                      "sync.rounds=3"}),
        std::tuple("sparta", std::vector<std::string>{"sync.strategy=sparta", "sync.period=1",
                                                      "sync.rounds=3"}),
        std::tuple("sparseloco", std::vector<std::string>{"sync.strategy=sparseloco",
                                                          "sync.period=1", "sync.rounds=3"}),
        std::tuple("lockstep_last", std::vector<std::string>{"sync.strategy=local-then-lockstep",
                                                             "sync.period=2", "sync.local=0.5"})),
    [](const auto& info) { return std::get<0>(info.param); });

}  // namespace
}  // namespace muster::train
