#include "muster/ps/row_optimizer.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace muster::ps {
namespace {

constexpr size_t kRows = 7;

// The formulas of the header, in double precision, one element at a time.
class Reference {
 public:
  Reference(const RowOptimizer& options, size_t width)
      : o_(options), width_(width), w_(kRows * width), a_(w_.size()), b_(w_.size()) {}
  std::vector<double>& weights() { return w_; }

  void update(const std::vector<float>& gradients, int64_t t, double lr) {
    for (size_t r = 0; r < kRows; ++r) {
      double mean = 0;
      for (size_t i = 0; i < width_; ++i) mean += std::pow(gradients[r * width_ + i], 2);
      mean /= static_cast<double>(width_);
      for (size_t i = r * width_; i < (r + 1) * width_; ++i) element(i, gradients[i], mean, t, lr);
    }
  }

 private:
  void element(size_t i, double g, double mean, int64_t t, double lr) {
    double& w = w_[i];
    switch (o_.rule) {
      case RowRule::kSgd:
        w -= lr * g;
        break;
      case RowRule::kAdagrad:
      case RowRule::kRowAdagrad:
        a_[i] += o_.rule == RowRule::kAdagrad ? g * g : mean;
        w -= lr * g / (std::sqrt(a_[i]) + o_.eps);
        break;
      case RowRule::kAdam: {
        a_[i] += (1 - o_.beta1) * (g - a_[i]);
        b_[i] += (1 - o_.beta2) * (g * g - b_[i]);
        const auto n = static_cast<double>(t);
        w -= lr * std::sqrt(1 - std::pow(o_.beta2, n)) / (1 - std::pow(o_.beta1, n)) * a_[i] /
             (std::sqrt(b_[i]) + o_.eps);
        break;
      }
      case RowRule::kFtrl: {
        lr = o_.lr;
        a_[i] += g - (std::sqrt(b_[i] + g * g) - std::sqrt(b_[i])) / lr * w;
        b_[i] += g * g;
        w = std::abs(a_[i]) <= o_.l1 ? 0
                                     : -(a_[i] - std::copysign(o_.l1, a_[i])) /
                                           ((o_.beta + std::sqrt(b_[i])) / lr + o_.l2);
        break;
      }
    }
  }

  const RowOptimizer o_;
  const size_t width_;
  std::vector<double> w_, a_, b_;
};

class RowOptimizerTest : public ::testing::TestWithParam<std::tuple<RowRule, size_t>> {};

TEST_P(RowOptimizerTest, FollowsItsFormulaWithTheSameBitsOnEveryInstructionSet) {
  const auto [rule, width] = GetParam();
  RowOptimizer options{.rule = rule, .lr = 0.05, .eps = 1e-8, .l1 = 0.05, .l2 = 0.01};
  if (rule == RowRule::kAdam) options.lr = 0.01;
  const size_t stride = width + options.state(width) + 1;
  std::vector<std::vector<float>> all;  // by instruction set
  for (const Isa isa : usable_isas()) {
    Reference reference(options, width);
    std::vector<float> rows(kRows * stride, 0);
    std::vector<float*> pointers;
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (size_t r = 0; r < kRows; ++r) {
      pointers.push_back(&rows[r * stride]);
      for (size_t i = 0; i < width; ++i) {
        const float w = rule == RowRule::kFtrl ? 0 : normal(random);
        pointers[r][i] = w;
        reference.weights()[r * width + i] = w;
      }
      pointers[r][stride - 1] = 99;  // behind the row
    }
    std::vector<float> gradients(kRows * width);
    for (int64_t t = 1; t <= 30; ++t) {
      for (float& g : gradients) g = normal(random);
      const double lr = options.lr / static_cast<double>(t % 3 + 1);
      options.update(pointers, gradients.data(), width, t, lr, isa);
      reference.update(gradients, t, lr);
    }
    size_t zeros = 0;
    for (size_t r = 0; r < kRows; ++r) {
      EXPECT_EQ(pointers[r][stride - 1], 99);
      for (size_t i = 0; i < width; ++i) {
        EXPECT_NEAR(pointers[r][i], reference.weights()[r * width + i], 2e-5) << r << " " << i;
        if (pointers[r][i] == 0) ++zeros;
      }
    }
    if (rule != RowRule::kFtrl) {
      EXPECT_EQ(zeros, 0u);
    }
    all.push_back(rows);
    EXPECT_EQ(all.front(), rows) << isa_name(isa);
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, RowOptimizerTest,
                         ::testing::Combine(::testing::Values(RowRule::kSgd, RowRule::kAdagrad,
                                                              RowRule::kRowAdagrad, RowRule::kAdam,
                                                              RowRule::kFtrl),
                                            ::testing::Values(1, 8, 13, 64)),
                         [](const auto& info) {
                           return std::string(rule_name(std::get<0>(info.param))) +
                                  std::to_string(std::get<1>(info.param));
                         });

// The first weights of a row count, and a gradient of zero changes nothing.
TEST(RowOptimizer, FtrlBeginsWithTheFirstWeights) {
  const RowOptimizer ftrl{.rule = RowRule::kFtrl, .lr = 0.1, .l1 = 0.02, .l2 = 0.5};
  std::vector<float> row = {0.3F, -0.2F, 0, 0, 0, 0, 9, 9, 9};
  ftrl.begin(row.data(), 3);
  EXPECT_EQ(row[6], 0) << "the sum";
  const std::vector<float> zero(3);
  std::vector<float*> rows = {row.data()};
  for (const double lr : {0.1, 0.05}) {
    ftrl.update(rows, zero.data(), 3, 1, lr);
    EXPECT_NEAR(row[0], 0.3, 1e-6);
    EXPECT_NEAR(row[1], -0.2, 1e-6);
    EXPECT_EQ(row[2], 0);
  }
}

TEST(RowOptimizer, NamesAreReadAsTheyAreWritten) {
  for (const auto rule :
       {RowRule::kSgd, RowRule::kAdagrad, RowRule::kRowAdagrad, RowRule::kAdam, RowRule::kFtrl}) {
    EXPECT_EQ(*rule_named(rule_name(rule)), rule);
  }
  EXPECT_FALSE(rule_named("adamw").ok());
}

}  // namespace
}  // namespace muster::ps
