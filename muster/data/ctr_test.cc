#include "muster/data/ctr.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/config/node.h"

namespace muster::data {
namespace {

using ::testing::HasSubstr;

config::SourceOptions source(const std::string& args) {
  config::SourceOptions options;
  options.format = "ctr";
  options.args = config::parse_yaml(args, "job.yaml").value();
  return options;
}

std::unique_ptr<CtrDataset> open(const std::string& args = "") {
  return CtrDataset::open(source(args)).value();
}

std::string failure(const std::string& args) {
  const auto opened = CtrDataset::open(source(args));
  return opened.ok() ? "" : opened.error().message();
}

struct Sample {
  std::vector<int64_t> input;
  int64_t target = -1;
  bool operator==(const Sample&) const = default;
};

Sample sample(const Dataset& dataset, uint64_t index) {
  Sample result{.input = std::vector<int64_t>(dataset.schema().input_elements())};
  dataset.read(index, reinterpret_cast<std::byte*>(result.input.data()),
               reinterpret_cast<std::byte*>(&result.target));
  return result;
}

std::vector<Sample> samples(const Dataset& dataset, uint64_t count) {
  std::vector<Sample> result;
  for (uint64_t i = 0; i < count; ++i) result.push_back(sample(dataset, i));
  return result;
}

double click_rate(const Dataset& dataset, uint64_t count) {
  int64_t clicks = 0;
  for (const auto& each : samples(dataset, count)) clicks += each.target;
  return static_cast<double>(clicks) / static_cast<double>(count);
}

// How often each id of a column is there, the most frequent ones first.
std::vector<std::pair<double, int64_t>> shares(const Dataset& dataset, size_t column,
                                               uint64_t count) {
  std::map<int64_t, double> counts;
  for (const auto& each : samples(dataset, count)) {
    counts[each.input[column]] += 1 / static_cast<double>(count);
  }
  std::vector<std::pair<double, int64_t>> result;
  for (const auto& [id, share] : counts) result.emplace_back(share, id);
  std::sort(result.rbegin(), result.rend());
  return result;
}

std::string recorded(const std::string& args) {
  const auto dataset = open(args);
  Hasher hasher;
  for (const auto& each : samples(*dataset, 1000)) {
    hasher.add(each.input.data(), each.input.size() * sizeof(int64_t));
    hasher.add(&each.target, sizeof(each.target));
  }
  return hasher.finish().hex();
}

// If this fails, jobs that were started before train on other data: raise kVersion in ctr.cc, or
// undo the change. If it fails on one kind of machine only, the generator has lost its promise.
TEST(CtrTest, HasTheSameBitsAsEver) {
  EXPECT_EQ(recorded(""), "40d32c005772da11049ba09b8d623a6f");
  EXPECT_EQ(recorded("{ stream: 7, features: 3, ids: 1e12, numbers: 0, skew: 1.37, rate: 0.03, "
                     "noise: 0.3, seed: 5 }"),
            "99d026a701171a5d62fbdf611c682a6e");
  EXPECT_EQ(recorded("{ features: 40, ids: 5, numbers: 2, skew: 0 }"),
            "4788408fc7713022190ff0ebfbf41d62");
}

TEST(CtrTest, HasNumbersAndThenIdsOfEachFeature) {
  const auto dataset = open("{ samples: 500, features: 4, ids: 100, numbers: 2 }");
  const Schema& schema = dataset->schema();
  EXPECT_EQ(dataset->size(), 500U);
  EXPECT_EQ(schema.input, DType::kInt64);
  EXPECT_THAT(schema.input_shape, ::testing::ElementsAre(6));
  EXPECT_EQ(schema.target, DType::kInt64);
  EXPECT_TRUE(schema.target_shape.empty());
  EXPECT_EQ(schema.classes, 2);
  EXPECT_EQ(schema.numbers, 2);
  EXPECT_TRUE(schema.has_ids);
  for (const auto& each : samples(*dataset, 500)) {
    EXPECT_TRUE(each.target == 0 || each.target == 1);
    for (int64_t feature = 0; feature < 4; ++feature) {
      const int64_t id = each.input[2 + static_cast<size_t>(feature)];
      EXPECT_EQ(id / 100, feature);
    }
  }
}

TEST(CtrTest, NumbersAreBoundedWithMeanZeroAndDeviationOne) {
  const auto dataset = open("{ numbers: 2, features: 1 }");
  constexpr int kCount = 20000;
  double sum = 0;
  double squares = 0;
  for (const auto& each : samples(*dataset, kCount)) {
    const double x = static_cast<double>(each.input[1]) * 0x1p-16;
    EXPECT_LE(std::abs(x), 3);
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.03);
  EXPECT_NEAR(squares / kCount, 1, 0.03);
}

TEST(CtrTest, ASampleIsAFunctionOfItsIndex) {
  const auto dataset = open();
  const auto before = samples(*dataset, 100);
  for (uint64_t i = 100; i-- > 0;) EXPECT_EQ(sample(*dataset, i), before[i]);
  EXPECT_EQ(samples(*open(), 100), before) << "opened again";
  EXPECT_EQ(samples(*open("{ samples: 1e12 }"), 100), before) << "however many there are";
  std::vector<Sample> elsewhere;
  std::thread([&] { elsewhere = samples(*dataset, 100); }).join();
  EXPECT_EQ(elsewhere, before);
  EXPECT_NE(sample(*dataset, 0), sample(*dataset, 1));
}

TEST(CtrTest, AColumnDoesNotDependOnTheOthers) {
  const auto few = open("{ features: 2, numbers: 1 }");
  const auto many = open("{ features: 5, numbers: 4 }");
  for (uint64_t i = 0; i < 50; ++i) {
    const Sample a = sample(*few, i);
    const Sample b = sample(*many, i);
    EXPECT_EQ(a.input[0], b.input[0]);
    EXPECT_EQ(a.input[1], b.input[4]);
    EXPECT_EQ(a.input[2], b.input[5]);
  }
}

TEST(CtrTest, TakesAPart) {
  const auto all = open("{ samples: 1000 }");
  auto options = source("{ samples: 1000 }");
  options.part = {0.5, 1};
  options.limit = 20;
  const auto part = CtrDataset::open(options).value();
  ASSERT_EQ(part->size(), 20U);
  EXPECT_EQ(sample(*part, 3), sample(*all, 503));
  EXPECT_EQ(part->planted_score(3), all->planted_score(503));
}

TEST(CtrTest, WorksFarBehindWhatMemoryHolds) {
  const auto dataset = open("{ samples: 1099511627776, ids: 1099511627776 }");
  EXPECT_EQ(dataset->size(), uint64_t{1} << 40);
  const Sample last = sample(*dataset, dataset->size() - 1);
  EXPECT_EQ(last.input.back() >> 40, 25);
  EXPECT_NE(last, sample(*dataset, dataset->size() - 2));
}

TEST(CtrTest, ClicksAreAsFrequentAsAsked) {
  EXPECT_NEAR(click_rate(*open(), 20000), 0.25, 0.015);
  EXPECT_NEAR(click_rate(*open("{ rate: 0.03, stream: 3 }"), 20000), 0.03, 0.006);
  EXPECT_NEAR(click_rate(*open("{ rate: 0.6, noise: 0, features: 2, numbers: 1 }"), 20000), 0.6,
              0.02);
}

TEST(CtrTest, IdsFollowZipf) {
  double all = 0;
  double ten = 0;
  for (int rank = 100000; rank >= 1; --rank) {
    all += std::pow(rank, -1.05);
    if (rank <= 10) ten += std::pow(rank, -1.05);
  }
  constexpr size_t kColumn = 13;
  const auto found = shares(*open(), kColumn, 20000);
  EXPECT_NEAR(found[0].first, 1 / all, 0.008);
  EXPECT_NEAR(found[1].first, std::pow(2, -1.05) / all, 0.008);
  double most_frequent = 0;
  for (size_t i = 0; i < 10; ++i) most_frequent += found[i].first;
  EXPECT_NEAR(most_frequent, ten / all, 0.015);
  EXPECT_GT(found.size(), 4000U) << "many ids are rare";
  EXPECT_NEAR(shares(*open("{ ids: 10, skew: 0 }"), kColumn, 20000)[0].first, 0.1, 0.01);
}

TEST(CtrTest, FrequentIdsAreNotTheSmallOnes) {
  const auto dataset = open("{ features: 10, ids: 1000, numbers: 0 }");
  std::set<int64_t> most_frequent;
  for (size_t column = 0; column < 10; ++column) {
    most_frequent.insert(shares(*dataset, column, 2000)[0].second % 1000);
  }
  EXPECT_GE(most_frequent.size(), 8U) << "each feature has its own";
  EXPECT_GT(*most_frequent.rbegin(), 500);
}

TEST(CtrTest, EveryIdIsReached) {
  const auto dataset = open("{ features: 1, ids: 37, skew: 0.5, numbers: 0 }");
  EXPECT_EQ(shares(*dataset, 0, 5000).size(), 37U);
}

TEST(CtrTest, StreamsAreOtherSamplesOfOnePopulation) {
  const auto train = open();
  const auto test = open("{ stream: 1, samples: 20000 }");
  EXPECT_NE(sample(*train, 0), sample(*test, 0));
  EXPECT_NE(train->hash(), test->hash());
  EXPECT_TRUE(check_compatible(train->schema(), test->schema()).ok());
  constexpr size_t kColumn = 13;
  const auto a = shares(*train, kColumn, 10000);
  const auto b = shares(*test, kColumn, 10000);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(a[i].second, b[i].second) << "rank " << i;
  // One model: where inputs are equal, so is the score.
  const auto left = open("{ features: 2, ids: 2, numbers: 0 }");
  const auto right = open("{ features: 2, ids: 2, numbers: 0, stream: 9 }");
  std::map<std::vector<int64_t>, double> scores;
  for (uint64_t i = 0; i < 50; ++i) scores[sample(*left, i).input] = left->planted_score(i);
  for (uint64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(scores.at(sample(*right, i).input), right->planted_score(i));
  }
  const auto other = open("{ seed: 2 }");
  EXPECT_NE(shares(*other, kColumn, 2000)[0].second, a[0].second) << "another population";
}

TEST(CtrTest, TheBestAucIsKnown) {
  const auto dataset = open();
  const double best = dataset->best_auc(0, 20000);
  EXPECT_GT(best, 0.7);
  EXPECT_LT(best, 0.95);
  EXPECT_NEAR(best, 0.85, 0.02) << "as README.md says";
  EXPECT_NEAR(open("{ stream: 1 }")->best_auc(1000, 20000), best, 0.015);
  EXPECT_EQ(open("{ noise: 0 }")->best_auc(0, 5000), 1.0);
  EXPECT_LT(open("{ noise: 5 }")->best_auc(0, 20000), 0.65);
  EXPECT_EQ(dataset->best_auc(0, 1), 0.5) << "one class only";
  EXPECT_EQ(dataset->best_auc(0, 0), 0.5);
  // Whatever the columns: noise is in proportion to what the model says.
  EXPECT_NEAR(open("{ features: 3, numbers: 0 }")->best_auc(0, 20000), best, 0.05);
  EXPECT_NEAR(open("{ features: 100, numbers: 100 }")->best_auc(0, 20000), best, 0.05);
}

TEST(CtrTest, TheHashIsOfTheArguments) {
  const auto hash = [](const std::string& args) { return open(args)->hash(); };
  const Hash128 before = hash("{ ids: 50, features: 3 }");
  EXPECT_EQ(hash("{ ids: 50, features: 3, skew: 1.05 }"), before);
  for (const char* other :
       {"{ ids: 51, features: 3 }", "{ ids: 50, features: 2, numbers: 14 }",
        "{ ids: 50, features: 3, seed: 2 }", "{ ids: 50, features: 3, stream: 1 }",
        "{ ids: 50, features: 3, skew: 1.06 }", "{ ids: 50, features: 3, rate: 0.2 }",
        "{ ids: 50, features: 3, noise: 2 }", "{ ids: 50, features: 3, samples: 99 }"}) {
    EXPECT_NE(hash(other), before) << other;
  }
  auto options = source("{ ids: 50, features: 3, samples: 2e6 }");
  options.limit = 1000000;
  EXPECT_EQ(CtrDataset::open(options).value()->hash(), before) << "the same samples";
  options.part = {0.5, 1};
  EXPECT_NE(CtrDataset::open(options).value()->hash(), before);
}

TEST(CtrTest, RefusesArgumentsThatMakeNoSense) {
  EXPECT_EQ(failure("{ samples: 0 }"),
            "job.yaml:1:12: samples must be from 1 to 1099511627776, not 0");
  EXPECT_THAT(failure("{ ids: 1 }"), HasSubstr("ids must be from 2 to 1099511627776, not 1"));
  EXPECT_THAT(failure("{ features: 0 }"), HasSubstr("features must be from 1 to"));
  EXPECT_THAT(failure("{ numbers: -1 }"), HasSubstr("numbers must be from 0 to"));
  EXPECT_THAT(failure("{ stream: -1 }"), HasSubstr("stream must be from 0 to"));
  EXPECT_THAT(failure("{ seed: -1 }"), HasSubstr("seed must be from 0 to"));
  EXPECT_THAT(failure("{ skew: -0.5 }"), HasSubstr("skew must be from 0 to 10, not -0.5"));
  EXPECT_THAT(failure("{ rate: 0 }"), HasSubstr("rate must be from 0.001 to 0.999, not 0"));
  EXPECT_THAT(failure("{ noise: 101 }"), HasSubstr("noise must be from 0 to 100"));
  EXPECT_THAT(failure("{ ids: many }"), HasSubstr("ids must be a whole number, not 'many'"));
  EXPECT_THAT(failure("{ sample: 5 }"),
              HasSubstr("the format ctr has no option 'sample' (did you mean 'samples'?)"));
  EXPECT_THAT(failure("[1]"), HasSubstr("the format ctr must be a map"));
}

TEST(CtrTest, IsInTheRegistry) {
  const auto opened = Registry::builtin().open(source("{ samples: 10 }"));
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  EXPECT_EQ((*opened)->size(), 10U);
}

TEST(CtrTest, TrainingAndTestDataHaveTheSameColumns) {
  const auto message = [](const std::string& train, const std::string& test) {
    return check_compatible(open(train)->schema(), open(test)->schema()).error().message();
  };
  EXPECT_EQ(message("{ features: 3, numbers: 2 }", "{ features: 2, numbers: 3 }"),
            "a training sample has 2 numbers before its ids and a test sample 3; they must be the "
            "same");
  EXPECT_EQ(message("{ features: 3 }", "{ features: 2 }"),
            "a training sample has the shape [16] and a test sample [15]; they must be the same: "
            "set `features` in the `args` of both");
}

}  // namespace
}  // namespace muster::data
