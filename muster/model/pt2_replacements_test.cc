// What stands for attention and recurrent nets with dropout, compared with libtorch's without.
#include "muster/model/pt2_replacements.h"

#include <algorithm>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "muster/model/net_testing.h"
#include "muster/model/pt2_tensors.h"
#include "muster/pt2/pt2_testing.h"

namespace muster::model {
namespace {

using testing::lane;

std::shared_ptr<Dropout> no_dropout() { return std::make_shared<Dropout>(0.0, lane()); }

// Numbers around 0, the same in every run.
torch::Tensor numbers(const std::vector<int64_t>& sizes, int64_t seed) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return torch::arange(count)
      .mul(7919 + seed * 31)
      .remainder(1009)
      .to(torch::kFloat32)
      .div(504)
      .sub(1)
      .view(sizes);
}

TEST(Attend, ComputesWhatLibtorchDoes) {
  const auto query = numbers({2, 4, 5, 8}, 1);
  const auto key = numbers({2, 4, 6, 8}, 2);
  const auto value = numbers({2, 4, 6, 8}, 3);
  const auto allowed = numbers({2, 1, 5, 6}, 4).gt(-0.5);
  const auto added = numbers({5, 6}, 5);
  const auto compare = [&](const torch::Tensor& keys, const torch::Tensor& values,
                           const AttentionCall& call) {
    const auto expected = at::scaled_dot_product_attention(
        query, keys, values, call.mask.defined() ? std::optional(call.mask) : std::nullopt, 0.0,
        call.causal, call.scale, call.share_heads);
    return attend(query, keys, values, call, *no_dropout()).allclose(expected, 1e-5, 1e-6);
  };
  EXPECT_TRUE(compare(key, value, {}));
  EXPECT_TRUE(compare(key, value, {.causal = true}));
  EXPECT_TRUE(compare(key, value, {.mask = allowed}));
  EXPECT_TRUE(compare(key, value, {.mask = added}));
  EXPECT_TRUE(compare(key, value, {.scale = 0.1}));
  EXPECT_TRUE(compare(numbers({2, 2, 6, 8}, 6), numbers({2, 2, 6, 8}, 7), {.share_heads = true}));
  EXPECT_FALSE(attend(query, key, value, {.scale = 0.1}, *no_dropout())
                   .allclose(attend(query, key, value, {.scale = 0.2}, *no_dropout())));
}

// A row of which nothing may be looked at is 0 and not NaN, as in libtorch.
TEST(Attend, OfNothingIsZero) {
  const auto query = numbers({1, 1, 2, 4}, 1);
  const auto none = torch::zeros({2, 2}, torch::kBool);
  const auto result = attend(query, query, query, {.mask = none}, *no_dropout());
  EXPECT_TRUE(result.equal(torch::zeros_like(result)));
}

// Layer by layer it is the same net as in one operator.
TEST(RecurrentDropout, LayersComputeWhatTheOperatorDoes) {
  const auto opened = pt2::File::open(pt2::testdata("attention")).value();
  const auto& program = opened.program();
  const auto node = std::ranges::find_if(program.nodes, [](const pt2::Node& one) {
    return one.target == "torch.ops.aten.lstm.input";
  });
  ASSERT_NE(node, program.nodes.end());
  Pt2Values values(program.slots.size());
  for (const auto& input : program.inputs) {
    if (input.kind == pt2::Input::Kind::kParameter) {
      values[static_cast<size_t>(input.slot)] = tensor_of(input.weight);
    }
  }
  const Pt2Values fixed = values;
  const auto& tensors = std::get<pt2::TensorsArg>(*node->find("hx")).slots;
  values[static_cast<size_t>(tensors[0])] = numbers({2, 3, 8}, 1);
  values[static_cast<size_t>(tensors[1])] = numbers({2, 3, 8}, 2);
  const auto input = std::get<pt2::TensorArg>(*node->find("input")).slot;
  values[static_cast<size_t>(input)] = numbers({3, 5, 8}, 3);
  const std::string name = "attention.pt2";
  auto made = make_recurrent_dropout(*node, {fixed, name}, {no_dropout()}).value();
  Pt2Values by_layer = values;
  made->run(by_layer, /*training=*/true);
  made->run(values, /*training=*/false);
  for (const auto& output : node->outputs) {
    const auto slot = static_cast<size_t>(output.slots[0]);
    EXPECT_TRUE(by_layer[slot].toTensor().allclose(values[slot].toTensor(), 1e-5, 1e-6));
  }
  auto dropout = std::make_shared<Dropout>(0.5, lane());
  dropout->set_number(0);
  auto dropping = make_recurrent_dropout(*node, {fixed, name}, {dropout}).value();
  Pt2Values dropped = values;
  dropping->run(dropped, /*training=*/true);
  const auto slot = static_cast<size_t>(node->outputs[0].slots[0]);
  EXPECT_FALSE(dropped[slot].toTensor().allclose(values[slot].toTensor()));
}

}  // namespace
}  // namespace muster::model
