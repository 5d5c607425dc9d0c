// Frozen tensors take part in nothing but forward and backward: no optimizer state, no sums, no
// traffic.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "muster/train/jobs_testing.h"

namespace muster::train {
namespace {

// Large enough for a few blocks each; the first layer is frozen.
const char* const kJob = R"(
model: { layers: [ linear: { out: 3000 }, relu, linear: { out: 2 } ] }
data: { train: { format: points } }
batch: 20
lanes: 4
steps: 12
optimizer: { kind: adam, lr: 0.01 }
threads: 2
)";

std::vector<float> values(Session& session, const std::string& name) {
  size_t t = 0;
  EXPECT_NE(session.arena().find(name, &t), nullptr);
  const auto tensor = session.arena().tensor(t);
  return {tensor.begin(), tensor.end()};
}

TEST(Frozen, TheOthersHaveTheBitsTheyWouldHaveBesideAConstant) {
  const auto frozen = open_session(kJob, {"model.freeze=['0.*']"});
  // The same with nothing frozen, but the first layer set back after every step.
  const auto constant = open_session(kJob);
  const auto weight = values(*constant, "0.weight");
  const auto bias = values(*constant, "0.bias");
  for (int64_t step = 0; step < frozen->total_steps(); ++step) {
    ASSERT_TRUE(frozen->step().ok());
    ASSERT_TRUE(constant->step().ok());
    std::ranges::copy(weight, constant->arena().tensor(0).begin());
    std::ranges::copy(bias, constant->arena().tensor(1).begin());
  }
  EXPECT_NE(values(*frozen, "2.weight"), values(*open_session(kJob), "2.weight"));
  EXPECT_EQ(frozen->arena().weights_hash().hex(), constant->arena().weights_hash().hex());
}

TEST(Frozen, HaveNoBlocksNoStateAndNoSums) {
  const auto frozen = open_session(kJob, {"model.freeze=['0.*']"});
  const auto& layout = frozen->arena().layout();
  for (const auto& block : layout.blocks()) EXPECT_GE(block.tensor, 2U);
  // 6,002 numbers that are trained, in whole lines; two buffers of Adam.
  EXPECT_EQ(frozen->arena().optimizer_state(0).size(), 6016U);
  EXPECT_EQ(frozen->arena().optimizer_state(1).size(), 6016U);
  std::vector<std::string> names;
  for (const auto& view : frozen->arena().state_views(frozen->arena().bytes())) {
    if (!view.name.starts_with("counters/")) names.push_back(view.name);
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"exp_avg/2.weight", "exp_avg/2.bias", "exp_avg_sq/2.weight",
                                      "exp_avg_sq/2.bias", "exponents"}));
}

}  // namespace
}  // namespace muster::train
