// A model or loss that draws from torch's global generator is found before training starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/model/layers.h"
#include "muster/train/jobs_testing.h"

namespace muster::train {
namespace {

using testing::HasSubstr;

// Draws in forward, where no check of modules can see it.
class NoisyNet final : public model::Net {
 public:
  NoisyNet(bool noisy, bool seeded)
      : noisy_(noisy),
        seeded_(seeded),
        fc_(register_module(
            "fc", std::make_shared<model::Linear>(model::LinearOptions{.in = 4, .out = 2}))) {}
  torch::Tensor forward(const torch::Tensor& input) override {
    return (*fc_)(noisy_ ? input + torch::randn_like(input) : input);
  }
  bool generator_is_seeded() const override { return seeded_; }

 private:
  bool noisy_;
  bool seeded_;
  std::shared_ptr<model::Linear> fc_;
};

Registries registries() {
  Registries made = testing_registries();
  const auto add = [&](const std::string& name, bool noisy, bool seeded) {
    made.models.add_model(name, [=](const config::Node&, const data::Schema&,
                                    const std::shared_ptr<model::LaneContext>&) {
      return Result<std::shared_ptr<model::Net>>(std::make_shared<NoisyNet>(noisy, seeded));
    });
  };
  add("noisy", true, false);
  add("noisy-and-seeded", true, true);
  add("calm", false, false);
  made.models.add_loss("noisy",
                       [](const torch::Tensor& output, const torch::Tensor&) {
                         return (output * torch::rand_like(output)).mean();
                       },
                       {});
  return made;
}

// What config check and the start of a training say.
std::pair<std::string, std::string> complaints(const std::string& model, const std::string& loss) {
  const auto all = registries();
  const auto job =
      make_job("model: { use: " + model + ", loss: " + loss +
               " }\ndata: { train: { format: points } }\nbatch: 16\nlanes: 4\nsteps: 2\n");
  const auto session = Session::open(job, all);
  EXPECT_TRUE(session.ok());
  const auto tried = (*session)->try_forward();
  const auto begun = (*session)->begin_fingerprint();
  return {tried.ok() ? "" : tried.error().message(), begun.ok() ? "" : begun.error().message()};
}

TEST(Session, RefusesAModelThatDrawsFromTorchsGenerator) {
  const auto [tried, begun] = complaints("noisy", "cross_entropy");
  EXPECT_THAT(tried, HasSubstr("draws random numbers from torch's global generator"));
  EXPECT_EQ(begun, tried);
}

TEST(Session, RefusesALossThatDraws) {
  const auto [tried, begun] = complaints("calm", "noisy");
  EXPECT_THAT(tried, HasSubstr("the model or its loss draws"));
  EXPECT_EQ(begun, tried);
}

TEST(Session, AcceptsOneThatDrawsNothingOrIsSeeded) {
  for (const char* model : {"calm", "noisy-and-seeded"}) {
    const auto [tried, begun] = complaints(model, "cross_entropy");
    EXPECT_EQ(tried, "") << model;
    EXPECT_EQ(begun, "") << model;
  }
}

}  // namespace
}  // namespace muster::train
