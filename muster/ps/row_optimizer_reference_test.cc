// Rows against torch.optim, with sparse gradients: testdata/row_optimizers.txt has what torch did,
// and row_optimizers.py beside it has made it and says what its lines mean.
//
// The rows are in a TableData and get their gradients lane by lane, as on a server.
#include <bit>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/ps/table_data.h"

namespace muster::ps {
namespace {

struct Add {
  uint16_t lane = 0;
  uint64_t key = 0;
  std::vector<float> gradient;
};

struct Step {
  double lr = 0;
  std::vector<Add> adds;
  std::map<uint64_t, std::vector<float>> after;  // weights, then state
};

struct Case {
  uint32_t width = 0;
  double eps = 0;
  std::map<uint64_t, std::vector<float>> rows;
  std::vector<Step> steps;
};

std::vector<float> read_floats(std::istream& line) {
  std::vector<float> floats;
  line >> std::hex;
  for (uint32_t bits = 0; line >> bits;) floats.push_back(std::bit_cast<float>(bits));
  return floats;
}

std::map<std::string, Case> read_cases(const std::string& path) {
  std::map<std::string, Case> cases;
  Case* now = nullptr;
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) {
    std::istringstream line(text);
    std::string word;
    line >> word;
    uint64_t key = 0;
    if (word == "case") {
      line >> word;
      now = &cases[word];
      line >> now->width >> now->eps;
    } else if (word == "row") {
      line >> key;
      now->rows[key] = read_floats(line);
    } else if (word == "step") {
      line >> now->steps.emplace_back().lr;
    } else if (word == "add") {
      Add& add = now->steps.back().adds.emplace_back();
      line >> add.lane >> add.key;
      add.gradient = read_floats(line);
    } else if (word == "after") {
      line >> key;
      now->steps.back().after[key] = read_floats(line);
    }
  }
  return cases;
}

// What torch's case is to be compared with.
struct Compared {
  const char* name;
  RowRule rule;
  size_t skipped = 0;    // floats of our state, by weight, before what torch has too
  float update_error{};  // of one update of a weight, at most
};

// Weights are below 1 and updates below 1/4. State has the same bits. An update is a quotient times
// a rate in torch, and a product by a root here: two roundings each, so both together are off by
// 2^-22 of it, 2^-24. Adding it to the weight rounds both, by 2^-25 each; sgd in torch adds the
// gradients of a key one by one, which is one rounding more. That makes less than 2^-23.
constexpr float kError = 0x1p-23F;
// ftrl has no weights of its own: they are z by a denominator. z is rounded three times in an
// update and the roots in it twice, which is as much of a weight; then the weight three times.
constexpr float kFtrlError = 0x1p-21F;

class RowOptimizerReference : public ::testing::TestWithParam<Compared> {
 protected:
  void SetUp() override {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): tests have one thread here
    const char* source = std::getenv("MUSTER_SOURCE_DIR");
    if (source == nullptr) GTEST_SKIP() << "MUSTER_SOURCE_DIR is not set; run it through ctest";
    auto cases = read_cases(std::string(source) + "/muster/ps/testdata/row_optimizers.txt");
    case_ = std::move(cases[GetParam().name]);
    ASSERT_EQ(case_.steps.size(), 8U);
    auto& options = tables_.emplace_back();
    options.width = case_.width;
    options.optimizer = {.rule = GetParam().rule, .lr = 0.05};
    options.optimizer.eps = case_.eps > 0 ? case_.eps : 1;  // sgd has none
    options.optimizer.beta = case_.eps;
    data_.emplace(0, 1, tables_, slabs_);
    for (const auto& [key, weights] : case_.rows) {
      std::vector<float> values = weights;
      values.resize(case_.width + tables_[0].optimizer.state(case_.width));
      tables_[0].optimizer.begin(values.data(), case_.width);
      ASSERT_TRUE(data_->table(0).put(key, 0, 1, values).ok());
    }
  }

  void push(const Step& step, int64_t number) {
    for (uint16_t lane = 0; lane < 2; ++lane) {
      PushHeader header{.kind = PushKind::kAdd, .lane = lane, .step = number, .lr = step.lr};
      std::vector<uint64_t> keys;
      std::vector<float> gradients;
      for (const Add& add : step.adds) {
        if (add.lane != lane) continue;
        keys.push_back(add.key);
        gradients.insert(gradients.end(), add.gradient.begin(), add.gradient.end());
      }
      ASSERT_TRUE(data_->apply(push_bytes(header, keys, gradients)).ok());
    }
    ASSERT_TRUE(data_->apply(push_bytes({.kind = PushKind::kCommit, .step = number}, {}, {})).ok());
  }

  std::map<uint64_t, std::vector<float>> rows() {
    std::map<uint64_t, std::vector<float>> found;
    const size_t values = case_.width + tables_[0].optimizer.state(case_.width);
    data_->table(0).for_each_row(
        [&](const Row& row) { found[row.key].assign(row.values(), row.values() + values); });
    return found;
  }

  // `updates`: of this row up to now.
  void compare(const std::vector<float>& ours, const std::vector<float>& torchs, float updates) {
    const size_t width = case_.width;
    ASSERT_GE(torchs.size(), width);
    const size_t state = torchs.size() - width;
    ASSERT_EQ(ours.size(), torchs.size() + GetParam().skipped * width);
    for (size_t i = 0; i < width; ++i) {
      EXPECT_NEAR(ours[i], torchs[i], updates * GetParam().update_error);
    }
    const std::vector<float> our_state(ours.end() - static_cast<ptrdiff_t>(state), ours.end());
    EXPECT_THAT(our_state, ::testing::ElementsAreArray(torchs.data() + width, state));
  }

  Case case_;
  std::vector<TableOptions> tables_;
  Slabs slabs_;
  std::optional<TableData> data_;
};

TEST_P(RowOptimizerReference, DoesWhatTorchDoes) {
  std::map<uint64_t, float> updates;
  size_t repeated = 0;
  for (size_t t = 0; t < case_.steps.size(); ++t) {
    SCOPED_TRACE(testing::Message() << "step " << t);
    const Step& step = case_.steps[t];
    const auto before = rows();
    push(step, static_cast<int64_t>(t));
    repeated += step.adds.size() - step.after.size();
    for (const auto& [key, values] : rows()) {
      SCOPED_TRACE(testing::Message() << "key " << key);
      const auto expected = step.after.find(key);
      if (expected == step.after.end()) {
        EXPECT_EQ(values, before.at(key));
      } else {
        compare(values, expected->second, ++updates[key]);
      }
    }
  }
  EXPECT_GT(repeated, 0U);
  EXPECT_EQ(case_.steps[4].adds.size(), 0U);
}

// Torch has neither row_adagrad nor ftrl. With one weight in a row, row_adagrad is adagrad. Without
// l1 and l2, ftrl is adagrad with eps = beta (McMahan: "Follow-the-regularized-leader and mirror
// descent", AISTATS 2011).
INSTANTIATE_TEST_SUITE_P(
    Rules, RowOptimizerReference,
    ::testing::Values(Compared{"sgd", RowRule::kSgd, 0, kError},
                      Compared{"adagrad", RowRule::kAdagrad, 0, kError},
                      Compared{"adagrad_with_eps_1", RowRule::kAdagrad, 0, kError},
                      Compared{"adagrad_of_width_1", RowRule::kRowAdagrad, 0, kError},
                      Compared{"adam", RowRule::kAdam, 0, kError},
                      Compared{"adagrad_with_eps_1", RowRule::kFtrl, 1, kFtrlError}),
    [](const auto& info) {
      return std::string(rule_name(info.param.rule)) + "_as_" + info.param.name;
    });

}  // namespace
}  // namespace muster::ps
