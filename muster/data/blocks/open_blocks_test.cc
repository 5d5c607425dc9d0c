// Data that is read by blocks, as a job names it: from files to batches.
#include "muster/data/blocks/open_blocks.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/thread.h"
#include "muster/data/batch.h"
#include "muster/data/blocks/blocks_testing.h"
#include "muster/data/blocks/make_index.h"
#include "muster/data/blocks/strata.h"
#include "muster/data/data_testing.h"
#include "muster/data/loader.h"
#include "muster/data/make_order.h"
#include "muster/store/open.h"

namespace muster::data {
namespace {

using ::testing::HasSubstr;
using testing::TempDir;

constexpr int kRows = 1000;

// Row i is i, i / 2, -i and the class i % 3.
std::string csv_rows(int first, int count) {
  std::string text = "a,b,c,class\n";
  for (int i = first; i < first + count; ++i) {
    text += fmt::format("{},{},{},{}\n", i, i / 2.0, -i, i % 3);
  }
  return text;
}

class OpenBlocksTest : public ::testing::Test {
 protected:
  OpenBlocksTest() {
    whole_.format = "csv";
    whole_.classes = 3;
    whole_.path = dir_.write("all.csv", csv_rows(0, kRows));
    // The same in three files of different lengths.
    dir_.write("part-0.csv", csv_rows(0, 300));
    dir_.write("part-1.csv", csv_rows(300, 1));
    dir_.write("part-2.csv", csv_rows(301, kRows - 301));
    blocks_ = whole_;
    blocks_.path = dir_.path("part-*.csv");
    setup_.files = files_.get();
    setup_.indexes = dir_.path("index");
    setup_.block = 512;
  }

  std::unique_ptr<Dataset> open() { return open(blocks_, setup_); }
  static std::unique_ptr<Dataset> open(const config::SourceOptions& options,
                                       const BlockSetup& setup) {
    auto opened = Registry::builtin().open(options, setup);
    EXPECT_TRUE(opened.ok()) << opened.error().message();
    return opened.ok() ? *std::move(opened) : nullptr;
  }
  std::string failure() {
    const auto opened = Registry::builtin().open(blocks_, setup_);
    EXPECT_FALSE(opened.ok());
    return opened.ok() ? "" : opened.error().message();
  }
  std::vector<std::string> saved() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(setup_.indexes)) {
      if (entry.path().extension() == ".index") names.push_back(entry.path().string());
    }
    return names;
  }

  const TempDir dir_;
  const std::unique_ptr<FileSystem> files_ = posix_file_system();
  config::SourceOptions whole_;
  config::SourceOptions blocks_;
  BlockSetup setup_;
};

// All batches of two passes and a bit.
std::vector<std::pair<std::vector<uint64_t>, std::string>> batches_of(
    const Dataset& data, const config::DataOptions& options, int threads) {
  LoaderPlan plan;
  plan.seed = 5;
  plan.batches.batch = 32;
  plan.batches.lanes = 4;
  plan.batches.total = data.size() * 2 + 17;
  plan.threads = threads;
  plan.order = *make_order(options, data, plan.seed, plan.batches);
  Loader loader(data, plan, {0, 1, 2, 3}, 0);
  std::vector<std::pair<std::vector<uint64_t>, std::string>> result;
  for (uint64_t step = 0; step < loader.steps(); ++step) {
    for (int lane = 0; lane < 4; ++lane) {
      const auto batch = loader.take(step, lane);
      EXPECT_TRUE(batch.ok()) << batch.error().message();
      const size_t inputs = (*batch)->count * data.schema().input_bytes();
      const size_t targets = (*batch)->count * data.schema().target_bytes();
      std::string bytes(reinterpret_cast<const char*>((*batch)->inputs.data()), inputs);
      bytes.append(reinterpret_cast<const char*>((*batch)->targets.data()), targets);
      result.emplace_back((*batch)->samples, std::move(bytes));
    }
  }
  return result;
}

TEST_F(OpenBlocksTest, TheSameBatchesAsDataInMemoryInTheOrderFull) {
  config::DataOptions options;
  options.order = "full";
  const auto whole = open(whole_, setup_);
  EXPECT_EQ(whole->blocks(), nullptr);
  const auto expected = batches_of(*whole, options, 0);
  for (const int threads : {0, 1, 3}) {
    EXPECT_EQ(batches_of(*open(), options, threads), expected) << threads << " threads";
  }
  // A whole file by blocks, too.
  auto one = whole_;
  one.read = "blocks";
  EXPECT_EQ(batches_of(*open(one, setup_), options, 1), expected);
}

TEST_F(OpenBlocksTest, StrataIsTheOrderOfBlocksAndUsesEachSampleOnce) {
  config::DataOptions options;
  options.window = 4096;
  const auto data = open();
  ASSERT_NE(data->blocks(), nullptr);
  EXPECT_GT(data->blocks()->blocks.size(), 20U);
  const auto batches = batches_of(*data, options, 2);
  EXPECT_EQ(batches_of(*open(), options, 0), batches);
  std::vector<int> used(kRows);
  for (const auto& [samples, bytes] : batches) {
    for (const uint64_t sample : samples) ++used[sample];
  }
  int more = 0;
  for (const int times : used) {
    EXPECT_GE(times, 2);
    more += times - 2;
  }
  EXPECT_EQ(more, 17);
  // Each of these changes the order.
  for (const auto& change : {+[](config::DataOptions& o) { o.homes = "fixed"; },
                             +[](config::DataOptions& o) { o.order = "full"; }}) {
    auto other = options;
    change(other);
    EXPECT_NE(batches_of(*data, other, 0), batches);
  }
}

TEST_F(OpenBlocksTest, DataInMemoryHasNoStrata) {
  config::DataOptions options;
  options.order = "strata";
  const auto order = make_order(options, *open(whole_, setup_), 1, {.batch = 4, .lanes = 2});
  ASSERT_FALSE(order.ok());
  EXPECT_EQ(order.error().kind(), ErrorKind::kJob);
}

TEST_F(OpenBlocksTest, TheIndexIsMadeOnceAndSaved) {
  const auto first = open();
  ASSERT_EQ(saved().size(), 1U);
  const auto written = *files_->read(saved()[0]);
  EXPECT_EQ(written, save_index(*first->blocks()));
  // A second worker, or a resumed run, takes it: with another one in its place, that.
  BlockIndex other = *load_index(written);
  other.blocks.resize(3);
  ASSERT_TRUE(write_file_atomically(*files_, saved()[0], save_index(other)).ok());
  EXPECT_EQ(open()->size(), other.samples());
  setup_.index_again = true;
  const auto again = open();
  EXPECT_EQ(again->size(), uint64_t{kRows});
  EXPECT_EQ(again->hash(), first->hash());
  EXPECT_EQ(*files_->read(saved()[0]), written);
}

TEST_F(OpenBlocksTest, WorkersThatStartTogetherGetTheSameIndex) {
  std::vector<std::string> hashes(6);
  {
    std::vector<Thread> workers;
    for (auto& hash : hashes) {
      workers.emplace_back("worker", [&] { hash = open()->hash().hex(); });
    }
  }
  for (const auto& hash : hashes) EXPECT_EQ(hash, hashes[0]);
  EXPECT_EQ(saved().size(), 1U);
}

TEST_F(OpenBlocksTest, WhatTheIndexFollowsFromIsInItsName) {
  const auto name = index_name(blocks_, 512);
  EXPECT_EQ(index_name(blocks_, 512), name);
  EXPECT_NE(index_name(blocks_, 513), name);
  auto other = blocks_;
  other.header = false;
  EXPECT_NE(index_name(other, 512), name);
}

TEST_F(OpenBlocksTest, OptionsThatOnlyDecodeKeepTheIndex) {
  const auto name = [](const config::SourceOptions& options) { return index_name(options, 512); };
  auto other = blocks_;
  other.mean = {0.5};
  other.classes = 7;
  EXPECT_EQ(name(other), name(blocks_));
  other.separator = ";";
  EXPECT_NE(name(other), name(blocks_)) << "it says where lines end, and what columns there are";
  auto images = blocks_;
  images.format = "tfrecord";
  other = images;
  other.label = "fine";
  other.args = *config::parse_value("{ input: image, size: 256 }", "test");
  EXPECT_EQ(name(other), name(images));
  images.format = other.format = "a program's own";
  EXPECT_NE(name(other), name(images)) << "it may cut by its arguments";
}

TEST_F(OpenBlocksTest, AUrlThatIsSignedAgainKeepsItsIndex) {
  const auto name = [&](const std::string& path) {
    blocks_.path = path;
    return index_name(blocks_, 512);
  };
  EXPECT_EQ(name("https://h/x?X-Amz-Date=1&X-Amz-Signature=a"),
            name("https://h/x?X-Amz-Date=2&X-Amz-Signature=b"));
  EXPECT_EQ(name("https://h/x?sv=1&se=1&sig=a"), name("https://h/x?sv=1&se=2&sig=b"));
  EXPECT_NE(name("https://h/x?id=1&sig=a"), name("https://h/x?id=2&sig=a")) << "other data";
  EXPECT_NE(name("https://h/x?id=1"), name("https://h/x"));
}

// Two runs that read other samples out of the same files have other data.
TEST_F(OpenBlocksTest, TheHashFollowsFromTheOptionsThatDecode) {
  const auto differ = [&](const config::SourceOptions& options,
                          const std::vector<std::function<void(config::SourceOptions&)>>& changes) {
    std::set<std::string> hashes = {open(options, setup_)->hash().hex()};
    EXPECT_TRUE(hashes.contains(open(options, setup_)->hash().hex()));
    for (const auto& change : changes) {
      auto other = options;
      change(other);
      EXPECT_TRUE(hashes.insert(open(other, setup_)->hash().hex()).second)
          << options.format << ", change " << hashes.size() - 1;
    }
  };
  using Options = config::SourceOptions;
  const auto args = [](std::string_view yaml) {
    return [yaml](Options& o) { o.args = *config::parse_value(yaml, "test"); };
  };
  differ(blocks_, {[](Options& o) { o.mean = {0.5}; }, [](Options& o) { o.deviation = {2}; }});
  std::string lines;
  for (int i = 0; i < 20; ++i) {
    lines += R"({"x": [0, 1], "y": [1, 1], "coarse": 1, "fine": 2})"
             "\n";
  }
  setup_.store = std::make_shared<testing::FakeStore>(
      std::map<std::string, std::string>{{"s3://b/x.jsonl", lines}});
  Options records;
  records.format = "jsonl";
  records.path = "s3://b/x.jsonl";
  records.label = "coarse";
  records.classes = 3;
  records.args = *config::parse_value("{ input: x }", "test");
  differ(records,
         {[](Options& o) { o.label = "fine"; }, [](Options& o) { o.mean = {0.5}; },
          [](Options& o) { o.deviation = {2}; }, args("{ input: y }"), args("{ input: [x, y] }"),
          args("{ input: x, first_label: 1 }"), args("{ input: x, layout: hwc }"),
          args("{ ids: x, features: 2 }"), args("{ ids: y, features: 2 }"),
          args("{ ids: y, features: 4 }"), args("{ ids: x, values: y, features: 2 }")});
  setup_.store = std::make_shared<testing::FakeStore>(
      std::map<std::string, std::string>{{"s3://b/x.libsvm", "1 5 6\n0 7\n"}});
  Options ids;
  ids.format = "libsvm";
  ids.path = "s3://b/x.libsvm";
  ids.args = *config::parse_value("{ features: 4 }", "test");
  differ(ids, {args("{ features: 5 }"), args("{ features: 2, values: true }"),
               args("{ features: 4, values: true }")});
}

TEST_F(OpenBlocksTest, ACopyWithOtherTimesIsTheSameData) {
  const auto hash = open()->hash();
  std::filesystem::last_write_time(
      dir_.path("part-1.csv"),
      std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  const auto data = open();
  EXPECT_EQ(data->hash(), hash);
  Batch batch;
  EXPECT_TRUE(read_range(*data, 0, kRows, batch).ok());
}

TEST_F(OpenBlocksTest, ChangedFilesAreIndexedAgainOrFoundWhenTheyAreRead) {
  const auto hash = open()->hash();
  const auto first = saved().at(0);
  const auto written = *files_->read(first);
  dir_.write("part-3.csv", csv_rows(kRows, 5));
  const auto longer = open();
  EXPECT_EQ(longer->size(), uint64_t{kRows} + 5);
  EXPECT_NE(longer->hash(), hash);
  // A run's index is not replaced by that of a worker with other files, which has its own.
  EXPECT_EQ(*files_->read(first), written);
  EXPECT_EQ(saved().size(), 2U);
  EXPECT_EQ(open()->hash(), longer->hash());
  EXPECT_EQ(saved().size(), 2U);
  // The same length and other contents: the hash of a block says so.
  std::string rows = csv_rows(kRows, 5);
  rows[rows.size() - 2] = rows[rows.size() - 2] == '1' ? '2' : '1';
  dir_.write("part-3.csv", rows);
  Batch batch;
  const auto data = open();
  EXPECT_TRUE(read_range(*data, 0, 10, batch).ok());
  const auto status = read_range(*data, kRows, 5, batch);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message(), HasSubstr("part-3.csv"));
}

TEST_F(OpenBlocksTest, MistakesAreNamed) {
  blocks_.path = dir_.path("none-*.csv");
  EXPECT_THAT(failure(), HasSubstr("none-*.csv'"));
  blocks_.path = dir_.path("part-*.csv");
  dir_.write("part-4.csv", "a,b,x,class\n1,2,3,0\n");
  EXPECT_THAT(failure(), ::testing::AllOf(HasSubstr("part-4.csv' has other columns than"),
                                          HasSubstr("part-0.csv'")));
  dir_.write("part-4.csv", "");  // an empty one is no mistake
  EXPECT_EQ(open()->size(), uint64_t{kRows});
  blocks_.limit = 3;
  EXPECT_THAT(failure(), HasSubstr("`part` and `limit` are not possible"));
}

// A file with blocks of its own, 400 and 800 bytes long.
class OwnBlocks final : public BlockFormat {
 public:
  Result<std::vector<Extent>> cut(const ObjectReader&, uint64_t) const override {
    return std::vector<Extent>{{0, 400, 50}, {400, 800, 100}};
  }
  bool has_own_blocks() const override { return true; }
  Result<Schema> schema_of(std::span<const std::byte>, uint32_t) const override {
    return Error(ErrorKind::kInternal, "not needed here");
  }
  Result<std::unique_ptr<DecodedBlock>> decode(std::span<const std::byte>, uint32_t,
                                               const Schema&) const override {
    return Error(ErrorKind::kInternal, "not needed here");
  }
  void add_to(const Schema&, Hasher&) const override {}
};

TEST_F(OpenBlocksTest, BlocksThatAreTooLongAreRefusedBeforeTheyAreRead) {
  blocks_.path = "s3://b/x";
  blocks_.format = "parquet";
  testing::FakeStore store(
      std::map<std::string, std::string>{{blocks_.path, std::string(1200, 'x')}});
  const auto find = [&](uint64_t longest) {
    setup_.longest_block = longest;
    return find_index(blocks_, OwnBlocks(), store, setup_);
  };
  const auto expect_refused = [&] {
    const auto refused = find(799);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().kind(), ErrorKind::kData);
    EXPECT_THAT(
        refused.error().message(),
        ::testing::AllOf(HasSubstr("block 1"), HasSubstr("'s3://b/x'"),
                         HasSubstr("is longer than data.window"), HasSubstr("`muster data pack`")));
  };
  expect_refused();
  EXPECT_EQ(store.reads(), 0U);
  EXPECT_TRUE(find(800).ok());
  // One that another job has made.
  expect_refused();
  EXPECT_TRUE(find(0).ok());
}

TEST_F(OpenBlocksTest, SignaturesOfAddressesAreNeitherSavedNorPrinted) {
  blocks_.path = "https://host/x.csv?X-Amz-Signature=secret";
  auto store = std::make_shared<testing::FakeStore>(
      std::map<std::string, std::string>{{blocks_.path, csv_rows(0, kRows)}});
  setup_.store = store;
  const auto first = open();
  ASSERT_EQ(saved().size(), 1U);
  EXPECT_THAT(*files_->read(saved()[0]), ::testing::Not(HasSubstr("secret")));
  // The saved one is read from the same address.
  const uint64_t before = store->reads();
  const auto again = open();
  EXPECT_EQ(store->reads(), before + 1) << "the first block";
  EXPECT_EQ(again->hash(), first->hash());
  Batch batch;
  EXPECT_TRUE(read_range(*again, 0, kRows, batch).ok());
  store->set_after([](const store::Object&, uint64_t, std::span<std::byte> bytes) {
    for (auto& byte : bytes) byte ^= std::byte{0x80};
  });
  const auto is_named =
      ::testing::AllOf(HasSubstr("https://host/x.csv?..."), ::testing::Not(HasSubstr("secret")));
  EXPECT_THAT(failure(), is_named) << "a block without its hash";
  setup_.indexes.clear();
  EXPECT_THAT(failure(), is_named) << "while it is indexed";
}

TEST_F(OpenBlocksTest, OpeningCanBeEnded) {
  setup_.store = std::make_shared<testing::FakeStore>(
      std::map<std::string, std::string>{{"s3://b/x.csv", csv_rows(0, kRows)}});
  auto& store = static_cast<testing::FakeStore&>(*setup_.store);
  std::atomic<bool> over = false;
  store.set_before([&](const store::Object&, uint64_t) -> Status {
    while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return Error(ErrorKind::kInterrupted, "stopped");
  });
  setup_.keep_waiting = [&] {
    over = true;
    return false;
  };
  blocks_.path = "s3://b/x.csv";
  EXPECT_THAT(failure(), HasSubstr("ended while the data was indexed"));
  EXPECT_TRUE(saved().empty());
}

// A server that does not answer a list.
class SilentStore final : public store::Store {
 public:
  Result<std::vector<store::Object>> list(std::string_view address) override {
    return list_stoppable(address, {});
  }
  Result<std::vector<store::Object>> list_stoppable(std::string_view,
                                                    const std::stop_token& stop) override {
    for (int i = 0; i < 20000 && !stop.stop_requested(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return Error(ErrorKind::kIo, "no answer");
  }
  Status read(const store::Object&, uint64_t, std::span<std::byte>) override {
    return Error(ErrorKind::kIo, "no answer");
  }
};

TEST_F(OpenBlocksTest, AListThatTakesLongIsToldAndCanBeEnded) {
  setup_.store = std::make_shared<SilentStore>();
  std::string text;
  setup_.tell = [&](const std::string& what) { text = what; };
  setup_.keep_waiting = [&] { return text.empty(); };
  blocks_.path = "https://host/x.csv?sig=secret";
  EXPECT_THAT(failure(), HasSubstr("ended while the data was listed"));
  EXPECT_EQ(text, "listing 'https://host/x.csv?...'");
}

TEST_F(OpenBlocksTest, TellsWhatTakesLong) {
  setup_.store = std::make_shared<testing::FakeStore>(
      std::map<std::string, std::string>{{"s3://b/x.csv", csv_rows(0, kRows)}});
  auto& store = static_cast<testing::FakeStore&>(*setup_.store);
  std::atomic<bool> told = false;
  store.set_before([&](const store::Object&, uint64_t) -> Status {
    while (!told) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return {};
  });
  std::string text;
  setup_.tell = [&](const std::string& what) {
    text = what;
    told = true;
  };
  blocks_.path = "s3://b/x.csv";
  EXPECT_EQ(open()->size(), uint64_t{kRows});
  EXPECT_THAT(text, HasSubstr("indexing 's3://b/x.csv': 0 of 1 files, 0 B of "));
}

// Thirty objects of ten rows, and what becomes of indexing them if it is killed.
class ResumedIndexTest : public OpenBlocksTest {
 protected:
  static constexpr int kObjects = 30;

  ResumedIndexTest() {
    for (int i = 0; i < kObjects; ++i)
      objects_[fmt::format("s3://b/{:02}.csv", i)] = csv_rows(i * 10, 10);
    blocks_.path = "s3://b/*";
    setup_.stream.fetch.threads = 1;
    use_store("1");
    uninterrupted_ = save_index(*open()->blocks());
    std::filesystem::remove_all(setup_.indexes);
  }

  testing::FakeStore& use_store(const std::string& version) {
    auto store = std::make_shared<testing::FakeStore>(objects_);
    store->set_version(version);
    setup_.store = store;
    return *store;
  }

  // Indexes in a process that kills itself when it first reads this object.
  void index_until_killed_at(const std::string& object, const std::string& version = "1") {
    auto& store = use_store(version);
    store.set_before([&](const store::Object& read, uint64_t) -> Status {
      if (read.name == object) (void)::kill(::getpid(), SIGKILL);
      return {};
    });
    const pid_t child = ::fork();
    if (child == 0) {
      (void)Registry::builtin().open(blocks_, setup_);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    EXPECT_TRUE(saved().empty());
  }

  // The objects that are read when it is indexed the next time, which gives the same index as ever.
  std::set<std::string> read_by_the_next(const std::string& version = "1") {
    auto& store = use_store(version);
    std::set<std::string> names;
    store.set_before([&](const store::Object& read, uint64_t) -> Status {
      names.insert(read.name);
      return {};
    });
    auto format = Registry::builtin().block_format(blocks_);
    EXPECT_TRUE(format.ok());
    const auto found = find_index(blocks_, **format, store, setup_);
    EXPECT_TRUE(found.ok()) << found.error().message();
    if (!found.ok()) return names;
    auto index = found->index;
    for (auto& object : index.objects) object.version = "1";
    EXPECT_EQ(save_index(index), uninterrupted_);
    EXPECT_EQ(saved().size(), 1U);
    EXPECT_TRUE(partial().empty()) << "what is complete leaves nothing behind";
    return names;
  }

  std::string partial() {
    if (!std::filesystem::exists(setup_.indexes)) return "";
    for (const auto& entry : std::filesystem::directory_iterator(setup_.indexes)) {
      if (entry.path().extension() == ".partial") return entry.path().string();
    }
    return "";
  }

  std::map<std::string, std::string> objects_;
  std::string uninterrupted_;
};

TEST_F(ResumedIndexTest, ContinuesWithTheObjectThatItWasKilledAt) {
  index_until_killed_at("s3://b/12.csv");
  index_until_killed_at("s3://b/25.csv");
  const auto read = read_by_the_next();
  EXPECT_EQ(read.size(), 5U);
  EXPECT_EQ(*read.begin(), "s3://b/25.csv");
}

TEST_F(ResumedIndexTest, WhatIsTornOrDamagedIsIndexedAgain) {
  index_until_killed_at("s3://b/20.csv");
  const auto whole = *files_->read(partial());
  const auto first = whole.substr(0, whole.size() / 20);  // all entries have the same length
  // Torn in the middle of an entry, or of its length; one bit wrong; no entries at all.
  for (const auto& [bytes, known] :
       std::vector<std::pair<std::string, size_t>>{{whole.substr(0, whole.size() - 1), 19},
                                                   {first + std::string(3, '\1'), 1},
                                                   {first + std::string(100, '\xff'), 1},
                                                   {std::string(100, 'x'), 0},
                                                   {"", 0}}) {
    std::filesystem::remove_all(setup_.indexes);
    ASSERT_TRUE(files_->create_directories(setup_.indexes).ok());
    const auto path = setup_.indexes + "/" + index_name(blocks_, setup_.block) + ".partial";
    ASSERT_TRUE(write_file_atomically(*files_, path, bytes).ok());
    // What is added behind the part that was cut off is found.
    index_until_killed_at("s3://b/22.csv");
    const auto read = read_by_the_next();
    EXPECT_EQ(read.size(), 8U) << known << " known";
  }
  for (size_t at = 0; at < whole.size(); at += 61) {
    std::filesystem::remove_all(setup_.indexes);
    ASSERT_TRUE(files_->create_directories(setup_.indexes).ok());
    auto bytes = whole;
    bytes[at] ^= 4;
    const auto path = setup_.indexes + "/" + index_name(blocks_, setup_.block) + ".partial";
    ASSERT_TRUE(write_file_atomically(*files_, path, bytes).ok());
    EXPECT_EQ(read_by_the_next().size(), kObjects - at / first.size());
  }
}

TEST_F(ResumedIndexTest, ObjectsOfOtherVersionsAreIndexedAgain) {
  index_until_killed_at("s3://b/20.csv");
  EXPECT_EQ(read_by_the_next("2").size(), size_t{kObjects});
  // Nor is anything known of objects without a version: they may have changed.
  std::filesystem::remove_all(setup_.indexes);
  index_until_killed_at("s3://b/20.csv", "");
  EXPECT_EQ(read_by_the_next("").size(), size_t{kObjects});
}

TEST_F(ResumedIndexTest, AFileThatCannotBeWrittenIsDoneWithout) {
  const auto path = setup_.indexes + "/" + index_name(blocks_, setup_.block) + ".partial";
  ASSERT_TRUE(files_->create_directories(path + "/x").ok());
  const auto data = open();
  ASSERT_NE(data, nullptr);
  EXPECT_EQ(save_index(*data->blocks()), uninterrupted_);
}

}  // namespace
}  // namespace muster::data
