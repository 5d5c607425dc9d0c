// Data that is read by blocks, in training: the same bits as from memory in the same order; the
// same bits on any number of threads and workers, whatever the store does; and what a worker does
// while it waits.
#include <signal.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/crc32c.h"
#include "muster/comm/local_group.h"
#include "muster/store/open.h"
#include "muster/store/retry.h"
#include "muster/train/jobs_testing.h"
#include "muster/train/ledger.h"
#include "muster/train/trainer_testing.h"

namespace muster::train {
namespace {

using ::testing::HasSubstr;

// ---- Files with the samples of other formats

void write_file(const std::string& path, const std::string& contents) {
  std::ofstream(path, std::ios::binary) << contents;
}

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
  return out;
}

// A field of a message that holds bytes.
std::string field(int number, const std::string& contents) {
  return varint(static_cast<uint64_t>(number) << 3 | 2) + varint(contents.size()) + contents;
}

std::string feature(const std::string& name, const std::string& value) {
  return field(1, field(1, name) + field(2, value));
}

// A TFRecord with a tf.Example of an image's bytes and its label.
std::string tf_record(const std::string& pixels, uint64_t label) {
  const std::string example = field(1, feature("image", field(1, field(1, pixels))) +
                                           feature("label", field(3, field(1, varint(label)))));
  const auto number = [](auto value) {
    std::string bytes(sizeof(value), '\0');
    std::memcpy(bytes.data(), &value, sizeof(value));
    return bytes;
  };
  const auto crc = [&](const std::string& bytes) {
    return number(masked_crc32c(std::as_bytes(std::span(bytes))));
  };
  const std::string length = number(uint64_t{example.size()});
  return length + crc(length) + example + crc(example);
}

// The sample of MNIST in examples/data as TFRecord files of 700 images.
void write_mnist(const std::string& directory) {
  const auto job = make_job(R"(
model: { zoo: lenet }
data: { train: { format: idx, images: mnist/train-images-idx3-ubyte.gz, labels: mnist/train-labels-idx1-ubyte.gz } }
steps: 1
)");
  const auto opened = data::Registry::builtin().open(job.data.train);
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  const data::Dataset& mnist = **opened;
  std::vector<float> image(mnist.schema().input_elements());
  std::string files[3];
  for (uint64_t i = 0; i < mnist.size(); ++i) {
    int64_t label = 0;
    mnist.read(i, reinterpret_cast<std::byte*>(image.data()), reinterpret_cast<std::byte*>(&label));
    std::string pixels;
    for (const float value : image) pixels.push_back(static_cast<char>(std::lround(value * 255)));
    files[i / 700] += tf_record(pixels, static_cast<uint64_t>(label));
  }
  for (int i = 0; i < 3; ++i) {
    write_file(fmt::format("{}/mnist-{}.tfrecord", directory, i), files[i]);
  }
}

// The points of jobs_testing.h in three forms. Numbers are written so that they read back exactly.
void write_points(const std::string& directory, uint64_t count) {
  const PointsDataset points(count, ~uint64_t{0}, ~uint64_t{0});
  std::string csv = "a,b,c,d,class\n";
  std::string parts[2] = {csv, csv};
  std::string json;
  for (uint64_t i = 0; i < count; ++i) {
    float x[4];
    int64_t label = 0;
    points.read(i, reinterpret_cast<std::byte*>(x), reinterpret_cast<std::byte*>(&label));
    const auto row = fmt::format("{:.9g},{:.9g},{:.9g},{:.9g},{}\n", x[0], x[1], x[2], x[3], label);
    csv += row;
    parts[i < count / 3 ? 0 : 1] += row;
    json += fmt::format(R"({{"x": [{:.9g}, {:.9g}, {:.9g}, {:.9g}], "label": {}}})"
                        "\n",
                        x[0], x[1], x[2], x[3], label);
  }
  write_file(directory + "/points.csv", csv);
  write_file(directory + "/points-0.csv", parts[0]);
  write_file(directory + "/points-1.csv", parts[1]);
  write_file(directory + "/points.jsonl", json);
}

// About 46 blocks of 4 KiB: while a job trains for three passes, lanes need new ones all the time.
constexpr uint64_t kPoints = 4000;

// Made once for all tests.
const std::string& data_directory() {
  static const track::TempDirectory directory;
  static const std::string path = [] {
    write_points(directory.path(), kPoints);
    write_mnist(directory.path());
    return directory.path();
  }();
  return path;
}

std::string points_job(const std::string& source, const std::string& more = "") {
  return fmt::format(R"(
name: points
model: {{ layers: [ linear: {{ out: 16 }}, batchnorm, relu, linear: {{ out: 2 }} ] }}
data:
  train: {{ {}, classes: 2 }}
  {}
batch: 200
lanes: 5
steps: 60
optimizer: {{ kind: adam, lr: 0.01 }}
threads: 1
)",
                     source, more);
}

std::string blocks_job(const std::string& more = "window: 4KiB\n  block: 4KiB") {
  return points_job(fmt::format("format: csv, path: '{}/points-*.csv'", data_directory()), more);
}

std::string train(const std::string& text, const std::vector<std::string>& sets = {}) {
  const auto session = open_session(text, sets);
  double loss = 0;
  for (int64_t i = 0; i < session->total_steps(); ++i) {
    const auto report = session->step();
    EXPECT_TRUE(report.ok()) << report.error().message();
    if (!report.ok()) return "failed";
    loss = report->loss;
  }
  return fmt::format("{} {:a} {:016x}", session->arena().weights_hash().hex(), loss,
                     session->arena().counters().ledger);
}

// ---- The same samples in the same order

TEST(StreamedData, CsvAndJsonGiveTheBitsOfDataInMemory) {
  const auto whole =
      train(points_job(fmt::format("format: csv, path: {}/points.csv", data_directory())));
  EXPECT_EQ(train(blocks_job("order: full\n  block: 4KiB")), whole);
  EXPECT_EQ(
      train(points_job(fmt::format("format: jsonl, path: {}/points.jsonl, args: {{ input: x }}",
                                   data_directory()),
                       "order: full\n  block: 4KiB")),
      whole);
  EXPECT_NE(train(blocks_job()), whole);
}

TEST(StreamedData, TfRecordGivesTheBitsOfIdx) {
  const auto job = [](const std::string& source) {
    return fmt::format(R"(
model: {{ zoo: lenet }}
data:
  train: {{ {}, mean: 0.1307, deviation: 0.3081 }}
  augment: {{ shift: 2 }}
  order: full
batch: 32
lanes: 4
steps: 8
optimizer: {{ lr: 0.05, momentum: 0.9 }}
)",
                       source);
  };
  EXPECT_EQ(
      train(job(fmt::format("format: tfrecord, path: '{}/mnist-*.tfrecord', classes: 10, args: {{ "
                            "input: image, shape: [1, 28, 28] }}",
                            data_directory())),
            {"data.block=64KiB"}),
      train(job("format: idx, images: mnist/train-images-idx3-ubyte.gz, labels: "
                "mnist/train-labels-idx1-ubyte.gz")));
}

// ---- Any number of threads and workers

TEST(StreamedData, NothingButOrderWindowHomesAndBlockDecideTheBits) {
  const auto expected = train(blocks_job());
  const track::TempDirectory cache;
  for (const std::vector<std::string>& sets :
       std::vector<std::vector<std::string>>{{"threads=3"},
                                             {"data.loader.threads=0", "data.memory=4096"},
                                             {"data.loader.ahead=7", "data.requests=1"},
                                             {"data.cache=" + cache.path(), "data.memory=4096"},
                                             {"data.cache=" + cache.path(), "data.cache_size=1"}}) {
    EXPECT_EQ(train(blocks_job(), sets), expected) << sets[0];
  }
  // In this job each lane has two blocks, the fewest; so another window gives the same.
  EXPECT_EQ(train(blocks_job(), {"data.window=1MiB"}), expected);
  EXPECT_NE(train(blocks_job(), {"data.homes=fixed"}), expected);
  EXPECT_NE(train(blocks_job(), {"data.block=5000"}), expected);
}

TEST(StreamedData, TheLedgerIsWhatTheOrderSays) {
  const auto session = open_session(blocks_job());
  const auto batches = session->batches();
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(session->step().ok());
  EXPECT_EQ(session->arena().counters().ledger, expected_ledger(batches, session->order(), 60));
}

TEST(StreamedData, SaysWhatWasFetchedAndWhyTheCacheStopped) {
  const track::TempDirectory directory;
  const std::string cache = directory.path() + "/cache";
  EXPECT_EQ(open_session(blocks_job(), {"data.cache=" + cache})->cache_problem(), "");
  // A directory that cannot be made.
  std::filesystem::remove_all(cache);
  write_file(cache, "not a directory");
  const auto session = open_session(blocks_job(), {"data.cache=" + cache});
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(session->step().ok());
  EXPECT_THAT(session->cache_problem(), HasSubstr("keeps no further blocks"));
  const auto lines = session->fetched();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_THAT(lines[0], ::testing::MatchesRegex("data.train: [0-9]+ blocks? \\([0-9.]+ kB\\) "
                                                "fetched, 0 from the cache on disk, .*"));
  EXPECT_THAT(lines[1], HasSubstr("0 requests repeated"));
  EXPECT_TRUE(open_session(points_job("format: points"))->fetched().empty());
}

std::vector<std::string> train_together(const std::string& text, int workers) {
  const auto hub = comm::LocalHub::create(std::vector<std::string>(workers, "w"));
  std::vector<std::string> results(static_cast<size_t>(workers));
  std::vector<std::jthread> threads;
  for (int w = 0; w < workers; ++w) {
    threads.emplace_back([&, w] {
      const auto group = hub->join(w);
      const auto session = open_session(text);
      std::vector<std::vector<int>> lanes(static_cast<size_t>(workers));
      for (int lane = 0; lane < 5; ++lane) {
        lanes[static_cast<size_t>(lane * 3 % 5 % workers)].push_back(lane);
      }
      session->assign(lanes, **group, std::chrono::seconds(60));
      double loss = 0;
      for (int i = 0; i < 60; ++i) {
        const auto report = session->step();
        ASSERT_TRUE(report.ok()) << report.error().message();
        loss = report->loss;
      }
      results[static_cast<size_t>(w)] =
          fmt::format("{} {:a} {:016x}", session->arena().weights_hash().hex(), loss,
                      session->arena().counters().ledger);
    });
  }
  threads.clear();
  return results;
}

TEST(StreamedData, AnyNumberOfWorkersGivesTheSameBits) {
  const auto expected = train(blocks_job());
  for (const int workers : {2, 4}) {
    for (const auto& result : train_together(blocks_job(), workers)) {
      EXPECT_EQ(result, expected) << workers << " workers";
    }
  }
}

// ---- What the store does

// The files of this machine, behind a store that fails, stalls or damages.
class BadStore final : public store::Store {
 public:
  Result<std::vector<store::Object>> list(std::string_view address) override {
    return inner_->list(address);
  }
  Status read(const store::Object& object, uint64_t offset, std::span<std::byte> into) override {
    return read_stoppable(object, offset, into, {});
  }
  Status read_stoppable(const store::Object& object, uint64_t offset, std::span<std::byte> into,
                        const std::stop_token& stop) override {
    const uint64_t number = ++reads;
    if (fail_every != 0 && number % fail_every == 0) {
      return Error(ErrorKind::kIo, "'{}': the connection was reset", object.name);
    }
    if (slow) std::this_thread::sleep_for(5ms);
    const bool trains = object.name.find("/points-") != std::string::npos;
    const auto blocks = [&] { return away || (trains && train_away); };
    if (blocks()) ++blocked;
    while (blocks() && !stop.stop_requested()) std::this_thread::sleep_for(1ms);
    if (stop.stop_requested()) return Error(ErrorKind::kInterrupted, "stopped");
    auto status = inner_->read(object, offset, into);
    if (damage) into[into.size() / 2] ^= std::byte{1};
    return status;
  }

  std::atomic<uint64_t> reads = 0;
  std::atomic<uint64_t> fail_every = 0;
  std::atomic<bool> slow = false;
  std::atomic<bool> away = false;
  std::atomic<bool> train_away = false;  // only the training data
  std::atomic<uint64_t> blocked = 0;     // reads that met one of these
  std::atomic<bool> damage = false;

 private:
  const std::unique_ptr<store::Store> inner_ = store::open_store();
};

class StreamedTrainerTest : public TrainerTest {
 protected:
  StreamedTrainerTest()
      : TrainerTest(blocks_job(R"(test: { format: csv, classes: 2, read: blocks, path: ')" +
                               data_directory() + R"(/points.csv' }
  window: 4KiB
  block: 4KiB
  memory: 4KiB)") + R"(
eval: { every: 10 steps }
checkpoint: { every: 7 steps, keep: 2 }
track: { every: 1 steps }
)",
                    5) {
    auto bad = std::make_unique<BadStore>();
    store_ = bad.get();
    store::RetryOptions options;
    options.backoff.first = 1ms;
    options.backoff.most = 20ms;
    retry_ = std::make_shared<store::RetryStore>(std::move(bad), clock_, options);
    registries_.places.store = retry_;
  }

  // Waits, but not for ever: a test that fails shall not hang.
  template <typename Condition>
  static void await(const Condition& condition) {
    for (int i = 0; i < 60'000 && !condition(); ++i) std::this_thread::sleep_for(1ms);
  }
  // In the middle of the run, by the worker that comes there first.
  void in_the_middle(std::function<void()> then) {
    at_step_ = [this, then = std::move(then)](int64_t step) {
      if (step >= 20 && !begun_.exchange(true)) then();
    };
  }

  BadStore* store_ = nullptr;
  std::shared_ptr<store::RetryStore> retry_;
  std::atomic<bool> begun_ = false;
};

TEST_F(StreamedTrainerTest, WorkersThatLeaveAndRequestsThatFail) {
  store_->fail_every = 4;
  const auto lives = together("run", {{}, {23, SIGTERM}, {}});
  ASSERT_TRUE(lives[1].summary) << lives[1].error;
  EXPECT_EQ(lives[1].summary->reason, EndReason::kLeft);
  EXPECT_GT(retry_->counters().retries, 10U);
  store_->fail_every = 0;
  expect_as_alone("run", lives[2]);
}

TEST_F(StreamedTrainerTest, AStoppedRunIsResumedWithTheSameIndex) {
  registries_.places.indexes = temp_.path() + "/run/index";
  const auto first = live("run", "", {31, SIGINT});
  ASSERT_TRUE(first.summary) << first.error;
  EXPECT_EQ(first.summary->reason, EndReason::kSignal);
  expect_as_alone("run", live("run", ""));
}

// A store that is away is waited for in a step: longer than hang_timeout, without another roster.
TEST_F(StreamedTrainerTest, WaitingForDataIsNotAHang) {
  hang_timeout_ = 700ms;
  rebalance_every_ = 1h;
  in_the_middle([&] { store_->train_away = true; });
  const std::jthread outage([&] {
    await([&] { return store_->blocked > 0; });
    std::this_thread::sleep_for(3s);
    store_->train_away = false;
  });
  const auto lives = together("run", {{}, {}});
  EXPECT_GT(store_->blocked, 0U);
  for (const auto& life : lives) {
    ASSERT_TRUE(life.summary) << life.error;
    EXPECT_EQ(life.summary->reason, EndReason::kDone);
  }
  EXPECT_EQ(roster::sequence_of(coordinator_->status().roster.number), 1U);
  expect_as_alone("run", lives[1]);
}

TEST_F(StreamedTrainerTest, AWorkerAloneThatWaitsCanBeStoppedAndResumed) {
  {
    std::atomic<int> signal = 0;
    // Told to stop a while after the store went away.
    const std::jthread person([&] {
      await([&] { return store_->blocked > 0; });
      std::this_thread::sleep_for(1s);
      signal = SIGINT;
    });
    auto run = open_run("run");
    const auto session = *Session::open(make_job(job_), registries_);
    NoSink sink;
    Recorder recorder(*session, {&run, files_.get(), &clock_, &log_, &sink});
    const auto stop_signal = [&] {
      if (session->arena().counters().step >= 20) store_->train_away = true;
      return signal.load();
    };
    Trainer trainer(*session, recorder, {files_.get(), &clock_, &log_, stop_signal});
    ASSERT_TRUE(trainer.prepare().ok());
    const auto summary = trainer.train();
    ASSERT_TRUE(summary.ok()) << summary.error().message();
    EXPECT_EQ(summary->reason, EndReason::kSignal);
    EXPECT_LT(summary->counters.step, 60);
  }
  EXPECT_EQ(open_run("run").read_status().state, track::RunState::kInterrupted);
  store_->train_away = false;
  expect_as_alone("run", live("run", ""));
}

// A member that waits for data would else keep the others waiting for the next roster.
class LostGroupTest : public StreamedTrainerTest {
 protected:
  // Member 0 does this while the store is away, and member 1 leaves the group.
  template <typename Work>
  void expect_end_of(const Work& work) {
    const auto hub = comm::LocalHub::create({"a", "b"});
    std::atomic<bool> over = false;
    const std::jthread other([&] {
      const auto group = *hub->join(1);
      while (!store_->away) std::this_thread::sleep_for(1ms);
      std::this_thread::sleep_for(200ms);
      group->abort("it leaves");
      for (int i = 0; i < 5000 && !over; ++i) std::this_thread::sleep_for(1ms);
      store_->away = false;
    });
    const auto group = *hub->join(0);
    const auto session = *Session::open(make_job(job_), registries_);
    EXPECT_TRUE(session->test_data().ok());
    store_->away = true;
    session->assign({{0, 1, 2}, {3, 4}}, *group, 60s);
    const auto result = work(*session);
    EXPECT_TRUE(store_->away) << "the wait did not end by itself";
    over = true;
    ASSERT_FALSE(result.ok());
    EXPECT_THAT(result.error().message(), HasSubstr("the group failed"));
  }
};

TEST_F(LostGroupTest, EndsAStepThatWaits) {
  expect_end_of([](Session& session) { return session.step(); });
}

TEST_F(LostGroupTest, EndsAnEvaluationThatWaits) {
  expect_end_of([](Session& session) { return session.evaluate(); });
}

// Ctrl-C while test data is indexed ends the job before its first step. Once there are steps, they
// are saved: then no other thread indexes, whose end would be the end of the fingerprint, which is
// part of a checkpoint.
TEST_F(StreamedTrainerTest, TestDataIsIndexedBeforeTheFirstStep) {
  const auto here = std::this_thread::get_id();
  registries_.places.keep_waiting = [here] { return std::this_thread::get_id() == here; };
  store_->slow = true;
  const auto session = *Session::open(make_job(job_), registries_);
  const auto begun = session->begin_fingerprint();
  ASSERT_TRUE(begun.ok()) << begun.error().message();
  const auto fingerprint = session->fingerprint();
  ASSERT_TRUE(fingerprint.ok()) << fingerprint.error().message();
  EXPECT_FALSE(fingerprint->test_data.empty());
  EXPECT_EQ((*session->test_data())->size(), kPoints);
}

// What the fingerprint needs of the data is more than the block that opening has read.
TEST_F(StreamedTrainerTest, TheReadsBeforeTheFirstStepCanBeEnded) {
  std::atomic<bool> over = false;
  registries_.places.keep_waiting = [&] { return !over; };
  const auto session =
      *Session::open(make_job(blocks_job(), {"batch=400", "lanes=1"}), registries_);
  store_->away = true;
  const std::jthread person([&] {
    std::this_thread::sleep_for(200ms);
    over = true;
    std::this_thread::sleep_for(3s);
    store_->away = false;
  });
  const auto begun = session->begin_fingerprint();
  ASSERT_FALSE(begun.ok());
  EXPECT_EQ(begun.error().kind(), ErrorKind::kInterrupted);
}

TEST_F(StreamedTrainerTest, DamageStopsTheJobAndNamesTheFile) {
  in_the_middle([&] { store_->damage = true; });
  const auto life = live("run", "");
  EXPECT_FALSE(life.summary);
  EXPECT_THAT(life.error, HasSubstr("/points"));
  EXPECT_THAT(life.error, HasSubstr("is damaged"));
}

}  // namespace
}  // namespace muster::train
