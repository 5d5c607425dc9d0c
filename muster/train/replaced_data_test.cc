// Damaged data that is replaced (data.on_damage: replace): files are really damaged, behind the
// back of the job. Whatever computes, all workers and every resume agree on what is read instead.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/comm/local_group.h"
#include "muster/data/blocks/block_index.h"
#include "muster/data/blocks/replacements.h"
#include "muster/store/open.h"
#include "muster/store/store_testing.h"
#include "muster/train/jobs_testing.h"
#include "muster/train/membership/recovery.h"
#include "muster/train/step/lockstep.h"
#include "muster/train/trainer_testing.h"

namespace muster::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kLanes = 5;
constexpr int64_t kSteps = 60;
constexpr uint64_t kPoints = 4000;  // so a pass has 20 steps
const comm::OpOptions kOptions{.timeout = std::chrono::seconds(60)};

// Files with the points of jobs_testing.h, of about 46 blocks.
struct PointFiles {
  PointFiles() {
    const PointsDataset points(kPoints, ~uint64_t{0}, ~uint64_t{0});
    const std::string header = "a,b,c,d,class\n";
    std::string files[3] = {header, header, header};
    for (uint64_t i = 0; i < kPoints; ++i) {
      float x[4];
      int64_t label = 0;
      points.read(i, reinterpret_cast<std::byte*>(x), reinterpret_cast<std::byte*>(&label));
      const auto row =
          fmt::format("{:.9g},{:.9g},{:.9g},{:.9g},{}\n", x[0], x[1], x[2], x[3], label);
      files[i < kPoints / 3 ? 0 : 1] += row;
      if (i < 200) files[2] += row;
    }
    const char* const names[3] = {"train-0.csv", "train-1.csv", "test.csv"};
    for (size_t i = 0; i < 3; ++i) {
      std::ofstream(directory.path() + "/" + names[i], std::ios::binary) << files[i];
    }
  }
  const track::TempDirectory directory;
};

std::string job_of(const std::string& directory) {
  return fmt::format(R"(
name: points
model: {{ layers: [ linear: {{ out: 16 }}, batchnorm, relu, linear: {{ out: 2 }} ] }}
data:
  train: {{ format: csv, path: '{0}/train-*.csv', classes: 2 }}
  test: {{ format: csv, path: '{0}/test.csv', classes: 2 }}
  window: 4KiB
  block: 4KiB
  on_damage: replace
batch: 200
lanes: {1}
steps: {2}
optimizer: {{ kind: adam, lr: 0.01 }}
threads: 1
eval: {{ every: 10 steps }}
checkpoint: {{ every: 7 steps, keep: 2 }}
track: {{ every: 1 steps }}
)",
                     directory, kLanes, kSteps);
}

// Damages what it reads of a block, for one worker alone.
class DamagingStore final : public store::ForwardingStore {
 public:
  DamagingStore(store::Store& inner, std::string name, uint64_t offset)
      : ForwardingStore(inner), name_(std::move(name)), offset_(offset) {}
  Status read(const store::Object& object, uint64_t offset, std::span<std::byte> into) override {
    MUSTER_RETURN_IF_ERROR(ForwardingStore::read(object, offset, into));
    if (on && object.name == name_ && offset == offset_) into[0] ^= std::byte{1};
    return {};
  }

  std::atomic<bool> on = true;

 private:
  const std::string name_;
  const uint64_t offset_;
};

class ReplacedDataTest : private PointFiles, public TrainerTest {
 protected:
  ReplacedDataTest() : TrainerTest(job_of(directory.path()), kLanes) {
    registries_.places.indexes = directory.path() + "/index";
  }
  // The index is made and saved while the data is whole.
  void SetUp() override {
    const auto session = open();
    ASSERT_NE(session, nullptr);
    index_ = session->train_data().blocks();
    ASSERT_NE(index_, nullptr);
    ASSERT_GT(index_->blocks.size(), 40U);
  }

  std::unique_ptr<Session> open(const std::vector<std::string>& sets = {}) {
    return open_with(registries_, sets);
  }
  std::unique_ptr<Session> open_with(const Registries& registries,
                                     const std::vector<std::string>& sets = {}) {
    auto session = Session::open(make_job(job_, sets), registries);
    EXPECT_TRUE(session.ok()) << session.error().message();
    return session.ok() ? *std::move(session) : nullptr;
  }

  // A bit in the middle of the block; the second time it is as it was. As if the disk had done it:
  // the file is as old as before.
  void damage(uint64_t block) {
    const data::Block& it = index_->blocks[block];
    const std::string& path = index_->objects[it.object].name;
    const auto place = static_cast<std::streamoff>(it.offset + it.length / 2);
    const auto time = std::filesystem::last_write_time(path);
    {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(place);
      const auto byte = static_cast<char>(file.get() ^ 1);
      file.seekp(place);
      file.put(byte);
      ASSERT_TRUE(file.good()) << path;
    }
    std::filesystem::last_write_time(path, time);
  }
  // The blocks that a lane reads in a step of a run without damage, but for the first of all, from
  // which the schema is read.
  std::set<uint64_t> blocks_of(const Session& session, uint64_t step, int lane) const {
    const data::Slice slice =
        data::lane_slice(session.batches(), step, static_cast<uint64_t>(lane));
    std::vector<uint64_t> samples(slice.count);
    session.order().samples(slice, samples);
    std::set<uint64_t> blocks;
    for (const uint64_t sample : samples) blocks.insert(index_->block_of(sample));
    blocks.erase(0);
    return blocks;
  }
  // One that lane 0 reads in the first step.
  uint64_t early_block() { return *blocks_of(*open(), 0, 0).rbegin(); }
  std::shared_ptr<DamagingStore> damaging_store(uint64_t block) {
    const data::Block& it = index_->blocks[block];
    return std::make_shared<DamagingStore>(*files_store_, index_->objects[it.object].name,
                                           it.offset);
  }
  static std::vector<uint64_t> damaged_of(const Counters& counters) {
    const auto damaged = counters.replaced.damaged();
    return {damaged.begin(), damaged.end()};
  }

  static std::string summary_of(Session& session) {
    const Counters& counters = session.arena().counters();
    return fmt::format("{} {:a} {:016x} {} {}", session.arena().weights_hash().hex(),
                       counters.last.loss, counters.ledger, counters.replaced.samples,
                       fmt::join(counters.replaced.damaged(), ","));
  }
  static std::string finish(Session& session) {
    while (session.arena().counters().step < kSteps) {
      const auto report = session.step();
      EXPECT_TRUE(report.ok()) << report.error().message();
      if (!report.ok()) return "failed";
    }
    return summary_of(session);
  }
  std::string train(const std::vector<std::string>& sets = {}) { return finish(*open(sets)); }

  static std::vector<std::vector<int>> lanes_of(int workers) {
    std::vector<std::vector<int>> lanes(static_cast<size_t>(workers));
    for (int lane = 0; lane < kLanes; ++lane) {
      lanes[static_cast<size_t>(lane * 3 % kLanes % workers)].push_back(lane);
    }
    return lanes;
  }
  // A thread for each worker.
  static void together(int workers, const std::function<void(int w, comm::Group& group)>& body) {
    const auto hub =
        comm::LocalHub::create(std::vector<std::string>(static_cast<size_t>(workers), "w"));
    std::vector<std::jthread> threads;
    for (int w = 0; w < workers; ++w) {
      threads.emplace_back([&, w] {
        const auto group = hub->join(w);
        ASSERT_TRUE(group.ok()) << group.error().message();
        body(w, **group);
      });
    }
  }
  void expect_equal_on(int workers, const std::string& expected,
                       const std::vector<std::string>& sets = {}) {
    together(workers, [&](int w, comm::Group& group) {
      const auto session = open(sets);
      session->assign(lanes_of(workers), group, kOptions.timeout);
      EXPECT_EQ(finish(*session), expected) << "worker " << w << " of " << workers;
    });
  }

  const std::unique_ptr<store::Store> files_store_ = store::open_store();
  std::shared_ptr<const data::BlockIndex> index_;
};

TEST_F(ReplacedDataTest, WithoutDamageTheOptionChangesNothing) {
  EXPECT_EQ(train(), train({"data.on_damage=stop"}));
}

TEST_F(ReplacedDataTest, AnyNumberOfThreadsAndWorkersGivesTheSameBits) {
  const auto whole = train();
  damage(17);
  damage(30);
  const auto session = open();
  const auto expected = finish(*session);
  EXPECT_NE(expected, whole);
  // Every time that a sample of them was due, another one was used: three passes.
  const auto& replaced = session->arena().counters().replaced;
  EXPECT_EQ(replaced.count, 2U);
  EXPECT_EQ(replaced.attempts, 0);
  EXPECT_EQ(replaced.samples, 3 * (index_->blocks[17].count + index_->blocks[30].count));
  EXPECT_EQ(session->arena().counters().samples, 3 * kPoints);
  EXPECT_EQ(session->replaced_blocks(0).size(), 2U);
  EXPECT_THAT(session->replaced_blocks(1), ElementsAre(HasSubstr("/train-")));
  EXPECT_FALSE(session->take_damage().empty());
  EXPECT_TRUE(session->take_damage().empty());

  const track::TempDirectory cache;
  for (const std::vector<std::string>& sets :
       std::vector<std::vector<std::string>>{{"threads=3"},
                                             {"threads=2", "data.loader.threads=3"},
                                             {"data.loader.threads=0", "data.memory=4096"},
                                             {"data.loader.ahead=7", "data.requests=1"},
                                             {"data.cache=" + cache.path(), "data.memory=4096"}}) {
    EXPECT_EQ(train(sets), expected) << sets[0];
  }
  for (const int workers : {2, 4}) expect_equal_on(workers, expected);
  expect_equal_on(2, expected, {"threads=3", "data.loader.threads=0"});
}

// A lane that two workers compute, to compare them, is compared when it can be.
TEST_F(ReplacedDataTest, AuditsAccuseNobody) {
  for (const uint64_t block : {uint64_t{5}, uint64_t{17}, uint64_t{30}, uint64_t{40}}) {
    damage(block);
  }
  const auto expected = train();
  for (const int workers : {2, 3}) {
    expect_equal_on(workers, expected, {"audit.lanes=1", "audit.every=3"});
  }
}

TEST_F(ReplacedDataTest, FewBitsAndTheOrderFullToo) {
  damage(17);
  for (const std::vector<std::string>& sets : std::vector<std::vector<std::string>>{
           {"sync.bits=8", "sync.lane_groups=5"}, {"data.order=full", "data.window=64MiB"}}) {
    expect_equal_on(2, train(sets), sets);
  }
}

// Both are noted, in an order that does not depend on who found which; and the first attempt of a
// job, which only measures, is still to come after that.
TEST_F(ReplacedDataTest, TwoBlocksInTheFirstStep) {
  const uint64_t of_first = early_block();
  auto others = blocks_of(*open(), 0, 4);
  others.erase(of_first);
  ASSERT_FALSE(others.empty());
  const uint64_t of_last = *others.begin();
  damage(of_first);
  damage(of_last);
  const auto session = open();
  const auto report = session->step();
  ASSERT_TRUE(report.ok()) << report.error().message();
  const auto& counters = session->arena().counters();
  EXPECT_EQ(counters.step, 1);
  EXPECT_THAT(damaged_of(counters),
              ElementsAre(std::min(of_first, of_last), std::max(of_first, of_last)));
  EXPECT_EQ(counters.redone, 0U);
  EXPECT_EQ(counters.redo.attempt, 0);
  EXPECT_GT(counters.replaced.samples, 0U);
  const auto expected = finish(*session);
  for (const int workers : {2, 4}) expect_equal_on(workers, expected);
}

// What one worker finds, all replace, also those that could read it.
TEST_F(ReplacedDataTest, DamageThatOnlyOneWorkerSees) {
  const uint64_t block = early_block();
  Registries other = registries_;
  other.places.store = damaging_store(block);
  std::vector<std::string> results(2);
  together(2, [&](int w, comm::Group& group) {
    const auto session = open_with(w == 0 ? other : registries_);
    session->assign({{0, 1}, {2, 3, 4}}, group, kOptions.timeout);
    results[static_cast<size_t>(w)] = finish(*session);
  });
  EXPECT_EQ(results[0], results[1]);
  // As if all had seen it.
  damage(block);
  EXPECT_EQ(results[0], train());
}

// It finds damage, and is gone before the commit.
TEST_F(ReplacedDataTest, AWorkerThatDiesBeforeTheCommitHasChangedNothing) {
  damage(early_block());
  const auto expected = train();
  std::unique_ptr<Session> survivor;
  together(2, [&](int w, comm::Group& group) {
    auto session = open();
    session->assign({{0, 1}, {2, 3, 4}}, group, kOptions.timeout);
    auto& lockstep = dynamic_cast<Lockstep&>(session->strategy());
    ASSERT_TRUE(lockstep.compute().ok());
    if (w == 1) survivor = std::move(session);
  });
  ASSERT_NE(survivor, nullptr);
  EXPECT_EQ(survivor->arena().counters().replaced.count, 0U);
  together(1, [&](int, comm::Group& group) {
    survivor->assign({{0, 1, 2, 3, 4}}, group, kOptions.timeout);
    EXPECT_EQ(finish(*survivor), expected);
  });
}

// The commit that says what is damaged reached only one of two workers.
TEST_F(ReplacedDataTest, WhoMissedTheCommitRollsForward) {
  damage(early_block());
  const auto expected = train();
  struct Member {
    explicit Member(std::unique_ptr<Session> opened) : session(std::move(opened)) {}
    Status enter(comm::Group& group) {
      const auto restore = [this](uint64_t) -> Result<bool> {
        MUSTER_RETURN_IF_ERROR(session->reset());
        return true;
      };
      MUSTER_TRY(outcome, recovery.run(group, {}, restore, kOptions));
      session->assign({{0, 1, 2}, {3, 4}}, group, kOptions.timeout);
      return {};
    }
    std::unique_ptr<Session> session;
    Recovery recovery{session->strategy(), session->auditor(), kNoVitals};
    std::optional<Recovery::Outcome> outcome;
  };
  Member a(open());
  Member b(open());
  together(2, [&](int w, comm::Group& group) {
    Member& member = w == 0 ? a : b;
    ASSERT_TRUE(member.enter(group).ok());
    auto& lockstep = dynamic_cast<Lockstep&>(member.session->strategy());
    ASSERT_TRUE(lockstep.compute().ok());
    ASSERT_TRUE(lockstep.commit({}).ok());
    if (w != 0) return;
    const auto applied = lockstep.apply();
    ASSERT_TRUE(applied.ok()) << applied.error().message();
    EXPECT_FALSE(applied->has_value());  // the step is to be computed again
  });
  EXPECT_EQ(a.session->arena().counters().replaced.count, 1U);
  EXPECT_EQ(b.session->arena().counters().replaced.count, 0U);
  together(2, [&](int w, comm::Group& group) {
    Member& member = w == 0 ? b : a;
    ASSERT_TRUE(member.enter(group).ok());
    EXPECT_EQ(member.outcome->agreement.actions[0], roster::Action::kRollForward);
    EXPECT_EQ(member.outcome->agreement.actions[1], roster::Action::kGoOn);
    EXPECT_FALSE(member.outcome->rolled);
    EXPECT_EQ(member.session->arena().counters().replaced.count, 1U);
    EXPECT_EQ(finish(*member.session), expected);
  });
}

// ---- Whole runs

// The state has it: a resumed run replaces what was damaged once, though it was repaired meanwhile.
TEST_F(ReplacedDataTest, AResumedRunAgrees) {
  damage(17);
  damage(30);
  const auto alone = live("alone", "");
  ASSERT_TRUE(alone.summary) << alone.error;
  const auto first = live("run", "", {31, SIGINT});
  ASSERT_TRUE(first.summary) << first.error;
  EXPECT_EQ(first.summary->reason, EndReason::kSignal);
  EXPECT_EQ(first.summary->counters.replaced.count, 2U);
  damage(17);
  damage(30);
  const auto resumed = live("run", "");
  ASSERT_TRUE(resumed.summary) << resumed.error;
  EXPECT_EQ(resumed.summary->weights_hash, alone.summary->weights_hash);
  EXPECT_EQ(resumed.summary->counters.ledger, alone.summary->counters.ledger);
  EXPECT_EQ(resumed.summary->counters.replaced.samples,
            3 * (index_->blocks[17].count + index_->blocks[30].count));
  EXPECT_EQ(resumed.summary->test, alone.summary->test);
  const auto lines = records("run");
  EXPECT_EQ(lines, records("alone"));
  std::optional<uint64_t> told;
  for (const auto& line : lines) {
    if (line.contains("loss")) told = line.value("replaced", uint64_t{0});
  }
  EXPECT_EQ(told, resumed.summary->counters.replaced.samples);
}

// From before the damage was found: it is found again, in the same step.
TEST_F(ReplacedDataTest, ARunThatIsResumedEarlyFindsItAgain) {
  uint64_t late = 0;  // a block that the first steps do not read
  std::set<uint64_t> early;
  const auto session = open();
  for (uint64_t step = 0; step < 4; ++step) {
    for (int lane = 0; lane < kLanes; ++lane) early.merge(blocks_of(*session, step, lane));
  }
  for (uint64_t block = 1; block < index_->blocks.size(); ++block) {
    if (!early.contains(block)) late = block;
  }
  ASSERT_GT(late, 0U);
  damage(late);
  const auto first = live("run", "", {2, SIGINT});
  ASSERT_TRUE(first.summary) << first.error;
  EXPECT_EQ(first.summary->counters.replaced.count, 0U);
  const auto resumed = live("run", "");
  ASSERT_TRUE(resumed.summary) << resumed.error;
  EXPECT_THAT(damaged_of(resumed.summary->counters), ElementsAre(late));
  expect_as_alone("run", resumed);
}

TEST_F(ReplacedDataTest, WorkersThatLeaveAgree) {
  damage(9);
  damage(30);
  const auto lives = TrainerTest::together("run", {{}, {23, SIGTERM}, {}});
  ASSERT_TRUE(lives[1].summary) << lives[1].error;
  EXPECT_EQ(lives[1].summary->reason, EndReason::kLeft);
  ASSERT_TRUE(lives[2].summary) << lives[2].error;
  EXPECT_EQ(lives[2].summary->counters.replaced.count, 2U);
  expect_as_alone("run", lives[2]);
}

TEST_F(ReplacedDataTest, TooMuchDamageStopsTheJobAndNamesFiles) {
  for (uint64_t block = 1; block < index_->blocks.size(); ++block) damage(block);
  const uint64_t most = data::Replacements::most_of(index_->blocks.size());
  const auto expect_stopped = [&](const Life& life) {
    EXPECT_FALSE(life.summary);
    EXPECT_THAT(life.error, HasSubstr("blocks are damaged, among them block "));
    EXPECT_THAT(life.error, HasSubstr("/train-"));
    EXPECT_THAT(life.error, HasSubstr(fmt::format("at most {}", most)));
  };
  expect_stopped(live("run", ""));
  for (const auto& life : TrainerTest::together("two", {{}, {}})) expect_stopped(life);
}

TEST_F(ReplacedDataTest, WithoutTheOptionTheJobStops) {
  damage(17);
  const auto life = live("run", "", {}, {"data.on_damage=stop"});
  EXPECT_FALSE(life.summary);
  EXPECT_THAT(life.error, HasSubstr("block 17 ('"));
  EXPECT_THAT(life.error, HasSubstr("is damaged"));
  // And can be resumed with it.
  const auto resumed = live("run", "");
  ASSERT_TRUE(resumed.summary) << resumed.error;
  EXPECT_EQ(resumed.summary->counters.replaced.count, 1U);
  expect_as_alone("run", resumed);
}

// Damage that comes while the job runs is replaced; a file that was changed is not damage.
TEST_F(ReplacedDataTest, InTheMiddleOfARun) {
  const auto store = damaging_store(17);
  store->on = false;
  registries_.places.store = store;
  at_step_ = [&](int64_t step) {
    if (step >= 20) store->on = true;
  };
  // Blocks do not stay in memory.
  const auto life = live("run", "", {}, {"data.memory=4096"});
  ASSERT_TRUE(life.summary) << life.error;
  EXPECT_THAT(damaged_of(life.summary->counters), ElementsAre(17));
  EXPECT_LE(life.summary->counters.replaced.samples, 2 * index_->blocks[17].count);

  store->on = false;
  bool done = false;
  at_step_ = [&](int64_t step) {
    if (step < 20 || std::exchange(done, true)) return;
    for (const auto& object : index_->objects) {
      const auto time = std::filesystem::last_write_time(object.name);
      std::filesystem::last_write_time(object.name, time + std::chrono::seconds(1));
    }
  };
  const auto changed = live("changed", "", {}, {"data.memory=4096"});
  EXPECT_FALSE(changed.summary);
  EXPECT_THAT(changed.error, HasSubstr("was changed since"));
}

TEST_F(ReplacedDataTest, DataInMemoryHasNoBlocksToReplace) {
  const auto session = Session::open(
      make_job("model: { layers: [ linear: { out: 2 } ] }\ndata: { train: { format: points }, "
               "on_damage: replace }\nsteps: 1\n"),
      registries_);
  ASSERT_FALSE(session.ok());
  EXPECT_EQ(session.error().kind(), ErrorKind::kJob);
  EXPECT_THAT(session.error().message(), HasSubstr("is for data that is read by blocks"));
}

}  // namespace
}  // namespace muster::train
