// Linear hands the gradient of a large weight to a sink, piece by piece. What arrives there must be
// what autograd would have returned.
#include <cstring>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "muster/model/layers.h"

namespace muster::model {
namespace {

class Collector final : public GradientSink {
 public:
  explicit Collector(int64_t elements) : values(static_cast<size_t>(elements)), times(values) {}
  void add(size_t first, std::span<const float> piece) override {
    EXPECT_EQ(first % kGrain, 0U);
    EXPECT_TRUE(piece.size() % kGrain == 0 || first + piece.size() == values.size());
    for (size_t i = 0; i < piece.size(); ++i) {
      values[first + i] = piece[i];
      times[first + i] += 1;
    }
  }
  bool only_use() const override { return alone; }

  std::vector<float> values;
  std::vector<float> times;  // how often each was added
  bool alone = true;
};

struct Fixture {
  Linear layer{LinearOptions{.in = 600, .out = 701}};
  torch::Tensor input;
  Collector sink{int64_t{701} * 600};
  Fixture() {
    const torch::NoGradGuard no_grad;
    const auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
    for (auto& p : layer.parameters()) p.normal_(0, 1, generator);
    input = torch::empty({4, 9, 600}).normal_(0, 1, generator).requires_grad_();
  }
  // The gradients of weight, bias and input after one pass; the layer is applied `uses` times.
  std::vector<torch::Tensor> gradients(int uses = 1) {
    for (auto& p : layer.parameters()) p.mutable_grad().reset();
    input.mutable_grad().reset();
    auto loss = torch::zeros({});
    for (int i = 0; i < uses; ++i) loss = loss + layer.forward(input * (i + 1)).square().sum();
    loss.backward();
    return {layer.weight().grad(), layer.parameters()[1].grad(), input.grad()};
  }
};

TEST(Linear, StreamsTheGradientThatAutogradWouldReturn) {
  Fixture f;
  const auto expected = f.gradients();
  f.layer.stream_to(&f.sink);
  const auto streamed = f.gradients();
  EXPECT_FALSE(streamed[0].defined());
  EXPECT_EQ(f.sink.times, std::vector<float>(f.sink.values.size(), 1));
  const auto weight = torch::from_blob(f.sink.values.data(), {701, 600});
  EXPECT_TRUE(torch::allclose(weight, expected[0], 1e-4, 1e-2));
  EXPECT_TRUE(torch::equal(streamed[1], expected[1]));
  EXPECT_TRUE(torch::allclose(streamed[2], expected[2], 1e-4, 1e-2));
}

TEST(Linear, StreamsTheSameBitsWithAnyNumberOfThreads) {
  Fixture f;
  f.layer.stream_to(&f.sink);
  f.gradients();
  const auto alone = f.sink.values;
  at::set_num_threads(3);
  f.gradients();
  at::set_num_threads(1);
  EXPECT_EQ(std::memcmp(alone.data(), f.sink.values.data(), alone.size() * sizeof(float)), 0);
}

TEST(Linear, ReturnsItsGradientIfTheWeightHasOtherUses) {
  Fixture f;
  const auto expected = f.gradients(2);
  f.layer.stream_to(&f.sink);
  f.sink.alone = false;
  const auto twice = f.gradients(2);
  ASSERT_TRUE(twice[0].defined());
  EXPECT_TRUE(torch::allclose(twice[0], expected[0], 1e-4, 1e-1));
  EXPECT_EQ(f.sink.times, std::vector<float>(f.sink.values.size(), 0));
  f.sink.alone = true;  // in another pass
  EXPECT_FALSE(f.gradients()[0].defined());
}

TEST(Linear, StreamsWithoutABias) {
  Linear layer{LinearOptions{.in = 600, .out = 701, .bias = false}};
  {
    const torch::NoGradGuard no_grad;
    layer.parameters()[0].fill_(0.5);
  }
  Collector sink{int64_t{701} * 600};
  layer.stream_to(&sink);
  layer.forward(torch::ones({2, 600})).sum().backward();
  EXPECT_FALSE(layer.weight().grad().defined());
  EXPECT_EQ(sink.values, std::vector<float>(sink.values.size(), 2));
}

TEST(Linear, DoesNotStreamWhatIsFrozenOrSmall) {
  Fixture f;
  f.layer.stream_to(&f.sink);
  f.layer.parameters()[0].requires_grad_(false);
  f.gradients();
  Linear small(LinearOptions{.in = 30, .out = 20});
  small.stream_to(&f.sink);
  small.forward(torch::ones({2, 30})).sum().backward();
  EXPECT_TRUE(small.weight().grad().defined());
  EXPECT_EQ(f.sink.times, std::vector<float>(f.sink.values.size(), 0));
}

}  // namespace
}  // namespace muster::model
