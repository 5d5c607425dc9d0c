#include "muster/data/pack/pack.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/random.h"
#include "muster/data/batch.h"
#include "muster/data/blocks/block_dataset.h"
#include "muster/data/blocks/open_blocks.h"
#include "muster/data/data_testing.h"
#include "muster/data/pack/sample_writer.h"
#include "muster/data/permutation.h"

namespace muster::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempDir;

constexpr uint64_t kRows = 500;

// Rows of three numbers, not representable exactly, and a class.
std::string csv_rows() {
  RandomStream random(1, Purpose::kUser);
  std::string text = "a,b,c,class\n";
  for (uint64_t i = 0; i < kRows; ++i) {
    text += fmt::format("{},{},{},{}\n", random.normal(), random.normal(), i, i % 7);
  }
  return text;
}

class PackTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto status = check_packed_format(GetParam());
    if (!status.ok()) GTEST_SKIP() << status.error().message();
  }

  config::SourceOptions csv(bool by_blocks) const {
    config::SourceOptions options;
    options.format = "csv";
    options.path = dir_.write("rows.csv", csv_rows());
    options.read = by_blocks ? "blocks" : "whole";
    options.classes = 7;
    options.mean = {0.3};
    options.deviation = {1.7};
    return options;
  }

  // As bytes, with images of 2 x 3 pixels.
  config::SourceOptions idx() const {
    std::string images(
        "\0\0\x08\x03"
        "\0\0\0\x28\0\0\0\x02\0\0\0\x03",
        16);
    std::string labels(
        "\0\0\x08\x01"
        "\0\0\0\x28",
        8);
    for (int i = 0; i < 40; ++i) {
      for (int p = 0; p < 6; ++p) images.push_back(static_cast<char>(i * 6 + p));
      labels.push_back(static_cast<char>(i % 10));
    }
    config::SourceOptions options;
    options.format = "idx";
    options.images = dir_.write("images", images);
    options.labels = dir_.write("labels", labels);
    options.mean = {0.1307};
    options.deviation = {0.3081};
    return options;
  }

  // With three channels of 2 x 1 pixels, each scaled by numbers of its own.
  config::SourceOptions colours() const {
    std::string images(
        "\0\0\x08\x04"
        "\0\0\0\x28\0\0\0\x03\0\0\0\x02\0\0\0\x01",
        20);
    for (int i = 0; i < 240; ++i) images.push_back(static_cast<char>(i));
    config::SourceOptions options = idx();
    options.images = dir_.write("colours", images);
    options.mean = {0.485, 0.456, 0.406};
    options.deviation = {0.229, 0.224, 0.225};
    return options;
  }

  // Lists of up to five ids, some of none, in the order of the file.
  config::SourceOptions id_lists(bool with_values) const {
    RandomStream random(2, Purpose::kUser);
    std::string lines;
    for (int i = 0; i < 90; ++i) {
      std::string ids;
      std::string values;
      for (int j = 0; j < i % 6; ++j) {
        const char* comma = j == 0 ? "" : ", ";
        ids += fmt::format("{}{}", comma, j == 4 ? (1ULL << 53) - 1 : random.below(1000000));
        values += fmt::format("{}{}", comma, j == 3 ? 0.0 : random.normal());
      }
      lines += fmt::format("{{\"label\": {}, \"i\": [{}], \"v\": [{}]}}\n", i % 3, ids, values);
    }
    config::SourceOptions options;
    options.format = "jsonl";
    options.path = dir_.write("ids.jsonl", lines);
    options.classes = 3;
    options.args = *config::parse_value(
        with_values ? "{ ids: i, values: v, features: 7 }" : "{ ids: i, features: 7 }", "test");
    return options;
  }

  config::SourceOptions clicks(bool with_values) const {
    std::string lines;
    for (int i = 0; i < 200; ++i) {
      lines += i % 3 == 0 ? "1" : "0";
      for (int j = 0; j <= i % 4; ++j) {
        lines += with_values ? fmt::format(" {}:{}", i * 7 + j, i * 0.1 - j)
                             : fmt::format(" {}", i * 7 + j);
      }
      lines += "\n";
    }
    config::SourceOptions options;
    options.format = "libsvm";
    options.path = dir_.write(with_values ? "values.libsvm" : "clicks.libsvm", lines);
    options.args = *config::parse_value(with_values ? "{ values: true }" : "{}", "test");
    return options;
  }

  config::SourceOptions text(const std::string& unit) const {
    std::string contents;
    for (int i = 0; i < 300; ++i) contents += fmt::format("{} \xc3\xa9t\xc3\xa9;", i);
    config::SourceOptions options;
    options.format = "text";
    options.unit = unit;
    options.context = 9;
    options.path = dir_.write("text", contents);
    return options;
  }

  config::SourceOptions tokens() const {
    std::string contents;
    RandomStream random(3, Purpose::kUser);
    for (int i = 0; i < 1001; ++i) {
      const auto token = static_cast<uint16_t>(random.below(50257));
      contents.append(reinterpret_cast<const char*>(&token), sizeof(token));
    }
    config::SourceOptions options;
    options.format = "tokens";
    options.path = dir_.write("tokens.bin", contents);
    options.classes = 50257;
    options.context = 12;
    return options;
  }

  PackOptions to(const std::string& name) const {
    PackOptions options;
    options.directory = dir_.path(name);
    options.format = GetParam();
    options.block = uint64_t{40} * 20;  // 40 samples of the csv file
    options.file = uint64_t{40} * 20 * 3;
    options.seed = 9;
    return options;
  }

  Result<Packed> run(const config::SourceOptions& source, const PackOptions& options) const {
    MUSTER_TRY(const auto dataset, open(source));
    return pack(*dataset, source, options, *files_);
  }

  static Result<std::unique_ptr<Dataset>> open(const config::SourceOptions& source) {
    BlockSetup setup;
    setup.block = 700;
    return Registry::builtin().open(source, setup);
  }

  // All samples, each as its bytes.
  static std::vector<std::string> contents(const config::SourceOptions& source) {
    const auto dataset = open(source);
    EXPECT_TRUE(dataset.ok()) << dataset.error().message();
    if (!dataset.ok()) return {};
    const Schema& schema = (*dataset)->schema();
    Batch batch;
    const auto status = read_range(**dataset, 0, (*dataset)->size(), batch);
    EXPECT_TRUE(status.ok()) << status.error().message();
    std::vector<std::string> samples;
    for (uint64_t i = 0; i < batch.count; ++i) {
      const auto* input = reinterpret_cast<const char*>(batch.inputs.data());
      const auto* target = reinterpret_cast<const char*>(batch.targets.data());
      samples.push_back(std::string(input + i * schema.input_bytes(), schema.input_bytes()) +
                        std::string(target + i * schema.target_bytes(), schema.target_bytes()));
    }
    return samples;
  }

  // Of a directory, by name.
  std::map<std::string, std::string> bytes_in(const std::string& name) const {
    std::map<std::string, std::string> all;
    const auto names = files_->list(dir_.path(name));
    for (const auto& it : *names) all[it] = *files_->read(dir_.path(name) + "/" + it);
    return all;
  }

  TempDir dir_;
  std::unique_ptr<FileSystem> files_ = posix_file_system();
};

TEST_P(PackTest, NumbersKeepTheirBits) {
  const auto packed = run(csv(false), to("out"));
  ASSERT_TRUE(packed.ok()) << packed.error().message();
  EXPECT_EQ(packed->samples, kRows);
  EXPECT_EQ(packed->files, 5U);
  EXPECT_EQ(packed->blocks, 13U);
  EXPECT_THAT(packed->source.mean, ElementsAre(0)) << "they are scaled already";
  EXPECT_EQ(contents(packed->source), contents(csv(false)));
}

TEST_P(PackTest, PixelsAreStoredAsBytes) {
  const auto packed = run(idx(), to("out"));
  ASSERT_TRUE(packed.ok()) << packed.error().message();
  EXPECT_THAT(packed->source.mean, ElementsAre(0.1307));
  EXPECT_EQ(packed->source.classes, 10);
  const auto dataset = open(packed->source);
  ASSERT_TRUE(dataset.ok()) << dataset.error().message();
  EXPECT_THAT((*dataset)->schema().input_shape, ElementsAre(1, 2, 3));
  EXPECT_TRUE((*dataset)->schema().pixels);
  EXPECT_EQ(contents(packed->source), contents(idx()));
  // What was packed can be packed.
  const auto again = run(packed->source, to("again"));
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_EQ(contents(again->source), contents(idx()));
}

TEST_P(PackTest, EachChannelKeepsItsScaling) {
  const auto packed = run(colours(), to("out"));
  ASSERT_TRUE(packed.ok()) << packed.error().message();
  EXPECT_EQ(packed->source.mean, colours().mean);
  EXPECT_EQ(packed->source.deviation, colours().deviation);
  const auto samples = contents(packed->source);
  EXPECT_EQ(samples, contents(colours()));
  const auto dataset = open(packed->source);
  EXPECT_THAT((*dataset)->schema().padding,
              ElementsAre(::testing::FloatNear(-0.485 / 0.229, 1e-6),
                          ::testing::FloatNear(-0.456 / 0.224, 1e-6),
                          ::testing::FloatNear(-0.406 / 0.225, 1e-6)));
  // The second sample begins with the bytes 6 to 11.
  std::array<float, 6> input{};
  std::memcpy(input.data(), samples[1].data(), sizeof(input));
  const auto source = colours();
  for (size_t i = 0; i < 6; ++i) {
    const double pixel = static_cast<double>(6 + i) / 255;
    EXPECT_EQ(input[i], static_cast<float>((pixel - source.mean[i / 2]) / source.deviation[i / 2]));
  }
  auto wrong = packed->source;
  wrong.mean = {0.5, 0.5};
  wrong.deviation = {1};
  EXPECT_FALSE(open(wrong).ok());
}

TEST_P(PackTest, EachColumnKeepsItsScaling) {
  auto whole = csv(false);
  auto blocks = csv(true);
  const auto columns = static_cast<size_t>((*open(whole))->schema().input_shape[0]);
  whole.mean.resize(columns);
  for (size_t i = 0; i < columns; ++i) whole.mean[i] = static_cast<double>(i);
  blocks.mean = whole.mean;
  EXPECT_EQ(contents(blocks), contents(whole));
  const auto packed = run(blocks, to("out"));
  ASSERT_TRUE(packed.ok()) << packed.error().message();
  EXPECT_EQ(contents(packed->source), contents(whole));
  blocks.mean.push_back(0);
  const auto wrong = open(blocks);
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(wrong.error().message(), HasSubstr("one for each channel or column"));
}

TEST_P(PackTest, ValuesAreTargets) {
  auto source = csv(true);
  source.target = "value";
  source.classes = 0;
  const auto packed = run(source, to("out"));
  ASSERT_TRUE(packed.ok()) << packed.error().message();
  EXPECT_EQ(packed->source.target, "value");
  EXPECT_EQ(contents(packed->source), contents(source));
}

TEST_P(PackTest, ListsOfIdsAndTokensKeepTheirBits) {
  std::vector<config::SourceOptions> sources = {id_lists(false), id_lists(true), clicks(false),
                                                clicks(true),    text("bytes"),  text("characters"),
                                                tokens()};
  auto values = id_lists(true);
  values.target = "value";
  sources.push_back(values);
  auto overlapping = tokens();
  overlapping.args = *config::parse_value("{ stride: 5 }", "test");
  sources.push_back(overlapping);
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto& source = sources[i];
    SCOPED_TRACE(fmt::format("source {}, {}", i, source.format));
    auto options = to(fmt::format("out{}", i));
    options.block = 1000;
    options.file = 3000;
    const auto packed = run(source, options);
    ASSERT_TRUE(packed.ok()) << packed.error().message();
    EXPECT_GE(packed->files, 2U);
    const auto expected = contents(source);
    EXPECT_EQ(contents(packed->source), expected);
    const auto before = open(source);
    const auto after = open(packed->source);
    ASSERT_TRUE(before.ok() && after.ok());
    auto a = (*before)->schema();
    a.vocabulary.clear();  // what tokens stand for is not packed
    const auto& b = (*after)->schema();
    EXPECT_TRUE(check_compatible(a, b).ok()) << check_compatible(a, b).error().message();
    EXPECT_EQ(a.classes, b.classes);
    EXPECT_EQ(a.ids_are_a_bag, b.ids_are_a_bag);
    // Shuffled; and what was packed can be packed.
    options.shuffle = true;
    options.directory = dir_.path(fmt::format("again{}", i));
    const auto again = run(packed->source, options);
    ASSERT_TRUE(again.ok()) << again.error().message();
    const auto shuffled = contents(again->source);
    const Permutation order(expected.size(), RandomStream(9, Purpose::kPack));
    ASSERT_EQ(shuffled.size(), expected.size());
    for (uint64_t p = 0; p < shuffled.size(); ++p) EXPECT_EQ(shuffled[p], expected[order(p)]) << p;
  }
}

TEST_P(PackTest, ShufflesByTheSeedHoweverTheDataIsRead) {
  auto options = to("whole");
  options.shuffle = true;
  const auto whole = run(csv(false), options);
  options.directory = dir_.path("blocks");
  const auto blocks = run(csv(true), options);
  ASSERT_TRUE(whole.ok()) << whole.error().message();
  ASSERT_TRUE(blocks.ok()) << blocks.error().message();
  auto a = bytes_in("whole");
  auto b = bytes_in("blocks");
  a.erase("pack.json");  // the data set is another one
  b.erase("pack.json");
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.size(), 5U) << "nothing else is left";

  const auto before = contents(csv(false));
  const auto after = contents(whole->source);
  ASSERT_EQ(after.size(), kRows);
  const Permutation order(kRows, RandomStream(9, Purpose::kPack));
  for (uint64_t i = 0; i < kRows; ++i) EXPECT_EQ(after[i], before[order(i)]) << i;

  options.directory = dir_.path("other");
  options.seed = 10;
  const auto other = run(csv(false), options);
  ASSERT_TRUE(other.ok());
  EXPECT_NE(contents(other->source), after);
}

// Ended after every possible call of progress, then run again.
TEST_P(PackTest, ContinuesAfterTheLastCompleteFile) {
  for (const bool by_blocks : {false, true}) {
    const std::string name = by_blocks ? "blocks" : "whole";
    auto options = to(name);
    options.shuffle = true;
    ASSERT_TRUE(run(csv(by_blocks), options).ok());
    const auto expected = bytes_in(name);
    options.directory = dir_.path(name + "-in-parts");
    int parts = 0;
    for (bool done = false; !done; ++parts) {
      ASSERT_LT(parts, 100);
      // One more call than it takes to complete the first file.
      int left = by_blocks && parts == 0 ? 5 : by_blocks && parts == 1 ? 13 + 4 : 4;
      options.progress = [&](const PackProgress& progress) {
        EXPECT_LE(progress.samples_done, progress.samples);
        return --left > 0;
      };
      const auto packed = run(csv(by_blocks), options);
      done = packed.ok();
      if (!done) {
        EXPECT_EQ(packed.error().kind(), ErrorKind::kInterrupted) << packed.error().message();
      }
    }
    EXPECT_GE(parts, 4);
    EXPECT_EQ(bytes_in(name + "-in-parts"), expected);
  }
}

// Records of which little is read, as large photos of which small images are made.
TEST_P(PackTest, HoldsFewBlocksThoughAllSamplesAreSmall) {
  const std::string unread(200'000, 'u');
  std::string lines;
  for (int i = 0; i < 150; ++i) {
    lines += fmt::format("{{\"label\": {}, \"x\": [{}], \"unread\": \"{}\"}}\n", i % 3, i, unread);
  }
  config::SourceOptions source;
  source.format = "jsonl";
  source.path = dir_.write("large.jsonl", lines);
  source.classes = 3;
  source.args = *config::parse_value("{ input: x }", "test");
  BlockSetup setup;
  setup.block = 1 << 20;
  setup.stream.fetch.memory = 1 << 20;
  for (const bool shuffle : {false, true}) {
    const auto dataset = Registry::builtin().open(source, setup);
    ASSERT_TRUE(dataset.ok()) << dataset.error().message();
    auto options = to(shuffle ? "shuffled" : "out");
    options.block = options.file = 1 << 20;
    options.shuffle = shuffle;
    const auto packed = pack(**dataset, source, options, *files_);
    ASSERT_TRUE(packed.ok()) << packed.error().message();
    EXPECT_EQ(packed->samples, 150U);
    const auto& blocks = dynamic_cast<const BlockDataset&>(**dataset);
    EXPECT_LT(blocks.cache().counters().most_bytes, lines.size() * 2 / 3);
    if (!shuffle) {
      EXPECT_EQ(contents(packed->source), contents(source));
    }
  }
}

TEST_P(PackTest, RefusesADirectoryWithOtherThings) {
  auto options = to("out");
  ASSERT_TRUE(run(csv(false), options).ok());
  ASSERT_TRUE(run(csv(false), options).ok()) << "it is done already";
  options.shuffle = true;
  EXPECT_THAT(run(csv(false), options).error().message(), HasSubstr("other options"));
  options.shuffle = false;
  EXPECT_THAT(run(idx(), options).error().message(), HasSubstr("other data"));
  std::filesystem::create_directory(dir_.path("mine"));
  dir_.write("mine/x", "x");
  options.directory = dir_.path("mine");
  EXPECT_THAT(run(csv(false), options).error().message(), HasSubstr("not empty"));
}

INSTANTIATE_TEST_SUITE_P(Formats, PackTest, ::testing::ValuesIn(packed_formats()),
                         [](const auto& format) { return format.param; });

TEST(PackErrorsTest, SaysWhatCannotBePacked) {
  const TempDir dir;
  const auto files = posix_file_system();
  PackOptions options;
  options.directory = dir.path("out");
  const auto failure = [&](const config::SourceOptions& source) {
    const auto dataset = Registry::builtin().open(source);
    EXPECT_TRUE(dataset.ok()) << dataset.error().message();
    const auto packed = pack(**dataset, source, options, *files);
    return packed.ok() ? std::string() : packed.error().message();
  };
  config::SourceOptions clicks;
  clicks.format = "ctr";
  clicks.args = *config::parse_value("{ samples: 100 }", "test");
  EXPECT_THAT(failure(clicks), HasSubstr("ids in columns of their own"));
  config::SourceOptions large;
  large.format = "libsvm";
  large.path = dir.write("large.libsvm", "1 5\n0 9007199254740992\n");
  EXPECT_THAT(failure(large), ::testing::AllOf(HasSubstr("sample 1: "), HasSubstr("below 2^53")));
  options.format = "tfrecords";
  EXPECT_THAT(failure(clicks), HasSubstr("did you mean 'tfrecord'?"));
}

}  // namespace
}  // namespace muster::data
