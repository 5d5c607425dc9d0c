#include "muster/own_loop/loop.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "muster/base/file_system.h"
#include "muster/ckpt/safetensors.h"
#include "muster/model/batch_norm.h"
#include "muster/track/temp_directory_testing.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

const char* const kJob = R"(
muster: 1
name: test
model: { use: own-loop }
data: { train: { format: own-loop } }
batch: 20
lanes: 4
steps: 30
optimizer: { kind: adam, lr: 0.01 }
checkpoint: { every: 10 steps }
)";

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return out(drop(torch::relu(in(x)))); }
  torch::nn::Linear in = register_module("in", torch::nn::Linear(3, 16));
  torch::nn::Dropout drop = register_module("drop", torch::nn::Dropout(0.25));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(16, 1));
};
TORCH_MODULE(Net);

// One worker in a run directory, in this process.
class LoopTest : public testing::Test {
 protected:
  LoopTest() : run_(directory_.path() + "/run") { write_job(kJob); }
  void write_job(const std::string& text) {
    std::filesystem::create_directories(run_);
    std::ofstream(run_ + "/job.yaml") << text;
  }
  std::unique_ptr<Loop> open() {
    std::vector<std::string> words = {"program", "train", "--run", run_, "--display", "none"};
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    return std::make_unique<Loop>(static_cast<int>(argv.size()), argv.data());
  }
  static torch::Tensor inputs() { return torch::linspace(-1, 1, 300).reshape({100, 3}); }
  static torch::Tensor targets() { return inputs().sum(1, /*keepdim=*/true).sin(); }

  // Trains to the end, and calls `between` after each commit.
  int train(const std::function<void(Net&)>& between = {}) {
    const auto loop = open();
    const auto x = inputs();
    const auto y = targets();
    Net net;
    loop->adopt(*net, {x, y});
    while (loop->step()) {
      for (Lane& lane : loop->lanes()) {
        lane.backward(torch::mse_loss(net->forward(lane.take(x)), lane.take(y)));
      }
      const int64_t before = loop->steps();
      const bool committed = loop->commit();
      EXPECT_EQ(committed, loop->steps() > before);
      if (between) between(net);
    }
    EXPECT_TRUE(loop->finished());
    EXPECT_EQ(loop->steps(), 30);
    const int code = loop->finish();
    weights_ = torch::nn::utils::parameters_to_vector(net->parameters()).detach();
    return code;
  }
  std::string result(const std::string& key) const {
    std::ifstream file(run_ + "/result.json");
    return file ? nlohmann::json::parse(file).at(key).dump() : "";
  }

  track::TempDirectory directory_;
  std::string run_;
  torch::Tensor weights_;  // at the end
};

TEST_F(LoopTest, TrainsAndLeavesTheWeightsInTheModule) {
  double first = -1;
  double last = -1;
  const auto x = inputs();
  const auto y = targets();
  EXPECT_EQ(train([&](Net& net) {
              const torch::NoGradGuard no_grad;
              net->eval();
              last = torch::mse_loss(net->forward(x), y).item<double>();
              if (first < 0) first = last;
            }),
            0);
  EXPECT_EQ(result("steps"), "30");
  EXPECT_LT(last, first / 2);
  // They are its own: the worker's are gone.
  const auto files = posix_file_system();
  const auto saved =
      ckpt::SafetensorsFile::open(*files, run_ + "/checkpoints/step-000000030/model.safetensors");
  ASSERT_TRUE(saved.ok()) << saved.error().message();
  const auto* out = saved->find("out.bias");
  ASSERT_NE(out, nullptr);
  float bias = 0;
  std::memcpy(&bias, out->data.data(), sizeof(bias));
  EXPECT_EQ(weights_[-1].item<float>(), bias);
}

TEST_F(LoopTest, BatchNormKeepsItsStatisticsInTheJob) {
  const auto loop = open();
  const auto norm = std::make_shared<model::BatchNorm>(model::BatchNormOptions{.channels = 4});
  torch::nn::Module net;
  const auto in = net.register_module("in", torch::nn::Linear(3, 4));
  net.register_module("norm", norm);
  const auto x = inputs();
  loop->adopt(net, {x});
  while (loop->step()) {
    for (Lane& lane : loop->lanes()) {
      lane.backward(norm->forward(in->forward(lane.take(x))).square().mean());
    }
    loop->commit();
  }
  EXPECT_EQ(loop->finish(), 0);
  EXPECT_GT(norm->statistics()[0].running.abs().sum().template item<float>(), 0);
}

TEST_F(LoopTest, ViewsOfTheModuleMayOutliveTheWorker) {
  auto loop = open();
  torch::nn::Module net;
  const auto in = net.register_module("in", torch::nn::Linear(3, 4));
  const auto norm = net.register_module(
      "norm", std::make_shared<model::BatchNorm>(model::BatchNormOptions{.channels = 4}));
  const auto x = inputs();
  loop->adopt(net, {x});
  const auto kept = in->weight.detach();
  const auto mean = norm->statistics()[0].running.detach();
  EXPECT_EQ(kept.data_ptr(), in->weight.data_ptr());
  while (loop->step()) {
    for (Lane& lane : loop->lanes()) {
      lane.backward(norm->forward(in->forward(lane.take(x))).square().mean());
    }
    loop->commit();
  }
  EXPECT_EQ(loop->finish(), 0);
  loop.reset();
  EXPECT_NE(kept.data_ptr(), in->weight.data_ptr());
  const std::vector<float> other(1000, 5);  // where the state was, if it was freed
  EXPECT_TRUE(kept.equal(in->weight));
  EXPECT_TRUE(mean.equal(norm->statistics()[0].running));
}

TEST_F(LoopTest, AJobForAnotherModelIsRefused) {
  write_job("muster: 1\nmodel: { zoo: lenet }\ndata: { train: { format: own-loop } }\nsteps: 3\n");
  const auto loop = open();
  Net net;
  testing::internal::CaptureStderr();
  loop->adopt(*net, {inputs()});
  EXPECT_FALSE(loop->step());
  EXPECT_FALSE(loop->finished());
  EXPECT_EQ(loop->finish(), 3);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("model: { use: own-loop }"));
}

TEST_F(LoopTest, DropoutIsTheSameInEachRunWhateverWasDrawnMeanwhile) {
  ASSERT_EQ(train(), 0);
  const auto hash = result("weights_hash");
  const auto weights = weights_;
  std::filesystem::remove_all(run_);
  write_job(kJob);
  ASSERT_EQ(train([](Net&) { (void)torch::rand({7}); }), 0);
  EXPECT_EQ(result("weights_hash"), hash);
  EXPECT_TRUE(torch::equal(weights_, weights));
}

TEST_F(LoopTest, ResumesFromItsCheckpoint) {
  ASSERT_EQ(train(), 0);
  const auto hash = result("weights_hash");
  std::filesystem::remove_all(run_ + "/checkpoints/step-000000030");
  int steps = 0;
  ASSERT_EQ(train([&](Net&) { ++steps; }), 0);
  EXPECT_EQ(steps, 11);  // ten, and the one that the fingerprint is made of
  EXPECT_EQ(result("weights_hash"), hash);
}

TEST_F(LoopTest, AModuleThatChangesItselfIsRefused) {
  const auto loop = open();
  torch::nn::Sequential net(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4));
  testing::internal::CaptureStderr();
  loop->adopt(*net, {inputs()});
  EXPECT_FALSE(loop->step());
  EXPECT_EQ(loop->finish(), 3);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("updates its running statistics"));
}

TEST_F(LoopTest, ALaneWithoutBackwardIsAnError) {
  const auto loop = open();
  Net net;
  loop->adopt(*net, 100, "some data");
  testing::internal::CaptureStderr();
  while (loop->step()) {
    for (Lane& lane : loop->lanes()) (void)lane;
    loop->commit();
  }
  EXPECT_EQ(loop->finish(), 3);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("has not called backward"));
}

TEST_F(LoopTest, LeavingEarlyIsAnError) {
  {
    const auto loop = open();
    Net net;
    loop->adopt(*net, {inputs()});
    ASSERT_TRUE(loop->step());
    EXPECT_EQ(loop->finish(), 3);
  }
  {
    const auto loop = open();  // its destructor ends it
    Net net;
    loop->adopt(*net, {inputs()});
    ASSERT_TRUE(loop->step());
  }
  EXPECT_EQ(result("weights_hash"), "");
}

TEST_F(LoopTest, MistakesAreThrown) {
  const auto loop = open();
  Net net;
  const auto x = inputs();
  EXPECT_THROW(loop->step(), std::logic_error);
  EXPECT_THROW(loop->adopt(*net, {x, torch::zeros({3})}), std::logic_error);
  loop->adopt(*net, {x});
  EXPECT_THROW(loop->adopt(*net, {x}), std::logic_error);
  ASSERT_TRUE(loop->step());
  EXPECT_THROW(loop->commit(), std::logic_error);
  EXPECT_THROW(loop->step(), std::logic_error);
  for (Lane& lane : loop->lanes()) {
    const auto output = net->forward(lane.take(x));
    EXPECT_THROW(lane.backward(output), std::logic_error);
    EXPECT_THROW(net->forward(x).mean().backward(), std::logic_error);
    lane.backward(output.mean());
    EXPECT_THROW(lane.backward(output.mean()), std::logic_error);
  }
  EXPECT_THROW(loop->lanes().begin(), std::logic_error);
  loop->commit();
  {
    const torch::NoGradGuard no_grad;
    net->out->bias.add_(1);
  }
  EXPECT_THROW(loop->step(), std::logic_error);
}

}  // namespace
}  // namespace muster
