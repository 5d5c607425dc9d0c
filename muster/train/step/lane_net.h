// A model as one lane thread sees it: a module of its own whose parameters are the arena's memory.
//
// All lane threads of a worker share one copy of the weights: each has a LaneNet, and every
// parameter of every LaneNet is a view of the same arena. Backward hands each parameter's gradient
// to the GradientSum as soon as it is there, while it is still in cache, and frees it at once: no
// second copy of the gradients ever exists.
//
// One thread at a time uses a LaneNet. Weights must not change while any of them computes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

#include "muster/config/job.h"
#include "muster/data/loader.h"
#include "muster/model/generator_watch.h"
#include "muster/model/registry.h"
#include "muster/pt2/program.h"
#include "muster/train/state/arena.h"
#include "muster/train/step/gradient_sum.h"
#include "muster/train/step/own_lanes.h"

namespace muster::train {

// What is needed to make any number of equal nets. Must outlive them.
struct NetPlan {
  const model::Registry* models = nullptr;
  config::ModelOptions options;
  std::shared_ptr<const pt2::File> file;  // model.file, while nets are made; null: none
  data::Schema schema;
  model::Loss loss;
  uint64_t seed = 0;
  bool bf16 = false;
  model::RowSource* rows = nullptr;  // if the job has tables
  OwnLanes* own = nullptr;           // the program's own forward and backward, if it has one
  Memory* memory = &host_memory();   // where state, sums and batches live
};

// The arena's description of the model: its parameters in the model's order, then its statistics.
// Names that match one of `freeze` (with * for any letters) are kept as they are by training; a
// pattern that matches nothing is an error.
Result<std::vector<TensorSpec>> describe(model::Net& net, const std::vector<std::string>& freeze);
// Fails if one of the patterns, which are the job's `key`, matches none of the names.
Status check_patterns(const char* key, const std::vector<std::string>& patterns,
                      const std::vector<std::string>& names);

// Builds the model once, with its initial weights, and returns it with its description.
struct FirstNet {
  std::shared_ptr<model::Net> net;
  std::shared_ptr<model::LaneContext> context;
  std::vector<TensorSpec> tensors;
};
Result<FirstNet> build_first_net(const NetPlan& plan);

class LaneNet {
 public:
  // `first`: an already built net to use, whose values are copied into the arena; without it
  // another one is built and takes the arena's values.
  static Result<std::unique_ptr<LaneNet>> create(const NetPlan& plan, Arena& arena,
                                                 GradientSum* sum, FirstNet* first = nullptr);
  ~LaneNet();
  LaneNet(const LaneNet&) = delete;
  LaneNet& operator=(const LaneNet&) = delete;

  // Forward and backward of one lane of one step. The gradient of weight * mean loss, and the
  // lane's statistics times weight, go to the GradientSum. Returns the mean loss.
  Result<double> train(int64_t step, int lane, const data::Batch& batch, float weight);
  // There are no more lanes to train until the step is committed.
  Status lanes_over(int64_t step);

  // Sums over the batch's samples, without gradients, with running statistics.
  struct Evaluation {
    double samples = 0;
    double loss = 0;
    std::vector<std::pair<double, double>> metrics;  // sum and count, as the loss names them
    std::vector<double> bins;  // of those metrics that have bins (and 0 as sum and count)
  };
  Result<Evaluation> evaluate(const data::Batch& batch);

  // Whether the model can be trained on this many samples at once: batch normalisation cannot on
  // one. Computes on zeros; nothing of it stays.
  Status try_training(uint64_t samples);
  // Whether the model takes this many samples at once, as far as its file tells.
  Status check_samples(uint64_t samples) const;
  // Fails if something drew from torch's global generator since `watch` was made, unless the net
  // says that this is safe.
  Status check_generator(const model::GeneratorWatch& watch) const;
  bool keeps_statistics() const { return !statistics_.empty(); }

  // The model's output for a batch, without gradients.
  Result<torch::Tensor> predict(const data::Batch& batch, const data::Schema& schema);
  // The output of one of its layers for a batch (model::output_of_layer), without gradients.
  Result<torch::Tensor> features(const data::Batch& batch, const std::string& layer);

 private:
  LaneNet(const NetPlan& plan, Arena& arena, GradientSum* sum);
  Status attach(bool copy_into_arena);
  void detach();
  torch::Tensor forward(const data::Batch& batch, const data::Schema& schema);
  // Of a batch with targets; in float32.
  model::ComputesLoss::Outcome forward_with_loss(const data::Batch& batch);
  double forward_backward(const data::Batch& batch, float weight);
  void add_statistics(int lane, float weight);
  void check_gradient_is_wanted() const;
  void take_gradient(size_t tensor, const torch::Tensor& parameter);
  // Finds out, from the graph of a loss, which streamed weights are used in one place only.
  void count_uses(const torch::Tensor& loss);

  class GradientHook;
  class TensorSink;
  const NetPlan& plan_;
  Arena& arena_;
  GradientSum* sum_;
  std::shared_ptr<model::LaneContext> context_;
  std::shared_ptr<model::Net> net_;
  std::vector<std::pair<size_t, torch::Tensor>>
      statistics_;                                  // place in the arena, the lane's latest
  std::vector<std::unique_ptr<TensorSink>> sinks_;  // for layers that stream their gradient
  std::vector<float> scratch_;
};

}  // namespace muster::train
