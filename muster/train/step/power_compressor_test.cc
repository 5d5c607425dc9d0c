// powersgd against a reference in double precision, with matrices and vectors.
#include "muster/train/step/power_compressor.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "muster/base/random.h"
#include "muster/comm/local_group.h"

namespace muster::train {
namespace {

constexpr size_t kRows = 12;
constexpr size_t kColumns = 20;
constexpr size_t kRank = 2;
constexpr size_t kVector = 9;
constexpr size_t kReplicas = 3;

using Matrix = std::vector<double>;

// Vogels et al., algorithms 1 and 2; R times their result, which is a mean.
struct Reference {
  Matrix q = Matrix(kColumns * kRank);
  std::vector<Matrix> errors = std::vector<Matrix>(kReplicas, Matrix(kRows* kColumns));

  Matrix step() {
    Matrix p(kRows * kRank);
    for (const Matrix& m : errors) {
      for (size_t i = 0; i < kRows; ++i) {
        for (size_t j = 0; j < kColumns; ++j) {
          for (size_t k = 0; k < kRank; ++k) {
            p[i * kRank + k] += m[i * kColumns + j] * q[j * kRank + k];
          }
        }
      }
    }
    for (size_t k = 0; k < kRank; ++k) {
      for (size_t other = 0; other < k; ++other) {
        double dot = 0;
        for (size_t i = 0; i < kRows; ++i) dot += p[i * kRank + k] * p[i * kRank + other];
        for (size_t i = 0; i < kRows; ++i) p[i * kRank + k] -= dot * p[i * kRank + other];
      }
      double squares = 0;
      for (size_t i = 0; i < kRows; ++i) squares += p[i * kRank + k] * p[i * kRank + k];
      for (size_t i = 0; i < kRows; ++i) p[i * kRank + k] /= std::sqrt(squares);
    }
    q.assign(q.size(), 0);
    for (const Matrix& m : errors) {
      for (size_t i = 0; i < kRows; ++i) {
        for (size_t j = 0; j < kColumns; ++j) {
          for (size_t k = 0; k < kRank; ++k) {
            q[j * kRank + k] += m[i * kColumns + j] * p[i * kRank + k];
          }
        }
      }
    }
    Matrix sum(kRows * kColumns);
    for (size_t i = 0; i < kRows; ++i) {
      for (size_t j = 0; j < kColumns; ++j) {
        for (size_t k = 0; k < kRank; ++k) {
          sum[i * kColumns + j] += p[i * kRank + k] * q[j * kRank + k];
        }
      }
    }
    for (Matrix& m : errors) {
      for (size_t i = 0; i < m.size(); ++i) m[i] -= sum[i] / kReplicas;
    }
    return sum;
  }
};

TEST(PowerCompressor, FollowsItsFormula) {
  std::vector<TensorSpec> tensors(2);
  tensors[0].shape = {kRows, 4, kColumns / 4};  // like that of a convolution
  tensors[1].shape = {kVector};
  Arena arena(tensors, {});
  Team team(2, 1);
  config::Job job;
  job.sync.strategy = "powersgd";
  job.sync.replicas = kReplicas;
  job.sync.rank = kRank;
  StrategyParts parts;
  parts.arena = &arena;
  parts.team = &team;
  PowerCompressor compressor(job, parts);

  const size_t size = arena.layout().block_elements();
  const size_t vector = arena.layout().tensor_begin(1);
  Reference reference;
  for (size_t k = 0; k < kRank; ++k) {
    RandomStream random(job.seed, Purpose::kLowRank, 0, k);
    for (size_t j = 0; j < kColumns; ++j) reference.q[j * kRank + k] = random.uniform() - 0.5f;
  }
  compressor.begin(std::vector<float>(size));
  std::vector<Compressor::Replica> replicas(kReplicas);
  for (auto& r : replicas) r.error.resize(size);
  const std::vector<int> own = {0, 1, 2};
  const auto group = comm::solo_group("test");
  const RoundExchange::Peers peers = {
      .replicas = own, .group = *group, .timeout = std::chrono::seconds(10), .vitals = kNoVitals};
  RandomStream random(5, Purpose::kUser);
  std::vector<float> sum(size);
  for (int step = 0; step < 4; ++step) {
    std::vector<double> dense(kVector);
    for (size_t r = 0; r < kReplicas; ++r) {
      for (size_t i = 0; i < kRows * kColumns; ++i) {
        const float g = random.normal();
        replicas[r].error[i] += g;
        reference.errors[r][i] += g;
      }
      for (size_t i = 0; i < kVector; ++i) {
        replicas[r].error[vector + i] = random.normal();
        dense[i] += replicas[r].error[vector + i];
      }
    }
    const auto done = compressor.exchange(step, replicas, 0, peers, sum);
    ASSERT_TRUE(done.ok() && *done);
    const auto expected = reference.step();
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(sum[i], expected[i], 1e-4);
    for (size_t i = 0; i < kVector; ++i) EXPECT_NEAR(sum[vector + i], dense[i], 1e-5);
    for (size_t r = 0; r < kReplicas; ++r) {
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(replicas[r].error[i], reference.errors[r][i], 1e-4);
      }
      for (size_t i = 0; i < kVector; ++i) EXPECT_EQ(replicas[r].error[vector + i], 0);
    }
  }
}

}  // namespace
}  // namespace muster::train
