// A run from start to end, on a real disk: what it writes, how it stops, how it goes on.
#include "muster/train/trainer.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/hash.h"
#include "muster/data/order.h"
#include "muster/track/temp_directory_testing.h"
#include "muster/train/jobs_testing.h"

namespace muster::train {
namespace {

using ::testing::HasSubstr;

const char* const kJob = R"(
name: points
model: { layers: [ linear: { out: 16 }, relu, linear: { out: 2 } ] }
data:
  train: { format: points }
  test: { format: points, args: { size: 50 } }
batch: 20
lanes: 4
steps: 60
optimizer: { kind: adam, lr: 0.01 }
eval: { every: 10 steps }
checkpoint: { every: 5 steps, keep: 2 }
track: { every: 1 steps }
threads: 2
)";

class TextSink final : public track::Sink {
 public:
  void write(std::string_view text) override { shown += text; }
  bool is_terminal() const override { return false; }
  bool has_colour() const override { return false; }
  int width() const override { return 80; }
  std::string shown;
};

// One process's life in a run directory.
class Life {
 public:
  Life(const std::string& directory, const std::vector<std::string>& sets, const char* job = kJob)
      : session_(open_session(job, sets)) {
    std::filesystem::create_directories(directory);
    std::ofstream(directory + "/job.yaml") << "muster: 1\n";
    auto run = track::RunDirectory::open(*files_, directory);
    EXPECT_TRUE(run.ok());
    run_.emplace(*std::move(run));
    recorder_ = std::make_unique<Recorder>(
        *session_, RecorderParts{&*run_, files_.get(), &clock_, &log_, &sink_});
    trainer_ = std::make_unique<Trainer>(
        *session_, *recorder_,
        TrainerEnvironment{files_.get(), &clock_, &log_, [this] {
                             return session_->arena().counters().step >= stop_at_ ? 15 : 0;
                           }});
  }

  Life& stop_at(int64_t step) {
    stop_at_ = step;
    return *this;
  }
  Status begin() { return trainer_->prepare(); }
  Result<TrainSummary> go() { return trainer_->train(); }
  // begin and go, both of which must work.
  TrainSummary live() {
    const auto begun = begin();
    EXPECT_TRUE(begun.ok()) << (begun.ok() ? "" : begun.error().message());
    auto summary = go();
    EXPECT_TRUE(summary.ok()) << (summary.ok() ? "" : summary.error().message());
    return summary.ok() ? *std::move(summary) : TrainSummary{};
  }
  Session& session() { return *session_; }
  FileSystem& files() { return *files_; }
  const std::string& shown() const { return sink_.shown; }
  nlohmann::json describe(const TrainSummary& summary) const { return trainer_->describe(summary); }

 private:
  std::unique_ptr<FileSystem> files_ = posix_file_system();
  SystemClock clock_;
  Log log_;
  TextSink sink_;
  std::unique_ptr<Session> session_;
  std::optional<track::RunDirectory> run_;
  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<Trainer> trainer_;
  int64_t stop_at_ = 1 << 30;
};

std::vector<nlohmann::json> records(const std::string& directory) {
  const auto files = posix_file_system();
  auto metrics = track::read_metrics(*files, directory + "/metrics.jsonl");
  EXPECT_TRUE(metrics.ok());
  for (auto& record : metrics->records) track::erase_times(record);
  return metrics->records;
}

TEST(Trainer, LearnsAndLeavesARunDirectory) {
  const track::TempDirectory temp;
  Life life(temp.path() + "/run", {});
  const auto summary = life.live();
  EXPECT_EQ(summary.reason, EndReason::kDone);
  EXPECT_EQ(summary.counters.step, 60);
  EXPECT_EQ(summary.counters.samples, 1200U);
  ASSERT_EQ(summary.test.size(), 2U);
  EXPECT_EQ(summary.test[1].first, "accuracy");
  EXPECT_GT(summary.test[1].second, 0.8);
  EXPECT_EQ(records(temp.path() + "/run").size(), 66U);  // 60 steps, 6 evaluations
}

// A spike in step 5: its number of bits is in the metrics, and the user is warned once.
TEST(Trainer, TheMetricsSayHowManyBitsGradientsWereLeftWith) {
  const track::TempDirectory temp;
  const std::string run = temp.path() + "/run";
  const auto spike = data::Order(make_job(kJob).seed, 2000).at_stream(100);
  Life life(run, {fmt::format("data.train.args={{size: 2000, spike: {}}}", spike),
                  "model.layers=[ linear: { out: 2 } ]",
                  "optimizer={kind: sgd, lr: 0.01, clip: {norm: 1.0}}"});
  const auto summary = life.live();
  std::vector<int64_t> bits;
  for (const auto& record : records(run)) {
    if (record.contains("loss")) bits.push_back(record.at("gradient_bits").get<int64_t>());
  }
  ASSERT_EQ(bits.size(), 60U);
  EXPECT_EQ(bits[0], 25);
  EXPECT_EQ(bits[6], 0);
  EXPECT_EQ(summary.counters.fewest_gradient_bits, 0);
  EXPECT_EQ(life.describe(summary).at("fewest_gradient_bits"), 0);
  const std::string warning = "rounding to fixed point left the largest gradient";
  EXPECT_THAT(life.shown(), HasSubstr("step 7: " + warning));
  EXPECT_EQ(life.shown().find(warning), life.shown().rfind(warning));
}

TEST(Trainer, StoppedAndResumedEqualsUndisturbed) {
  const track::TempDirectory temp;
  const auto whole = Life(temp.path() + "/whole", {}).live();
  const std::string parts = temp.path() + "/parts";
  for (const int64_t stop : {3, 10, 11, 37}) {
    const auto part = Life(parts, {}).stop_at(stop).live();
    EXPECT_EQ(part.reason, EndReason::kSignal);
    EXPECT_EQ(part.counters.step, stop);
  }
  const auto end = Life(parts, {"threads=1"}).live();
  EXPECT_EQ(end.weights_hash, whole.weights_hash);
  EXPECT_EQ(end.test, whole.test);
  EXPECT_EQ(records(parts), records(temp.path() + "/whole"));
}

TEST(Trainer, ResumingAFinishedRunChangesNothing) {
  const track::TempDirectory temp;
  const auto first = Life(temp.path() + "/run", {}).live();
  const auto second = Life(temp.path() + "/run", {}).live();
  EXPECT_EQ(second.weights_hash, first.weights_hash);
  EXPECT_EQ(second.test, first.test);
}

TEST(Trainer, RefusesTheCheckpointOfAnotherModel) {
  const track::TempDirectory temp;
  (void)Life(temp.path() + "/run", {}).live();
  Life other(temp.path() + "/run",
             {"model.layers=[ linear: { out: 8 }, relu, linear: { out: 2 } ]"});
  const auto status = other.begin();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind(), ErrorKind::kCheckpoint);
  EXPECT_THAT(status.error().message(), HasSubstr("another model"));
}

TEST(Trainer, EarlyStopKeepsTheBestAndSaysWhy) {
  const track::TempDirectory temp;
  Life life(temp.path() + "/run", {"early_stop.patience=2", "early_stop.least=0.9", "steps=1000"});
  const auto summary = life.live();
  EXPECT_EQ(summary.reason, EndReason::kEarlyStop);
  // The first evaluation is the best by definition; two more without a gain of 0.9 end it.
  EXPECT_EQ(summary.counters.step, 30);
  EXPECT_EQ(summary.counters.best.step, 10);
  ckpt::SnapshotStore store(life.files(), temp.path() + "/run/checkpoints", 2, true);
  auto best = store.load_best();
  ASSERT_TRUE(best.ok() && best->has_value());
  EXPECT_EQ((*best)->step, 10);
}

TEST(Trainer, TimeEndsAJob) {
  const track::TempDirectory temp;
  Life life(temp.path() + "/run",
            {"steps=100000000", "time=50ms", "eval.every=0", "checkpoint.every=0"});
  EXPECT_EQ(life.live().reason, EndReason::kTime);
}

TEST(Trainer, StartsFromTheWeightsOfAnotherRunAndFreezesLayers) {
  const track::TempDirectory temp;
  const std::string first = temp.path() + "/first";
  (void)Life(first, {}).live();
  Life second(temp.path() + "/second",
              {"model.init_from=" + first, "model.freeze=['0.*']", "steps=7"});
  ASSERT_TRUE(second.begin().ok());
  auto& arena = second.session().arena();
  const std::vector<float> frozen(arena.tensor(0).begin(), arena.tensor(0).end());
  const std::vector<float> free(arena.tensor(2).begin(), arena.tensor(2).end());
  ASSERT_TRUE(second.go().ok());
  EXPECT_TRUE(std::equal(frozen.begin(), frozen.end(), arena.tensor(0).begin()));
  EXPECT_FALSE(std::equal(free.begin(), free.end(), arena.tensor(2).begin()));
}

TEST(Trainer, APatternThatMatchesNothingIsAMistake) {
  auto session = Session::open(make_job(kJob, {"model.freeze=['conv*']"}), testing_registries());
  ASSERT_FALSE(session.ok());
  EXPECT_THAT(session.error().message(), HasSubstr("no parameter's name matches 'conv*'"));
  session = Session::open(make_job(kJob, {"optimizer.kind=muon", "optimizer.momentum=0.9",
                                          "optimizer.adamw_on=['head*']"}),
                          testing_registries());
  ASSERT_FALSE(session.ok());
  EXPECT_THAT(session.error().message(),
              HasSubstr("optimizer.adamw_on: no parameter's name matches 'head*'"));
}

Error failure_of(const std::vector<std::string>& sets) {
  const track::TempDirectory temp;
  Life life(temp.path() + "/run", sets);
  EXPECT_TRUE(life.begin().ok());
  auto summary = life.go();
  EXPECT_FALSE(summary.ok());
  return summary.ok() ? Error(ErrorKind::kInternal, "it went well") : std::move(summary).error();
}

TEST(Trainer, NotFiniteStopsWithStepLaneTensorAndSamples) {
  // A learning rate that throws the weights out of range in a few steps.
  const auto error =
      failure_of({"optimizer={kind: sgd}", "optimizer.lr=1e30", "model.loss=cross_entropy"});
  EXPECT_EQ(error.kind(), ErrorKind::kNumerics);
  EXPECT_THAT(error.message(), ::testing::ContainsRegex(
                                   "step [0-9]+, lane [0-9]+: the gradient of '[02].[a-z]+' is not "
                                   "finite .*; the lane had samples [0-9]+, [0-9]+, "));
}

TEST(Trainer, ASampleThatIsNotFiniteIsNamed) {
  const auto error = failure_of({"data.train.args={poison: 7}"});
  EXPECT_EQ(error.kind(), ErrorKind::kNumerics);
  EXPECT_THAT(error.message(),
              HasSubstr(": sample 7 of data.train holds a number that is not finite"));
}

TEST(Trainer, NotFiniteIsSkippedWhenTheJobSaysSoWithTheSameBitsOnAnyThreads) {
  const track::TempDirectory temp;
  const std::vector<std::string> sets = {"data.train.args={poison: 7}", "not_finite=skip"};
  auto one = sets;
  one.emplace_back("threads=1");
  const auto a = Life(temp.path() + "/a", sets).live();
  const auto b = Life(temp.path() + "/b", one).live();
  EXPECT_EQ(a.counters.skipped, 6U);  // sample 7 comes once in each of six passes
  EXPECT_EQ(a.weights_hash, b.weights_hash);
}

// The error of the first step, which also must be what `muster config check` finds.
std::string refusal_of(std::vector<std::string> sets) {
  sets.emplace_back("model.layers=[linear: { out: 16 }, batchnorm, linear: { out: 2 }]");
  const auto session = open_session(kJob, sets);
  const auto tried = session->try_forward();
  const auto step = session->step();
  if (tried.ok() && step.ok()) return "";
  EXPECT_EQ(session->arena().counters().step, 0);
  EXPECT_FALSE(tried.ok() || step.ok());
  EXPECT_EQ(step.error().kind(), ErrorKind::kJob);
  EXPECT_EQ(tried.error().message(), step.error().message());
  return step.error().message();
}

TEST(Trainer, ALaneOfOneSampleIsNoBatchToNormalise) {
  EXPECT_EQ(refusal_of({"batch=7"}),
            "training the model on 1 sample per lane: batch normalisation in training needs more "
            "than one value per channel in each lane; give the job a larger batch or fewer lanes");
  EXPECT_EQ(refusal_of({"batch=8"}), "");
}

TEST(Trainer, ALastStepThatCannotBeNormalisedIsRefusedBeforeTheFirst) {
  const std::vector<std::string> pass = {"steps=0", "passes=1"};
  auto one_left = pass;
  one_left.emplace_back("data.train.args={size: 201}");
  EXPECT_EQ(refusal_of(one_left),
            "training the model on 1 sample per lane: batch normalisation in training needs more "
            "than one value per channel in each lane; the last step, with only 1 of the batch's 20 "
            "samples, has too few: leave it out with steps: 10");
  auto two_left = pass;
  two_left.emplace_back("data.train.args={size: 202}");
  EXPECT_EQ(refusal_of(two_left), "");
}

TEST(Trainer, PassesUseEverySampleOnceAndTheLastStepMayBeShort) {
  const track::TempDirectory temp;
  Life life(temp.path() + "/run", {"steps=0", "passes=3", "batch=64"});
  const auto summary = life.live();
  EXPECT_EQ(summary.counters.samples, 600U);
  EXPECT_EQ(summary.counters.step, 10);  // 9 of 64 and one of 24
}

// A last step that was short ended the first run. The second continues where the samples of the
// first ended: none is left out, none is used twice.
TEST(Trainer, ResumedWithMorePassesItUsesEverySampleOfEveryPass) {
  const track::TempDirectory temp;
  const std::string run = temp.path() + "/run";
  const std::vector<std::string> sets = {"steps=0", "batch=64", "eval.every=1 pass"};
  const auto with_passes = [&](const char* passes) {
    auto all = sets;
    all.emplace_back(passes);
    return all;
  };
  const auto first = Life(run, with_passes("passes=3")).live();
  ASSERT_EQ(first.counters.step, 10);  // 9 of 64 and one of 24
  Life again(run, with_passes("passes=5"));
  const auto end = again.live();
  EXPECT_EQ(end.counters.samples, 1000U);
  EXPECT_EQ(end.counters.step, 17);  // then 6 of 64 and one of 16

  // What the order says: the samples at positions 0 to 999 of the stream, cut as above.
  const data::Order order(again.session().job().seed, 200);
  uint64_t ledger = 0;
  for (const auto& [begin, end_of_run] : {std::pair<uint64_t, uint64_t>{0, 600}, {600, 1000}}) {
    for (uint64_t at = begin; at < end_of_run; at += 64) {
      for (uint64_t lane = 0; lane < 4; ++lane) {
        std::vector<uint64_t> used;
        for (uint64_t i = at + lane * 16; i < std::min(at + lane * 16 + 16, end_of_run); ++i) {
          used.push_back(order.at_stream(i));
        }
        const uint64_t hash = used.empty() ? 0 : hash64(used.data(), used.size() * sizeof(used[0]));
        ledger = hash64(&hash, sizeof(hash), ledger);
      }
    }
  }
  EXPECT_EQ(end.counters.ledger, ledger);
}

// Stopped in the middle of the second part, with the short step behind it.
TEST(Trainer, AfterAShortStepStoppedAndResumedEqualsUndisturbed) {
  const track::TempDirectory temp;
  const std::vector<std::string> three = {"steps=0", "batch=64", "passes=3"};
  const std::vector<std::string> five = {"steps=0", "batch=64", "passes=5"};
  (void)Life(temp.path() + "/whole", three).live();
  const auto whole = Life(temp.path() + "/whole", five).live();
  (void)Life(temp.path() + "/parts", three).live();
  for (const int64_t stop : {11, 14}) (void)Life(temp.path() + "/parts", five).stop_at(stop).live();
  const auto parts = Life(temp.path() + "/parts", five).live();
  EXPECT_EQ(parts.weights_hash, whole.weights_hash);
  EXPECT_EQ(parts.counters.ledger, whole.counters.ledger);
  EXPECT_EQ(records(temp.path() + "/parts"), records(temp.path() + "/whole"));
}

}  // namespace
}  // namespace muster::train
