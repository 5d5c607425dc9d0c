#include "muster/copy/copy_writer.h"

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/copy/copy_testing.h"
#include "muster/track/run_directory.h"

namespace muster::copy {
namespace {

using testing::HasSubstr;
using Outcome = CopyWriter::Outcome;

constexpr size_t kFilesOfCheckpoint = 4;  // model, state, meta, manifest
constexpr size_t kOthers = 3;             // latest.json, job.yaml, metrics.jsonl

// The claim and what follows are expected to succeed.
#define EXPECT_DONE(...)                                      \
  do {                                                        \
    const auto outcome_ = (__VA_ARGS__);                      \
    ASSERT_TRUE(outcome_.ok()) << outcome_.error().message(); \
    EXPECT_EQ(*outcome_, Outcome::kDone);                     \
  } while (false)
#define EXPECT_TAKEN_OVER(...)                                \
  do {                                                        \
    const auto outcome_ = (__VA_ARGS__);                      \
    ASSERT_TRUE(outcome_.ok()) << outcome_.error().message(); \
    EXPECT_EQ(*outcome_, Outcome::kTakenOver);                \
  } while (false)

class CopyWriterTest : public CopyTest {};
INSTANTIATE_TEST_SUITE_P(In, CopyWriterTest, testing::Values("file", "minio"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(CopyWriterTest, ARunIsFetchedAsItWasSent) {
  auto run = make_run("run");
  auto copy = writer(run);
  EXPECT_DONE(copy.claim(0, 0));
  EXPECT_DONE(copy.send());  // the job alone
  EXPECT_EQ(fetched_step("early"), -1);
  run.write(100);
  EXPECT_DONE(copy.send());
  run.write(200, 0, /*best=*/true);
  run.write(300);
  EXPECT_DONE(copy.send());

  EXPECT_EQ(fetched_step("there"), 300);
  auto there = make_run("there");
  EXPECT_EQ(there.text("job.yaml"), "muster: 1\n");
  EXPECT_EQ(there.text("metrics.jsonl"), run.text("metrics.jsonl"));
  const auto best = there.store().load_best();
  ASSERT_TRUE(best.ok() && *best);
  EXPECT_EQ((*best)->step, 200);
  EXPECT_THAT(there.store().load(100).error().message(), HasSubstr("there is no snapshot"));
}

TEST_P(CopyWriterTest, TheCopyKeepsWhatTheRunKeeps) {
  auto run = make_run("run", /*keep=*/2);
  auto copy = writer(run);
  EXPECT_DONE(copy.claim(0, 0));
  for (int64_t step = 100; step <= 600; step += 100) {
    run.write(step, 0, /*best=*/step == 200);
    EXPECT_DONE(copy.send());
  }
  EXPECT_DONE(copy.send());  // nothing new
  EXPECT_EQ(objects(), 3 * kFilesOfCheckpoint + kOthers);
  // A process that continues from what it fetched does not take away what it has not.
  EXPECT_EQ(fetched_step("there"), 600);
  auto there = make_run("there", 2);
  auto next = writer(there);
  EXPECT_DONE(next.claim(0, 600));
  EXPECT_DONE(next.send());
  EXPECT_EQ(objects(), 3 * kFilesOfCheckpoint + kOthers);
  there.write(700);
  EXPECT_DONE(next.send());
  EXPECT_EQ(objects(), 3 * kFilesOfCheckpoint + kOthers);
  EXPECT_EQ(fetched_step("third"), 700);
  EXPECT_EQ((*make_run("third").store().load_best())->step, 200);
}

// Fails from the n-th write on, as if the process died there.
class DyingStore final : public store::ForwardingStore {
 public:
  DyingStore(store::Store& inner, int writes) : ForwardingStore(inner), writes_(writes) {}
  Result<std::optional<std::string>> write(std::string_view address,
                                           std::span<const std::byte> bytes,
                                           const store::WriteCondition& condition) override {
    if (writes_-- <= 0) return Error(ErrorKind::kData, "dead");
    return ForwardingStore::write(address, bytes, condition);
  }
  Status remove(std::string_view address) override {
    if (writes_ <= 0) return Error(ErrorKind::kData, "dead");
    return ForwardingStore::remove(address);
  }

 private:
  int writes_;
};

TEST_P(CopyWriterTest, AnUploadThatIsCutOffIsNotTakenForACheckpoint) {
  auto run = make_run("run", 1);
  {
    auto copy = writer(run);
    EXPECT_DONE(copy.claim(0, 0));
    run.write(100);
    EXPECT_DONE(copy.send());
  }
  run.write(200);
  bool sent = false;
  for (int writes = 0; !sent; ++writes) {
    ASSERT_LT(writes, 20);
    DyingStore dying(*store_, writes);
    CopyWriter copy(dying, *files_, run.options(to_));
    const auto claimed = copy.claim(0, 200);
    const auto outcome = claimed.ok() ? copy.send() : claimed;
    const int64_t step = fetched_step("at-" + std::to_string(writes));
    if (step == 100) {
      EXPECT_FALSE(outcome.ok());
    } else {
      EXPECT_EQ(step, 200);
      sent = outcome.ok();
    }
  }
  // What was left behind is removed by the next one to claim the copy.
  auto copy = writer(run);
  EXPECT_DONE(copy.claim(0, 200));
  EXPECT_DONE(copy.send());
  EXPECT_EQ(objects(), kFilesOfCheckpoint + kOthers);
}

TEST_P(CopyWriterTest, WhatTheCopyDidNotWriteIsNotRemoved) {
  auto run = make_run("run");
  EXPECT_DONE(writer(run).claim(0, 0));
  const std::vector<std::string> foreign = {
      "1-baseline/model.pt", "1-lr0.1/latest.json", "1-lr0.1/1-1/metrics.jsonl",
      "2024-01/photo.jpg", "2024-01/metrics.jsonl", "01-1/metrics.jsonl", "1-01/metrics.jsonl",
      "1-0/metrics.jsonl", "0-1/metrics.jsonl", "1-2-3/metrics.jsonl", "1-/metrics.jsonl",
      // A run directory that somebody put there: its log shows that it is none of the copy's.
      "1-7/log.txt", "1-7/job.yaml", "1-8/model.pt", "1-9/checkpoints/step-5/meta.json",
      "1-10/checkpoints/step-000000005/a/b", "1-11/index/a/b.index", "1-12/photo.jpg.0.new"};
  // What an earlier process has sent, and an upload into a directory that was cut off.
  const std::vector<std::string> left = {"1-3/job.yaml",
                                         "1-3/metrics.jsonl",
                                         "1-3/result.json",
                                         "1-3/index/a.index",
                                         "1-3/checkpoints/rollback.json",
                                         "1-4/checkpoints/step-000000500/meta.json",
                                         "1-4/checkpoints/step-1234567890/model.safetensors",
                                         "1-5/metrics.jsonl.0123456789abcdef.new"};
  const auto put = [&](const std::vector<std::string>& names) {
    for (const auto& name : names) {
      const auto written = store::write_text(*store_, address_in(to_, name), "x",
                                             store::WriteCondition::if_absent());
      ASSERT_TRUE(written.ok() && *written) << name;
    }
  };
  put(foreign);
  put(left);
  EXPECT_DONE(writer(run).claim(0, 0));
  for (const auto& name : foreign) {
    EXPECT_TRUE(store_->list(address_in(to_, name)).ok()) << name;
  }
  for (const auto& name : left) {
    EXPECT_FALSE(store_->list(address_in(to_, name)).ok()) << name;
  }
}

// A place that can be written to and not be removed from.
class KeepingStore final : public store::ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  Status remove(std::string_view) override { return Error(ErrorKind::kData, "forbidden"); }
};

TEST_P(CopyWriterTest, WhatMayNotBeRemovedStays) {
  auto run = make_run("run", 1);
  KeepingStore keeping(*store_);
  CopyWriter copy(keeping, *files_, run.options(to_));
  EXPECT_DONE(copy.claim(0, 0));
  run.write(100);
  EXPECT_DONE(copy.send());
  EXPECT_EQ(copy.take_unremoved(), "");
  run.write(200);
  EXPECT_DONE(copy.send());
  EXPECT_EQ(copy.take_unremoved(), "forbidden");
  EXPECT_EQ(copy.take_unremoved(), "");
  EXPECT_EQ(fetched_step("there"), 200);
  EXPECT_DONE(copy.claim(0, 200));
  EXPECT_GT(objects(), kFilesOfCheckpoint + kOthers);
}

TEST_P(CopyWriterTest, AWorkerOfAnOlderRosterNoticesAndStops) {
  auto run = make_run("run");
  auto older = writer(run);
  EXPECT_DONE(older.claim(5, 0));
  run.write(100, 5);
  EXPECT_DONE(older.send());

  // Another host records, with a run directory of its own.
  EXPECT_EQ(fetched_step("other"), 100);
  auto other = make_run("other");
  auto newer = writer(other);
  EXPECT_DONE(newer.claim(6, 100));
  other.write(200, 6);
  EXPECT_DONE(newer.send());
  const size_t before = objects();

  run.write(300, 5);  // it was suspended, and does not know
  EXPECT_TAKEN_OVER(older.send());
  EXPECT_FALSE(older.taker().empty());
  EXPECT_TAKEN_OVER(older.claim(5, 300));
  EXPECT_EQ(objects(), before);
  EXPECT_EQ(fetched_step("there"), 200);
  other.write(400, 6);
  EXPECT_DONE(newer.send());
}

TEST_P(CopyWriterTest, AWorkerAloneTakesOver) {
  auto run = make_run("run");
  auto lost = writer(run);
  EXPECT_DONE(lost.claim(0, 0));
  run.write(100);
  EXPECT_DONE(lost.send());
  EXPECT_EQ(fetched_step("other"), 100);
  auto other = make_run("other");
  auto resumed = writer(other);
  EXPECT_DONE(resumed.claim(0, 100));
  run.write(200);
  EXPECT_TAKEN_OVER(lost.send());
  other.write(150);
  EXPECT_DONE(resumed.send());
  EXPECT_EQ(fetched_step("there"), 150);

  // The first one is started again where it was left: it must not take the place of what is newer.
  auto stale = make_run("stale");
  ASSERT_TRUE(
      write_run_id(*files_, stale.directory(), *read_run_id(*files_, run.directory())).ok());
  stale.write(100);
  auto again = writer(stale);
  const auto claimed = again.claim(0, 100);
  ASSERT_FALSE(claimed.ok());
  EXPECT_EQ(claimed.error().kind(), ErrorKind::kUsage);
  EXPECT_THAT(claimed.error().message(), HasSubstr("later checkpoint (of step 150)"));
  // What is newer is fetched into it.
  EXPECT_EQ(fetched_step("stale"), 150);
  EXPECT_DONE(writer(stale).claim(0, 150));
}

TEST_P(CopyWriterTest, AGroupInARunDirectoryThatIsBehindDropsNothing) {
  auto run = make_run("run");
  auto first = writer(run);
  EXPECT_DONE(first.claim(5, 0));
  run.write(100, 5);
  EXPECT_DONE(first.send());
  EXPECT_EQ(fetched_step("other"), 100);
  auto other = make_run("other");
  auto resumed = writer(other);
  EXPECT_DONE(resumed.claim(0, 100));
  other.write(200);
  EXPECT_DONE(resumed.send());
  const size_t before = objects();

  // The first one is resumed with several workers: their roster is newer, their state is not.
  const auto claimed = writer(run).claim(6, 100);
  ASSERT_FALSE(claimed.ok());
  EXPECT_EQ(claimed.error().kind(), ErrorKind::kUsage);
  EXPECT_THAT(claimed.error().message(), HasSubstr("later checkpoint (of step 200)"));
  EXPECT_EQ(objects(), before);
  EXPECT_EQ(fetched_step("run"), 200);
  EXPECT_DONE(writer(run).claim(6, 200));
}

TEST_P(CopyWriterTest, OfWritersThatRaceOneIsLeftAndTheCopyIsWhole) {
  constexpr int kWriters = 4;
  constexpr int kRounds = 6;
  auto first = make_run("run");
  EXPECT_DONE(writer(first).claim(1, 0));
  const RunId id = *read_run_id(*files_, first.directory());
  std::atomic<uint64_t> roster{1};
  std::atomic<int> lost{0};
  std::atomic<int> sent{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kWriters; ++t) {
    threads.emplace_back([&, t] {
      const auto store = open();
      auto run = make_run("run-" + std::to_string(t), 1);
      ASSERT_TRUE(write_run_id(*files_, run.directory(), id).ok());
      for (int round = 0; round < kRounds; ++round) {
        const uint64_t own = ++roster;
        const auto step = static_cast<int64_t>(own);
        run.write(step, own);
        CopyWriter copy(*store, *files_, run.options(to_));
        auto outcome = copy.claim(own, step);
        if (outcome.ok() && *outcome == Outcome::kDone) outcome = copy.send();
        ASSERT_TRUE(outcome.ok()) << outcome.error().message();
        ++(*outcome == Outcome::kDone ? sent : lost);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(lost + sent, kWriters * kRounds);
  EXPECT_GE(sent, 1);
  EXPECT_GE(fetched_step("there"), 1);
  const auto index = read_index(*store_, to_);
  ASSERT_TRUE(index.ok() && *index);
  EXPECT_EQ((*index)->index.roster, roster);  // nobody could take it from the last one
  // Whoever claims it next leaves nothing but what is in the index.
  auto last = make_run("there", 1);
  auto copy = writer(last);
  EXPECT_DONE(copy.claim(roster + 1, last.newest()));
  EXPECT_DONE(copy.send());
  const auto now = read_index(*store_, to_);
  size_t named = 1 + (*now)->index.files.size();
  for (const auto& each : (*now)->index.checkpoints) named += each.files.size();
  EXPECT_EQ(objects(), named);
}

TEST_P(CopyWriterTest, TheCopyOfAnotherRunIsRefused) {
  auto run = make_run("run");
  auto copy = writer(run);
  EXPECT_DONE(copy.claim(0, 0));
  auto another = make_run("another");
  const auto refused = writer(another).claim(0, 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind(), ErrorKind::kUsage);
  EXPECT_THAT(refused.error().message(), HasSubstr("has the copy of another run, run"));
  EXPECT_THAT(refused.error().message(), HasSubstr("muster resume " + to_));
  const auto fetched = fetch("another");
  ASSERT_FALSE(fetched.ok());
  EXPECT_EQ(fetched.error().kind(), ErrorKind::kUsage);
}

TEST_P(CopyWriterTest, ADamagedCheckpointIsPassedOver) {
  auto run = make_run("run");
  auto copy = writer(run);
  EXPECT_DONE(copy.claim(0, 0));
  run.write(100);
  run.write(200);
  EXPECT_DONE(copy.send());
  const auto index = read_index(*store_, to_);
  ASSERT_TRUE(index.ok() && *index);
  const auto& file = (*index)->index.newest()->files.front();
  const std::string wrong(file.size, 'x');
  ASSERT_TRUE(store_
                  ->write(address_in(to_, file.object), std::as_bytes(std::span(wrong)),
                          store::WriteCondition::always())
                  .ok());
  const auto fetched = fetch("there");
  ASSERT_TRUE(fetched.ok()) << fetched.error().message();
  EXPECT_EQ(fetched->step, 100);
  ASSERT_EQ(fetched->notes.size(), 1U);
  EXPECT_THAT(fetched->notes[0], HasSubstr("step 200 is passed over"));
  ASSERT_TRUE(store_->remove(address_in(to_, file.object)).ok());
  EXPECT_EQ(fetch("third")->step, 100);
  const auto third = make_run("third");
  for (const auto& each : (*index)->index.checkpoints.front().files) {
    ASSERT_TRUE(store_->remove(address_in(to_, each.object)).ok());
  }
  const auto none = fetch("fourth");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().kind(), ErrorKind::kCheckpoint);
  EXPECT_THAT(none.error().message(), HasSubstr("no checkpoint in"));
  EXPECT_FALSE(files_->exists(scratch_.path() + "/fourth"));
  // One that could not be fetched does not keep the run from continuing before it.
  EXPECT_FALSE(writer(run).claim(0, 100).ok());
  EXPECT_DONE(writer(third).claim(0, 100));
}

// Its newest checkpoint is whole: one with other credentials fetches it.
TEST_P(CopyWriterTest, ACheckpointThatMayNotBeReadIsNotPassedOver) {
  auto run = make_run("run");
  auto copy = writer(run);
  EXPECT_DONE(copy.claim(0, 0));
  run.write(100);
  run.write(200);
  EXPECT_DONE(copy.send());
  DenyingStore denying(*store_, "step-000000200/state");
  const auto denied = fetch_run(
      denying, *files_, {.to = to_, .run_directory = scratch_.path() + "/there", .tell = {}});
  ASSERT_FALSE(denied.ok());
  EXPECT_EQ(denied.error().kind(), ErrorKind::kMachine);
  EXPECT_THAT(denied.error().message(), HasSubstr("may not be accessed"));
  EXPECT_FALSE(files_->exists(scratch_.path() + "/there"));
  EXPECT_EQ(fetched_step("there"), 200);
}

// After an audit found a faulty worker, what it computed is not in the copy either.
TEST_P(CopyWriterTest, WhatARollbackMadeInvalidIsDropped) {
  auto run = make_run("run");
  auto copy = writer(run);
  EXPECT_DONE(copy.claim(5, 0));
  run.write(100, 5);
  run.write(200, 5);
  EXPECT_DONE(copy.send());
  ASSERT_TRUE(run.store().roll_back({.roster = 5, .step = 100}).ok());
  EXPECT_DONE(copy.claim(6, 100));
  EXPECT_DONE(copy.send());
  EXPECT_EQ(fetched_step("there"), 100);
  EXPECT_EQ(make_run("there").store().rollback()->roster, 5U);
}

TEST_P(CopyWriterTest, AFetchTakesOverTheRollbackOfTheCopy) {
  auto run = make_run("run");
  EXPECT_DONE(writer(run).claim(5, 0));
  run.write(100, 5);
  auto copy = writer(run);
  EXPECT_DONE(copy.claim(5, 100));
  EXPECT_DONE(copy.send());
  EXPECT_EQ(fetched_step("other"), 100);
  run.write(200, 5);  // was lost with the machine before it was sent

  // Elsewhere an audit finds that roster 5 was faulty after step 100.
  auto other = make_run("other");
  ASSERT_TRUE(other.store().roll_back({.roster = 5, .step = 100}).ok());
  auto next = writer(other);
  EXPECT_DONE(next.claim(6, 100));
  other.write(150, 6);
  EXPECT_DONE(next.send());

  EXPECT_EQ(fetched_step("run"), 150);  // and not 200, which is invalid
  EXPECT_EQ(run.store().rollback()->roster, 5U);
  EXPECT_FALSE(run.store().load(200).ok());
  EXPECT_DONE(writer(run).claim(7, 150));

  // A worker alone forgets the rollback; what it trained then is not invalid in a directory that
  // knows of it.
  EXPECT_EQ(fetched_step("alone"), 150);
  auto alone = make_run("alone");
  ASSERT_TRUE(alone.store().finish_rollback().ok());
  auto last = writer(alone);
  EXPECT_DONE(last.claim(0, 150));
  alone.write(300);
  EXPECT_DONE(last.send());
  EXPECT_EQ(fetched_step("run"), 300);
  EXPECT_EQ(run.store().rollback()->roster, 0U);
}

// What a process that was killed has begun is removed; what another one is fetching is not.
TEST_P(CopyWriterTest, AFetchRemovesWhatAnotherOneLeft) {
  auto run = make_run("run");
  run.write(100);
  auto copy = writer(run);
  EXPECT_DONE(copy.claim(0, 100));
  EXPECT_DONE(copy.send());
  const std::string dead = scratch_.path() + "/.fetch-dead";
  const std::string busy = scratch_.path() + "/.fetch-busy";
  for (const auto& path : {dead, busy}) {
    ASSERT_TRUE(files_->create_directories(path + "/checkpoints").ok());
    std::ofstream(path + "/lock") << "";
  }
  const auto lock = track::RunLock::acquire(busy + "/lock", busy);
  ASSERT_TRUE(lock.ok());
  EXPECT_EQ(fetched_step("there"), 100);
  EXPECT_FALSE(files_->exists(dead));
  EXPECT_TRUE(files_->exists(busy));
  // The run that was fetched is not held any more.
  EXPECT_FALSE(track::RunLock::is_held(scratch_.path() + "/there/lock"));
}

// A host with a run directory of its own takes over from one that is lost.
TEST_P(CopyWriterTest, AGroupTakesOverWhatAnotherDirectoryRecorded) {
  auto lost = make_run("lost");
  auto first = writer(lost);
  EXPECT_DONE(first.claim(5, 0));
  lost.write(100, 5);
  lost.write(200, 5);
  EXPECT_DONE(first.send());

  auto own = make_run("own");
  ASSERT_TRUE(write_run_id(*files_, own.directory(),
                           {.run = read_run_id(*files_, lost.directory())->run, .writer = ""})
                  .ok());
  own.write(150, 4);  // of a past that was left
  own.write(250, 6);  // since it records
  std::vector<std::string> histories;
  const auto take_over = [&](const std::string& metrics) -> Status {
    histories.push_back(metrics);
    return {};
  };
  auto next = writer(own);
  EXPECT_DONE(next.claim(6, 210, take_over));
  EXPECT_THAT(histories, testing::ElementsAre(lost.text("metrics.jsonl")));
  EXPECT_FALSE(own.store().load(150).ok());
  EXPECT_DONE(next.send());
  EXPECT_EQ(fetched_step("there"), 250);
  const auto index = read_index(*store_, to_);
  ASSERT_TRUE(index.ok() && *index);
  std::vector<int64_t> steps;
  for (const auto& each : (*index)->index.checkpoints) steps.push_back(each.step);
  EXPECT_THAT(steps, testing::ElementsAre(100, 200, 250));
  // Now it is the one that recorded last.
  EXPECT_DONE(next.claim(7, 260, take_over));
  EXPECT_EQ(histories.size(), 1U);

  // If the history cannot be taken over, the copy stays as it is.
  const auto refused = writer(lost).claim(
      8, 300, [](const std::string&) -> Status { return Error(ErrorKind::kIo, "full"); });
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message(), HasSubstr("full"));
  EXPECT_DONE(next.send());
}

// The last commit that the lost worker saw, and sent a checkpoint of, the others did not see.
TEST_P(CopyWriterTest, AGroupThatHasTrainedPastTheCopyClaimsIt) {
  auto lost = make_run("lost");
  auto first = writer(lost);
  EXPECT_DONE(first.claim(5, 0));
  lost.write(100, 5);
  EXPECT_DONE(first.send());
  auto own = make_run("own");
  ASSERT_TRUE(write_run_id(*files_, own.directory(),
                           {.run = read_run_id(*files_, lost.directory())->run, .writer = ""})
                  .ok());
  const auto take_over = [](const std::string&) -> Status { return {}; };
  auto next = writer(own);
  EXPECT_FALSE(next.claim(6, 99, take_over).ok());
  own.write(100, 6);
  EXPECT_DONE(next.claim(6, 99, take_over));
  EXPECT_DONE(next.send());
  EXPECT_EQ(fetched_step("there"), 100);
}

// The run was copied elsewhere meanwhile, from the same directory, which all workers share.
TEST_P(CopyWriterTest, ASharedDirectoryIsNotBehindAnOlderCopyOfItself) {
  auto run = make_run("run");
  run.write(100, 5);
  auto first = writer(run);
  EXPECT_DONE(first.claim(5, 100));
  EXPECT_DONE(first.send());
  auto elsewhere = run.options(to_ + "-2");
  CopyWriter second(*store_, *files_, elsewhere);
  EXPECT_DONE(second.claim(6, 100));
  run.write(200, 6);
  EXPECT_DONE(second.send());
  const auto id = *read_run_id(*files_, run.directory());
  const auto writer_there = (*read_index(*store_, to_))->index.writer;
  EXPECT_FALSE(run.options(to_).is_behind(id, writer_there));
  auto own = run.options(to_);
  own.own_directory = true;  // there, only the copy counts
  EXPECT_TRUE(own.is_behind(id, writer_there));
  auto third = writer(run);
  EXPECT_DONE(third.claim(7, 200, [](const std::string&) -> Status {
    return Error(ErrorKind::kInternal, "nothing is to be taken over");
  }));
  EXPECT_DONE(third.send());
  EXPECT_EQ(fetched_step("there"), 200);
}

// It died after it had claimed the copy, before it could note that.
TEST_P(CopyWriterTest, AClaimThatWasNotNotedIsKnown) {
  auto run = make_run("run");
  auto copy = writer(run);
  EXPECT_DONE(copy.claim(5, 0));
  run.write(100, 5);
  EXPECT_DONE(copy.send());
  auto id = *read_run_id(*files_, run.directory());
  EXPECT_TRUE(id.claiming.empty());
  id.claiming = std::exchange(id.writer, "before");
  ASSERT_TRUE(write_run_id(*files_, run.directory(), id).ok());
  run.write(200, 5);
  auto again = writer(run);
  EXPECT_DONE(again.claim(6, 200, [](const std::string&) -> Status {
    return Error(ErrorKind::kInternal, "nothing is to be taken over");
  }));
  EXPECT_DONE(again.send());
  EXPECT_EQ(fetched_step("there"), 200);
}

TEST_P(CopyWriterTest, TheResultIsSentAndFetched) {
  auto run = make_run("run");
  auto copy = writer(run);
  EXPECT_DONE(copy.claim(5, 0));
  run.write(100, 5);
  EXPECT_DONE(copy.send());
  EXPECT_EQ(fetched_step("launcher"), 100);
  std::ofstream(run.directory() + "/result.json") << "{\"steps\":100}\n";
  EXPECT_DONE(copy.send());
  EXPECT_EQ(fetched_step("new"), 100);
  EXPECT_EQ(make_run("new").text("result.json"), "{\"steps\":100}\n");
  // One that has all else gets it too.
  ASSERT_TRUE(fetch("launcher").ok());
  EXPECT_EQ(make_run("launcher").text("result.json"), "{\"steps\":100}\n");
  const size_t before = objects();
  EXPECT_DONE(copy.send());
  EXPECT_EQ(objects(), before);
}

TEST(CopyIndexTest, NamesOutsideOfTheRunDirectoryAreRefused) {
  CopyIndex index;
  index.run = index.writer = random_id();
  index.name = "lenet-1";
  index.files = {{.name = "metrics.jsonl", .object = "1-1/metrics.jsonl", .size = 3, .hash = "ab"}};
  index.checkpoints = {{.step = 7,
                        .roster = 1,
                        .best = true,
                        .files = {{.name = "checkpoints/step-000000007/meta.json",
                                   .object = "1-1/x",
                                   .size = 1,
                                   .hash = "cd"}}}};
  const auto same = CopyIndex::decode(index.encode());
  ASSERT_TRUE(same.ok()) << same.error().message();
  EXPECT_EQ(*same, index);
  for (const char* name : {"../x", "/etc/x", "a//b", "a/./b", "", "a\nb"}) {
    CopyIndex bad = index;
    bad.files[0].name = name;
    EXPECT_FALSE(CopyIndex::decode(bad.encode()).ok()) << name;
    bad = index;
    bad.files[0].object = name;
    EXPECT_FALSE(CopyIndex::decode(bad.encode()).ok()) << name;
    bad = index;
    bad.name = name;
    EXPECT_FALSE(CopyIndex::decode(bad.encode()).ok()) << name;
  }
  CopyIndex bad = index;
  bad.checkpoints[0].files[0].name = "checkpoints/step-000000008/meta.json";
  EXPECT_FALSE(CopyIndex::decode(bad.encode()).ok());
  bad = index;
  bad.checkpoints[0].step = -1;
  EXPECT_FALSE(CopyIndex::decode(bad.encode()).ok());
  std::string text = index.encode();
  text[text.find("lenet-1")] = 'L';
  EXPECT_THAT(CopyIndex::decode(text).error().message(), HasSubstr("it was changed"));
  EXPECT_FALSE(CopyIndex::decode("").ok());
  EXPECT_FALSE(CopyIndex::decode("{}").ok());
}

}  // namespace
}  // namespace muster::copy
