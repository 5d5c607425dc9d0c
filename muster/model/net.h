// What Muster trains: a Net, and what a Net must not do.
//
// This folder builds networks (from a name of the zoo, a list of layers in the job file, or a class
// registered in C++), gives them their first weights, and knows the losses. See README.md.
//
// A Net belongs to one thread: each lane thread has its own Net and its own LaneContext, and train/
// lets their parameters share one buffer of weights. Nothing in a Net may depend on anything but
// its weights, its input and the LaneContext; above all not on torch's global random generator,
// whose numbers depend on who drew before. check_net() finds the common offenders.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

#include "muster/base/result.h"
#include "muster/model/rows.h"

namespace muster::model {

// What a lane is doing right now; every layer that draws random numbers reads it.
struct LaneContext {
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t lane = 0;
  RowSource* rows = nullptr;  // null: the job has no tables
};

// A module that turns one tensor into another.
class Layer : public torch::nn::Module {
 public:
  using Observer = std::function<void(const torch::Tensor& output)>;

  // The first dimension is that of the samples.
  virtual torch::Tensor forward(const torch::Tensor& input) = 0;
  // forward(), and its output is shown to the observer. As in PyTorch, this is how a net runs its
  // layers; the output of one whose forward() is called directly cannot be observed.
  torch::Tensor operator()(const torch::Tensor& input);
  // From now on sees each output; empty: nobody does. The output may be changed in place later.
  void observe(Observer observer) { observer_ = std::move(observer); }

 protected:
  // For a net that runs a layer in another way than by calling it.
  void show(const torch::Tensor& output) const {
    if (observer_) observer_(output);
  }

 private:
  Observer observer_;
};

// A whole network. Always held by a shared_ptr.
class Net : public Layer {
 public:
  // Whether torch's global generator is seeded with (seed, step, lane) before each lane and no
  // other lane of this process draws from it meanwhile. Then modules may use it.
  virtual bool generator_is_seeded() const { return false; }
  // Full names of parameters that are tables whose rows are looked up, besides those of modules
  // that are embeddings.
  virtual std::vector<std::string> lookups() const { return {}; }
};

// A net that computes its loss itself (model.loss: file).
class ComputesLoss {
 public:
  virtual ~ComputesLoss();
  struct Outcome {
    torch::Tensor output;  // for metrics and predictions; undefined: it gives none
    torch::Tensor loss;    // a scalar, the mean over the samples
  };
  virtual Outcome forward_with_loss(const torch::Tensor& input, const torch::Tensor& target) = 0;
};

// One running statistic of a layer.
struct Statistic {
  std::string name;       // of the buffer: "layer1.0.bn1.running_mean"
  torch::Tensor running;  // used in evaluation
  torch::Tensor latest;   // of the last forward pass in training; the same tensor every time
  double momentum;        // running <- (1 - momentum) * running + momentum * latest
};

// A layer that keeps running statistics. In training, forward uses the lane's own statistics and
// leaves them in `latest`; train/ reduces these over the lanes, exactly, and updates `running` when
// the step is committed. The layer itself never changes `running`.
class KeepsStatistics {
 public:
  virtual ~KeepsStatistics();
  // Names relative to the layer: "running_mean".
  virtual std::vector<Statistic> statistics() = 0;
};

// Those of all modules, with full names, in the order of named_modules(). The tensors stay the same
// for the life of the net: collect once.
std::vector<Statistic> collect_statistics(Net& net);

// Full names of the parameters of modules that are embeddings, Muster's or torch's: tables whose
// rows are looked up.
std::unordered_set<std::string> names_of_embeddings(const Net& net);

// What the layer of this name (named_modules(): "fc1", "layer1.0.conv2") puts out while `run` runs
// the net, in float32; of several times the last. Errors: kUsage if there is no such layer, or it
// is not run on its own. What `run` throws goes through.
Result<torch::Tensor> output_of_layer(Net& net, const std::string& layer,
                                      const std::function<void()>& run);

// Whether this net can keep the promise of the same bits. Refuses modules of torch that draw from
// the global generator, update statistics by themselves or change weights in forward, buffers that
// are no statistics, parameters that are not float32 or not contiguous, and one tensor registered
// under two names. The sentence names the module and what to use instead.
Status check_net(Net& net);

}  // namespace muster::model
