#include "muster/model/embedding_bag.h"

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/model/net_testing.h"
#include "muster/model/row_source_testing.h"

namespace muster::model {
namespace {

using testing::layers;
using testing::MemoryRows;

constexpr int64_t kWidth = 4;

// Records of three ids that mean the same in every column.
data::Schema bags(bool values, int64_t numbers = 0) {
  data::Schema schema;
  schema.input = data::DType::kInt64;
  schema.input_shape = {numbers + (values ? 6 : 3)};
  schema.classes = 2;
  schema.numbers = numbers;
  schema.has_ids = true;
  schema.ids_are_a_bag = true;
  schema.has_values = values;
  return schema;
}

// The second sample has no ids; the third has one twice.
torch::Tensor ids() { return torch::tensor({{3, 1, -1}, {-1, -1, -1}, {2, 2, 3}}, torch::kInt64); }
torch::Tensor values() {
  return torch::tensor({{0.5F, -3.0F, 0.0F}, {0.0F, 0.0F, 0.0F}, {0.25F, 2.0F, 1e-3F}});
}
torch::Tensor value_bits() { return values().to(torch::kFloat64).view(torch::kInt64); }

struct Made {
  MemoryRows rows{kWidth};
  std::shared_ptr<LaneContext> lane = testing::lane();
  std::shared_ptr<Net> net;

  Made(const std::string& list, const data::Schema& schema) {
    lane->rows = &rows;
    net = testing::make(layers(list, "click"), schema, lane);
  }
};

// What build() says is wrong, if there are rows.
std::string complaint(const std::string& list, const data::Schema& schema) {
  MemoryRows rows(kWidth);
  const auto lane = testing::lane();
  lane->rows = &rows;
  const auto net = build(Registry::builtin(), layers(list, "click"), schema, lane);
  return net.ok() ? "" : net.error().message();
}

// torch's, of the rows 0 to 3. mode: 0 is sum, 1 mean.
torch::Tensor torch_bags(const torch::Tensor& weight, int64_t mode, bool weighted) {
  const torch::Tensor kept = ids().ge(0).flatten();
  std::optional<torch::Tensor> weights;
  if (weighted) weights = values().flatten().masked_select(kept);
  return std::get<0>(torch::embedding_bag(
      weight, ids().flatten().masked_select(kept), torch::tensor({0, 2, 2}, torch::kInt64),
      /*scale_grad_by_freq=*/false, mode, /*sparse=*/false, weights));
}

TEST(EmbeddingBag, IsThatOfTorch) {
  struct Case {
    const char* list;
    int64_t mode;
    bool weighted;
  };
  for (const auto& [list, mode, weighted] :
       {Case{"- embedding_bag", 0, false}, Case{"- embedding_bag: { mode: sum }", 0, true},
        Case{"- embedding_bag: { mode: mean }", 1, false}}) {
    SCOPED_TRACE(list);
    Made made(list, bags(weighted));
    const torch::Tensor found =
        made.net->forward(weighted ? torch::cat({ids(), value_bits()}, 1) : ids());
    std::vector<torch::Tensor> table;
    for (int64_t id = 0; id < 4; ++id) {
      table.push_back(torch::tensor(made.rows.row(row_key(0, id))));
    }
    const torch::Tensor weight = torch::stack(table).requires_grad_();
    const torch::Tensor expected = torch_bags(weight, mode, weighted);
    EXPECT_TRUE(found.allclose(expected, 1e-6, 1e-6)) << found << " is not " << expected;
    EXPECT_TRUE(found[1].equal(torch::zeros({kWidth}))) << "a sample without ids";

    const torch::Tensor factors = torch::arange(12).to(torch::kFloat32).view({3, kWidth}).sub(5);
    found.mul(factors).sum().backward();
    expected.mul(factors).sum().backward();
    ASSERT_EQ(made.rows.gradients_of.size(), 3U) << "of the ids 1, 2 and 3";
    for (int64_t id = 1; id < 4; ++id) {
      const torch::Tensor gradient = torch::tensor(made.rows.gradients_of.at(row_key(0, id)));
      EXPECT_TRUE(gradient.allclose(weight.grad()[id], 1e-6, 1e-6)) << id;
    }
  }
}

TEST(EmbeddingBag, NumbersFollowTheBag) {
  Made made("- embedding_bag", bags(true, 2));
  const torch::Tensor numbers =
      torch::tensor({{65536, -32768}, {0, 1}, {131072, 5}}, torch::kInt64);
  const torch::Tensor found = made.net->forward(torch::cat({numbers, ids(), value_bits()}, 1));
  ASSERT_EQ(found.sizes(), (std::vector<int64_t>{3, kWidth + 2}));
  EXPECT_TRUE(found.narrow(1, kWidth, 2).equal(numbers.to(torch::kFloat32).mul(0x1p-16)));
  Made alone("- embedding_bag", bags(true));
  EXPECT_TRUE(
      found.narrow(1, 0, kWidth).equal(alone.net->forward(torch::cat({ids(), value_bits()}, 1))));
}

TEST(EmbeddingBag, IsTheFirstOfSeveralLayers) {
  Made made("[embedding_bag, linear: { out: 5 }, relu, linear: { out: classes }]", bags(true));
  const torch::Tensor scores = made.net->forward(torch::cat({ids(), value_bits()}, 1));
  EXPECT_EQ(scores.sizes(), (std::vector<int64_t>{3, 2}));
  scores.square().sum().backward();
  EXPECT_EQ(made.rows.reads.size(), 1U);
  EXPECT_EQ(made.rows.adds.size(), 1U);
  EXPECT_THAT(testing::parameter_names(*made.net),
              ::testing::ElementsAre("1.weight", "1.bias", "3.weight", "3.bias"));
}

TEST(EmbeddingBag, SaysWhatIsWrong) {
  EXPECT_EQ(complaint("- embedding_bag: { mode: max }", bags(false)),
            "job.yaml:1:26: mode must be sum or mean, not 'max'");
  EXPECT_EQ(complaint("- embedding_bag: { mode: mean }", bags(true)),
            "job.yaml:1:26: mode mean is for ids without values, as in PyTorch; use sum");
  EXPECT_EQ(complaint("- embedding_bag", testing::text()),
            "job.yaml:1:3: embedding_bag layer needs records of ids, but gets 16 tokens");
  EXPECT_EQ(complaint("- embedding_bag", testing::images()),
            "job.yaml:1:3: embedding_bag layer needs records of ids, but gets 1x28x28");
  EXPECT_EQ(complaint("- embedding: { width: 3 }", bags(true)),
            "job.yaml:1:3: embedding layer cannot take ids with values; use 'embedding_bag'");
  EXPECT_EQ(complaint("- embedding: { width: 3 }", bags(false)), "");
  EXPECT_EQ(complaint("- linear: { out: 3 }", bags(false)),
            "job.yaml:1:3: linear layer needs a flat input, but gets records of ids; put "
            "'embedding_bag' before it");
  EXPECT_EQ(testing::complaint(layers("- embedding_bag", "click"), bags(false)),
            "job.yaml:1:3: embedding_bag layer needs rows: set tables.width, for example to 16");
}

}  // namespace
}  // namespace muster::model
