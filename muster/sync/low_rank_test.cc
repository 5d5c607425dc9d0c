#include "muster/sync/low_rank.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "muster/base/random.h"

namespace muster::sync {
namespace {

std::vector<float> some_values(size_t count, uint64_t seed) {
  RandomStream random(seed, Purpose::kUser);
  std::vector<float> values(count);
  for (float& v : values) v = random.normal();
  return values;
}

struct Factors {
  std::vector<float> left;
  std::vector<float> right;
};

// One step, in parts of these many rows or columns.
Factors step(const LowRank& shape, const std::vector<float>& matrix, std::vector<float> right,
             size_t part) {
  shape.refill(right, 7, 0, 0);
  std::vector<float> left(shape.left_size());
  for (size_t i = 0; i < shape.rows; i += part) {
    shape.multiply(matrix, right, i, std::min(i + part, shape.rows), left);
  }
  shape.orthogonalise(left);
  for (size_t j = 0; j < shape.columns; j += part) {
    shape.multiply_transposed(matrix, left, j, std::min(j + part, shape.columns), right);
  }
  return {left, right};
}

std::vector<float> product(const LowRank& shape, const Factors& factors) {
  std::vector<float> matrix(shape.rows * shape.columns);
  shape.expand(factors.left, factors.right, 0, shape.rows, matrix);
  return matrix;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(squares);
}

TEST(LowRank, AMatrixOfThatRankIsSentAsItIs) {
  const LowRank shape = {.rows = 50, .columns = 37, .rank = 3};
  const auto a = some_values(shape.left_size(), 1);
  const auto b = some_values(shape.right_size(), 2);
  const auto matrix = product(shape, {a, b});
  const auto factors = step(shape, matrix, std::vector<float>(shape.right_size()), 50);
  EXPECT_LT(distance(product(shape, factors), matrix), 1e-4);
  for (size_t k = 0; k < 3; ++k) {
    for (size_t l = 0; l < 3; ++l) {
      double dot = 0;
      for (size_t i = 0; i < 50; ++i) {
        dot += static_cast<double>(factors.left[k * 50 + i]) * factors.left[l * 50 + i];
      }
      EXPECT_NEAR(dot, k == l ? 1 : 0, 1e-6);
    }
  }
}

TEST(LowRank, StepsComeNearToTheBestApproximation) {
  const LowRank shape = {.rows = 40, .columns = 30, .rank = 2};
  auto matrix = some_values(size_t{40} * 30, 3);
  for (float& v : matrix) v *= 0.01f;
  const auto large =
      product(shape, {some_values(shape.left_size(), 4), some_values(shape.right_size(), 5)});
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] += large[i];
  Factors factors = {{}, std::vector<float>(shape.right_size())};
  for (int i = 0; i < 5; ++i) factors = step(shape, matrix, factors.right, 40);
  // What is left is noise, of which a little fits into the factors.
  EXPECT_LT(distance(product(shape, factors), matrix), 0.01 * std::sqrt(40.0 * 30));
}

TEST(LowRank, PartsGiveTheSameBits) {
  const LowRank shape = {.rows = 67, .columns = 129, .rank = 4};
  const auto matrix = some_values(size_t{67} * 129, 6);
  const auto whole = step(shape, matrix, std::vector<float>(shape.right_size()), 1000);
  const auto parts = step(shape, matrix, std::vector<float>(shape.right_size()), 10);
  EXPECT_EQ(whole.left, parts.left);
  EXPECT_EQ(whole.right, parts.right);
}

// Of rank 1, with two columns: the second has nothing to add, and is drawn anew for the next step.
TEST(LowRank, AColumnThatDependsOnAnotherBecomesZero) {
  const LowRank shape = {.rows = 20, .columns = 20, .rank = 2};
  const LowRank one = {.rows = 20, .columns = 20, .rank = 1};
  const auto matrix = product(one, {some_values(20, 8), some_values(20, 9)});
  auto factors = step(shape, matrix, std::vector<float>(40), 20);
  EXPECT_LT(distance(product(shape, factors), matrix), 1e-4);
  for (size_t i = 20; i < 40; ++i) EXPECT_EQ(factors.right[i], 0);
  shape.refill(factors.right, 7, 1, 0);
  for (size_t i = 20; i < 40; ++i) EXPECT_NE(factors.right[i], 0);
  const auto zeros = step(shape, std::vector<float>(400), factors.right, 20);
  for (const float v : product(shape, zeros)) EXPECT_EQ(v, 0);
}

TEST(LowRank, PaysIfItHalvesAMatrix) {
  EXPECT_TRUE((LowRank{.rows = 8, .columns = 8, .rank = 2}.pays()));
  EXPECT_FALSE((LowRank{.rows = 8, .columns = 8, .rank = 3}.pays()));
  EXPECT_FALSE((LowRank{.rows = 1, .columns = 1000, .rank = 1}.pays()));
}

}  // namespace
}  // namespace muster::sync
