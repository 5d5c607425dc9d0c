// Nets and losses by name: the zoo's, and those a program adds before it calls the worker's main.
//
//   auto registry = muster::model::Registry::builtin();
//   registry.add_model("two-towers", [](const config::Node& args, const data::Schema& schema,
//                                       std::shared_ptr<LaneContext> lane)
//                                        -> Result<std::shared_ptr<Net>> {...});
//
// A plain value, filled before training and then only read: any number of threads may build from
// it.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/result.h"
#include "muster/config/job.h"
#include "muster/data/schema.h"
#include "muster/model/net.h"
#include "muster/pt2/program.h"

namespace muster::model {

// The mean over the samples of the batch: a scalar, in float32 whatever the precision of `output`.
using LossFunction =
    std::function<torch::Tensor(const torch::Tensor& output, const torch::Tensor& target)>;

// A number that evaluation reports. It has one of two forms.
//
// A quotient: `measure` gives two numbers for a batch, and the metric is the sum of the first by
// the sum of the second over all batches, e.g. how many were right and how many there were.
//
// A function of counts, for what is no quotient, such as the area under a curve: `collect` adds a
// batch to `bins` numbers, which start at 0, and `finish` makes the metric from those of all
// batches. What is added must be whole numbers, and their sums must stay below 2^53: then they are
// exact, and the same in whatever order batches, threads and workers are added up. (Or the one NaN
// of std::numeric_limits, where the metric is not defined.)
struct Metric {
  std::string name;  // "accuracy"
  bool higher_is_better = true;
  std::function<std::pair<double, double>(const torch::Tensor& output, const torch::Tensor& target)>
      measure = nullptr;
  size_t bins = 0;  // 0: it is a quotient
  std::function<void(const torch::Tensor& output, const torch::Tensor& target,
                     std::span<double> bins)>
      collect = nullptr;
  std::function<double(std::span<const double> bins)> finish = nullptr;
};

struct Loss {
  std::string name;
  LossFunction compute;
  std::vector<Metric> metrics;  // the first one decides what is best, unless the job says otherwise
  // What kind of target it can be used with: class numbers (int64), or values (float32).
  enum class Target { kAny, kClasses, kValues } target = Target::kAny;

  // Bins of all metrics together. They follow one another in the order of metrics.
  size_t bins() const;
};

// Makes a net from the job's model.args and the data's schema. The net keeps `lane` for its dropout
// layers. Called once per lane thread, on that thread's behalf; all nets must have the same
// parameters. May throw: build() turns what it throws into an error.
using NetFactory = std::function<Result<std::shared_ptr<Net>>(
    const config::Node& args, const data::Schema&, std::shared_ptr<LaneContext>)>;

class Registry {
 public:
  // With the zoo (deepfm, dlrm, gpt, lenet, mlp, resnet, two-tower, wide-deep) and the losses
  // click, cross_entropy and mse.
  static Registry builtin();

  // A name that is taken already is a mistake in the program.
  void add_model(std::string name, NetFactory factory);
  void add_loss(std::string name, LossFunction compute, std::vector<Metric> metrics,
                Loss::Target target = Loss::Target::kAny);

  const NetFactory* find_model(const std::string& name) const;  // or nullptr
  const Loss* find_loss(const std::string& name) const;         // or nullptr
  // In alphabetical order.
  std::vector<std::string> model_names() const;
  std::vector<std::string> loss_names() const;

 private:
  std::map<std::string, NetFactory> models_;
  std::map<std::string, Loss> losses_;
};

// The net that the job describes, checked (check_net), its dropout layers numbered, in training
// mode. Its parameters are unset: call initialise() (init.h), or let them alias weights that exist;
// but those of options.file have the values of the file. Seeds torch's global generator with
// lane->seed, for models whose constructors draw from it. `file`: what options.file names; null: it
// is opened.
Result<std::shared_ptr<Net>> build(const Registry& registry, const config::ModelOptions& options,
                                   const data::Schema& schema,
                                   const std::shared_ptr<LaneContext>& lane,
                                   const pt2::File* file = nullptr);

// The loss that the job names, if it fits the targets. Of the loss `file`, the net computes it
// (ComputesLoss), and `compute` is empty.
Result<Loss> find_loss(const Registry& registry, const config::ModelOptions& options,
                       const data::Schema& schema, const pt2::File* file = nullptr);

}  // namespace muster::model
