// The promise, on one machine: whatever the number of threads, the size of buckets and the way the
// data is read, the same job gives the same bits. And the proof that this test can fail: with float
// sums they differ.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "muster/train/jobs_testing.h"

namespace muster::train {
namespace {

const char* const kLenet = R"(
model: { zoo: lenet }
data:
  train: { format: idx, images: mnist/train-images-idx3-ubyte.gz, labels: mnist/train-labels-idx1-ubyte.gz }
  test: { format: idx, images: mnist/t10k-images-idx3-ubyte.gz, labels: mnist/t10k-labels-idx1-ubyte.gz, limit: 100 }
batch: 37
lanes: 8
steps: 8
optimizer: { kind: sgd, lr: 0.05, momentum: 0.9 }
)";

const char* const kResnet = R"(
model: { zoo: resnet, args: { size: 8 } }
data:
  train:
    format: idx
    images: fashion-mnist/train-images-idx3-ubyte.gz
    labels: fashion-mnist/train-labels-idx1-ubyte.gz
    mean: 0.286
    deviation: 0.353
  augment: { flip: true, shift: 2 }
batch: 32
lanes: 8
steps: 4
optimizer: { kind: sgd, lr: 0.1, momentum: 0.9, nesterov: true, weight_decay: 0.0005 }
)";

const char* const kGpt = R"(
model: { zoo: gpt, args: { layers: 2, heads: 4, width: 64, dropout: 0.2 } }
data:
  train: { format: text, path: tinyshakespeare/input.txt, context: 32 }
batch: 16
lanes: 8
steps: 6
optimizer: { kind: adamw, lr: 0.001, weight_decay: 0.1, clip: { norm: 1.0 } }
)";

std::string train(const std::string& text, const std::vector<std::string>& sets) {
  const auto session = open_session(text, sets);
  double last_loss = 0;
  for (int64_t i = 0; i < session->total_steps(); ++i) {
    const auto report = session->step();
    EXPECT_TRUE(report.ok()) << report.error().message();
    last_loss = report->loss;
  }
  return session->arena().weights_hash().hex() + " " + std::to_string(last_loss);
}

void expect_same_bits(const std::string& text, const std::vector<std::string>& more = {}) {
  const auto with = [&](std::vector<std::string> sets) {
    sets.insert(sets.end(), more.begin(), more.end());
    return train(text, sets);
  };
  const auto expected = with({"threads=1"});
  EXPECT_EQ(with({"threads=1"}), expected) << "again";
  EXPECT_EQ(with({"threads=2"}), expected);
  EXPECT_EQ(with({"threads=3", "sync.bucket=4096", "data.loader.threads=0"}), expected);
  EXPECT_EQ(with({"threads=8", "sync.bucket=50000", "data.loader.ahead=5"}), expected);
}

// Exported from PyTorch: batch normalization and dropout are replaced by Muster's.
const char* const kFile = R"(
model: { file: ../pytorch/lenet.pt2 }
data:
  train: { format: idx, images: mnist/train-images-idx3-ubyte.gz, labels: mnist/train-labels-idx1-ubyte.gz }
batch: 37
lanes: 8
steps: 6
optimizer: { kind: sgd, lr: 0.05, momentum: 0.9 }
)";

TEST(Determinism, LenetWithSgd) { expect_same_bits(kLenet); }
TEST(Determinism, ResnetWithBatchNormAndAugmentation) { expect_same_bits(kResnet); }
TEST(Determinism, GptWithDropoutAdamwAndClipping) { expect_same_bits(kGpt); }
TEST(Determinism, ModelFromPyTorch) {
  expect_same_bits(kFile);
  expect_same_bits(kFile, {"precision=bf16"});
  EXPECT_NE(train(kFile, {}), train(kFile, {"seed=2"}));
}
TEST(Determinism, GptInBf16) { expect_same_bits(kGpt, {"precision=bf16"}); }
TEST(Determinism, Muon) {
  const std::vector<std::string> sets = {"optimizer.kind=muon", "optimizer.momentum=0.95",
                                         "optimizer.nesterov=true"};
  expect_same_bits(kGpt, sets);
  expect_same_bits(kResnet, sets);
}

TEST(Determinism, GptWithLamb) { expect_same_bits(kGpt, {"optimizer.kind=lamb"}); }

TEST(Determinism, StochasticRounding) {
  const std::vector<std::string> stochastic = {"sync.rounding=stochastic"};
  for (const char* job : {kLenet, kResnet, kGpt}) expect_same_bits(job, stochastic);
  EXPECT_NE(train(kLenet, stochastic), train(kLenet, {}));
}

TEST(Determinism, FewBits) {
  for (const std::string bits : {"16", "8", "4", "2"}) {
    expect_same_bits(kLenet, {"sync.bits=" + bits});
  }
  const std::vector<std::string> rotated = {"sync.bits=4", "sync.rotation=hadamard"};
  for (const char* job : {kLenet, kResnet, kGpt}) expect_same_bits(job, rotated);
  EXPECT_NE(train(kLenet, rotated), train(kLenet, {"sync.bits=4"}));
  EXPECT_NE(train(kLenet, {"sync.bits=4"}), train(kLenet, {"sync.bits=8"}));
}

// Large enough for Linear to stream its gradient (model/linear.cc), which the others are not.
const char* const kMlp = R"(
model: { zoo: mlp, args: { hidden: [1000, 300] } }
data:
  train: { format: idx, images: mnist/train-images-idx3-ubyte.gz, labels: mnist/train-labels-idx1-ubyte.gz }
batch: 37
lanes: 8
steps: 6
optimizer: { kind: sgd, lr: 0.05, momentum: 0.9 }
)";
TEST(Determinism, MlpWithStreamedGradients) { expect_same_bits(kMlp); }
TEST(Determinism, SeveralThreadsPerLane) {
  expect_same_bits(kMlp, {"threads_per_lane=2", "lanes=3"});
  expect_same_bits(kLenet, {"threads_per_lane=3", "lanes=2"});
}

TEST(Determinism, NativeSumsDependOnTheThreads) {
  // Any single pair may come out equal by luck; all of them will not.
  const auto expected = train(kLenet, {"threads=1", "sync.reduction=native"});
  bool differs = false;
  for (int attempt = 0; attempt < 10 && !differs; ++attempt) {
    differs = train(kLenet, {"threads=8", "sync.reduction=native"}) != expected;
  }
  EXPECT_TRUE(differs);
}

TEST(Determinism, TheSeedMatters) {
  EXPECT_NE(train(kLenet, {"seed=1"}), train(kLenet, {"seed=2"}));
}

TEST(Determinism, EvaluationDoesNotDependOnThreads) {
  const auto report = [](const char* threads) {
    auto session = open_session(kLenet, {threads, "eval.batch=7"});
    auto result = session->evaluate();
    EXPECT_TRUE(result.ok());
    return result->values;
  };
  EXPECT_EQ(report("threads=1"), report("threads=3"));
}

}  // namespace
}  // namespace muster::train
