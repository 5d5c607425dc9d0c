#include "muster/ckpt/snapshot.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/fault_injection_testing.h"
#include "muster/ckpt/snapshot_testing.h"

namespace muster::ckpt {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr const char* kDir = "run/checkpoints";

std::vector<int64_t> steps(SnapshotStore& store) {
  const auto infos = store.list();
  std::vector<int64_t> found;
  for (const auto& info : *infos) found.push_back(info.step);
  return found;
}

std::string in(int64_t step, const std::string& file) {
  return fmt::format("{}/step-{:09}/{}", kDir, step, file);
}

TEST(SnapshotStore, ComesBackAsItWasWritten) {
  FaultInjectionFileSystem fs;
  SnapshotStore store(fs, kDir, 3, true);
  const TestState state(500);
  auto view = state.view();
  view.roster = 4;
  view.best = true;
  view.meta = {{"job", "lenet"}, {"samples", 64000}, {"loss", 0.1}, {"inf", INFINITY}};
  ASSERT_TRUE(store.write(view).ok());

  const auto loaded = store.load_newest();
  ASSERT_TRUE(loaded.ok()) << loaded.error().message();
  ASSERT_TRUE(loaded->has_value());
  EXPECT_TRUE(state.equals(**loaded));
  EXPECT_EQ((*loaded)->roster, 4u);
  EXPECT_TRUE((*loaded)->best);
  EXPECT_EQ((*loaded)->meta.at("loss").get<double>(), 0.1);
  EXPECT_TRUE((*loaded)->meta.at("inf").is_null());
  EXPECT_EQ((*loaded)->model.metadata().at("format"), "pt");
  EXPECT_THAT(*fs.list(kDir), ElementsAre("step-000000500"));
}

TEST(SnapshotStore, NothingThereIsNotAnError) {
  FaultInjectionFileSystem fs;
  SnapshotStore store(fs, kDir, 3, true);
  EXPECT_FALSE(store.load_newest()->has_value());
  EXPECT_FALSE(store.load_best()->has_value());
  EXPECT_THAT(*store.list(), IsEmpty());
  const auto missing = store.load(7);
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message(), HasSubstr("no snapshot of step 7"));
}

TEST(SnapshotStore, KeepsTheNewestAndTheBest) {
  FaultInjectionFileSystem fs;
  SnapshotStore store(fs, kDir, 2, true);
  for (int64_t step = 100; step <= 600; step += 100) {
    const TestState state(step);
    auto view = state.view();
    view.best = step == 100 || step == 300;
    ASSERT_TRUE(store.write(view).ok());
  }
  EXPECT_THAT(steps(store), ElementsAre(300, 500, 600));
  EXPECT_EQ((*store.load_best())->step, 300);
  EXPECT_EQ(store.load(500)->step, 500);

  SnapshotStore without_best(fs, kDir, 1, false);
  ASSERT_TRUE(without_best.write(TestState(700).view()).ok());
  EXPECT_THAT(steps(without_best), ElementsAre(700));
}

TEST(SnapshotStore, DiscardsWhatComesAfterAStep) {
  FaultInjectionFileSystem fs;
  SnapshotStore store(fs, kDir, 5, true);
  ASSERT_TRUE(store.discard_after(0).ok());
  for (int64_t step : {100, 200, 300}) ASSERT_TRUE(store.write(TestState(step).view()).ok());
  ASSERT_TRUE(store.discard_after(150).ok());
  EXPECT_THAT(steps(store), ElementsAre(100));
}

TEST(SnapshotStore, OneThatIsLateDiscardsNothingOfNewerRosters) {
  FaultInjectionFileSystem fs;
  SnapshotStore store(fs, kDir, 5, false);
  const TestState early(100);
  const TestState late(200);
  for (const auto* state : {&early, &late}) {
    auto view = state->view();
    view.roster = state == &early ? 6 : 8;
    ASSERT_TRUE(store.write(view).ok());
  }
  ASSERT_TRUE(store.discard_after(50, 7).ok());
  EXPECT_THAT(steps(store), ElementsAre(200));
  ASSERT_TRUE(store.discard_after(50, 8).ok());
  EXPECT_TRUE(steps(store).empty());
}

SnapshotView by_roster(const TestState& state, uint64_t roster) {
  auto view = state.view();
  view.roster = roster;
  return view;
}

TEST(SnapshotStore, ARollbackMakesLaterSnapshotsVoid) {
  FaultInjectionFileSystem fs;
  SnapshotStore store(fs, kDir, 9, true);
  for (const int64_t step : {100, 200, 300, 400}) {
    ASSERT_TRUE(store.write(by_roster(TestState(step), 5)).ok());
  }
  ASSERT_TRUE(store.roll_back({.roster = 5, .step = 250}).ok());
  EXPECT_THAT(steps(store), ElementsAre(100, 200));
  EXPECT_EQ((*store.load_newest())->step, 200);

  // A worker that has not heard of it is refused; one that had looked before is not seen.
  const auto refused = store.write(by_roster(TestState(300), 5));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message(), HasSubstr("gone back to step 250"));
  FaultInjectionFileSystem elsewhere;
  SnapshotStore other(elsewhere, kDir, 9, true);
  ASSERT_TRUE(other.write(by_roster(TestState(300), 5)).ok());
  ASSERT_TRUE(fs.create_directories(std::string(kDir) + "/step-000000300").ok());
  for (const auto& name : *elsewhere.list(std::string(kDir) + "/step-000000300")) {
    auto file = fs.create(in(300, name));
    ASSERT_TRUE((*file)->append(*elsewhere.read(in(300, name))).ok());
    ASSERT_TRUE((*file)->close().ok());
  }
  EXPECT_THAT(steps(store), ElementsAre(100, 200));
  EXPECT_FALSE(store.load(300).ok());

  // Those of the next roster count.
  ASSERT_TRUE(store.write(by_roster(TestState(300), 6)).ok());
  EXPECT_THAT(steps(store), ElementsAre(100, 200, 300));
  // An older rollback does nothing.
  ASSERT_TRUE(store.roll_back({.roster = 4, .step = 0}).ok());
  EXPECT_THAT(steps(store), ElementsAre(100, 200, 300));
  // Whoever has the run for itself has no roster.
  ASSERT_TRUE(store.finish_rollback().ok());
  ASSERT_TRUE(store.write(by_roster(TestState(400), 0)).ok());
  EXPECT_THAT(steps(store), ElementsAre(100, 200, 300, 400));
}

TEST(SnapshotStore, KeepsOneToGoBackTo) {
  FaultInjectionFileSystem fs;
  SnapshotStore store(fs, kDir, 1, true);
  for (int64_t step = 100; step <= 600; step += 100) {
    const TestState state(step);
    auto view = state.view();
    view.best = step == 200 || step == 500;
    store.keep_for_rollback(step - 250);
    ASSERT_TRUE(store.write(view).ok());
  }
  // 200: the newest up to 350. 400: will be, once it is trusted. 500: the best. 600: the newest.
  EXPECT_THAT(steps(store), ElementsAre(200, 400, 500, 600));
}

TEST(SnapshotStore, IgnoresWhatItDidNotWrite) {
  FaultInjectionFileSystem fs;
  SnapshotStore store(fs, kDir, 1, false);
  ASSERT_TRUE(store.write(TestState(100).view()).ok());
  for (const char* name : {"step-5", "step-", "step-00000010x", "notes", ".old-stuff"}) {
    ASSERT_TRUE(fs.create_directories(std::string(kDir) + "/" + name).ok());
  }
  ASSERT_TRUE(store.write(TestState(200).view()).ok());
  EXPECT_THAT(steps(store), ElementsAre(200));
  EXPECT_THAT(*fs.list(kDir), SizeIs(6)) << "and does not remove it either";
}

TEST(SnapshotStore, AFlippedBitAnywhereIsNoticedAndTheOneBeforeIsUsed) {
  for (const char* file :
       {"model.safetensors", "state.safetensors", "meta.json", "manifest.json"}) {
    FaultInjectionFileSystem fs;
    SnapshotStore store(fs, kDir, 3, true);
    ASSERT_TRUE(store.write(TestState(100).view()).ok());
    ASSERT_TRUE(store.write(TestState(200).view()).ok());
    std::string& bytes = fs.contents(in(200, file));
    for (size_t at = 0; at < bytes.size(); ++at) {
      bytes[at] ^= 1;
      std::vector<std::string> notes;
      const auto loaded = store.load_newest(&notes);
      ASSERT_TRUE(loaded.ok()) << loaded.error().message();
      // White space in the manifest carries nothing; anywhere else the flip must be noticed.
      if (notes.empty()) {
        ASSERT_STREQ(file, "manifest.json") << "byte " << at;
        ASSERT_TRUE(std::isspace(static_cast<unsigned char>(bytes[at] ^ 1))) << "byte " << at;
        ASSERT_TRUE(TestState(200).equals(**loaded));
      } else {
        ASSERT_TRUE(TestState(100).equals(**loaded)) << file << ", byte " << at;
        ASSERT_THAT(notes, ElementsAre(AllOf(HasSubstr("step-000000200"), HasSubstr("damaged"))));
      }
      bytes[at] ^= 1;
    }
  }
}

TEST(SnapshotStore, ATornOrMissingFileIsNoticed) {
  for (const char* file :
       {"model.safetensors", "state.safetensors", "meta.json", "manifest.json"}) {
    FaultInjectionFileSystem fs;
    SnapshotStore store(fs, kDir, 3, true);
    ASSERT_TRUE(store.write(TestState(100).view()).ok());
    ASSERT_TRUE(store.write(TestState(200).view()).ok());
    fs.contents(in(200, file)).resize(5);
    EXPECT_EQ((*store.load_newest())->step, 100) << file;
    ASSERT_TRUE(fs.remove_all(in(200, file)).ok());
    EXPECT_EQ((*store.load_newest())->step, 100) << file;
  }
}

TEST(SnapshotStore, WhenAllAreDamagedItSaysSoRatherThanStartAnew) {
  FaultInjectionFileSystem fs;
  SnapshotStore store(fs, kDir, 3, true);
  ASSERT_TRUE(store.write(TestState(100).view()).ok());
  fs.contents(in(100, "model.safetensors")).back() ^= 1;
  const auto loaded = store.load_newest();
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().kind(), ErrorKind::kCheckpoint);
  EXPECT_THAT(loaded.error().message(),
              AllOf(HasSubstr("none of the 1 snapshots"), HasSubstr("model.safetensors")));
}

// A damaged snapshot must not push a sound one out of the newest k.
TEST(SnapshotStore, DamagedOnesDoNotCountAmongTheNewest) {
  FaultInjectionFileSystem fs;
  SnapshotStore store(fs, kDir, 2, false);
  ASSERT_TRUE(store.write(TestState(100).view()).ok());
  ASSERT_TRUE(store.write(TestState(200).view()).ok());
  fs.contents(in(200, "state.safetensors")).back() ^= 1;
  EXPECT_EQ((*store.load_newest())->step, 100);
  ASSERT_TRUE(store.write(TestState(300).view()).ok());
  EXPECT_THAT(steps(store), ElementsAre(100, 300));
}

TEST(SnapshotStore, ADamagedSnapshotIsReplacedWhenItsStepComesAgain) {
  FaultInjectionFileSystem fs;
  SnapshotStore store(fs, kDir, 2, false);
  ASSERT_TRUE(store.write(TestState(100).view()).ok());
  fs.contents(in(100, "state.safetensors")).back() ^= 1;
  EXPECT_FALSE(store.load_newest().ok());
  ASSERT_TRUE(store.write(TestState(100).view()).ok());
  EXPECT_TRUE(TestState(100).equals(**store.load_newest()));
  EXPECT_THAT(*fs.list(kDir), ElementsAre("step-000000100"));
}

TEST(SnapshotStore, AnOlderRosterDoesNotOverwriteANewer) {
  FaultInjectionFileSystem fs;
  SnapshotStore store(fs, kDir, 5, false);
  const auto write = [&](int64_t step, uint64_t roster) {
    const TestState state(step);
    auto view = state.view();
    view.roster = roster;
    return store.write(view);
  };
  ASSERT_TRUE(write(500, 4).ok());
  const Status same_step = write(500, 3);
  ASSERT_FALSE(same_step.ok());
  EXPECT_EQ(same_step.error().kind(), ErrorKind::kCheckpoint);
  EXPECT_THAT(same_step.error().message(), HasSubstr("roster 4 has already written step 500"));
  EXPECT_FALSE(write(400, 3).ok()) << "an earlier step of an older roster is of no use either";
  EXPECT_EQ(store.load(500)->roster, 4u);
  // Past what the newer roster has written, the bits are the same whoever writes them.
  EXPECT_TRUE(write(600, 3).ok());
  EXPECT_TRUE(write(600, 4).ok());
  EXPECT_EQ(store.load(600)->roster, 4u);
}

TEST(SnapshotStore, AnotherVersionsSnapshotIsNeitherSkippedNorRemoved) {
  FaultInjectionFileSystem fs;
  SnapshotStore store(fs, kDir, 1, false);
  ASSERT_TRUE(store.write(TestState(100).view()).ok());
  nlohmann::json manifest = {{"format", 3}, {"more", "than we know"}};
  const std::string text = manifest.dump();
  manifest["xxh3_128"] = hash128(std::as_bytes(std::span(text))).hex();
  fs.contents(in(100, "manifest.json")) = manifest.dump();
  const auto loaded = store.load_newest();
  ASSERT_FALSE(loaded.ok());
  EXPECT_THAT(loaded.error().message(), HasSubstr("format 3"));
  std::optional<Error> unreadable;
  EXPECT_TRUE(store.list(&unreadable)->empty());
  ASSERT_TRUE(unreadable);
  EXPECT_THAT(unreadable->message(), HasSubstr("format 3"));
  ASSERT_TRUE(store.write(TestState(50).view()).ok());
  ASSERT_TRUE(store.discard_after(50, 9).ok());
  EXPECT_TRUE(fs.exists(in(100, "manifest.json")));
}

TEST(SnapshotStore, ALeftoverAsideIsRemovedUnlessANewerRosterIsWritingIt) {
  FaultInjectionFileSystem fs;
  SnapshotStore store(fs, kDir, 1, false);
  ASSERT_TRUE(fs.create_directories(std::string(kDir) + "/.tmp-0-step-000000050").ok());
  ASSERT_TRUE(fs.create_directories(std::string(kDir) + "/.tmp-7-step-000000060").ok());
  ASSERT_TRUE(store.write(TestState(100).view()).ok());
  EXPECT_THAT(*fs.list(kDir), ElementsAre(".tmp-7-step-000000060", "step-000000100"));
}

}  // namespace
}  // namespace muster::ckpt
