// The tensors that an exported model's file contains: parameters and statistics of the net, and
// constants.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

#include "muster/base/result.h"
#include "muster/model/batch_norm.h"
#include "muster/model/net.h"
#include "muster/model/pt2_arguments.h"
#include "muster/pt2/program.h"
#include "muster/pt2/treatment.h"

namespace muster::model {

// A module of the exported model: it has the names of parameters, and Pt2Net runs its nodes.
class Pt2Part : public Layer {
 public:
  torch::Tensor forward(const torch::Tensor& input) override;
  void show_output(const torch::Tensor& output) const { show(output); }
};

// The module that "layer1.0" names inside of `root`, made if there is none. Throws if it cannot be
// a name.
std::shared_ptr<torch::nn::Module> part_at(torch::nn::Module& root,
                                           std::span<const std::string> path);

// A copy, contiguous.
at::Tensor tensor_of(const pt2::Weight& weight);

struct Pt2Tensors {
  // By slot: parameters and constants. None: what is computed, the inputs of the model, and running
  // statistics, which nothing else may read.
  Pt2Values fixed;
  // By the slot of the running mean. In the order of the file's nodes.
  std::vector<std::pair<pt2::Slot, std::shared_ptr<BatchStatistics>>> statistics;
  std::vector<Statistic> statistics_list;  // the same, with the names of the file
};

// Makes the tensors, and registers the parameters in `root` under their names: "layer1.0.weight"
// is the parameter `weight` of a module `0` in a module `layer1`. Of tied ones the first name.
// A buffer or constant that shares memory with a parameter that is trained is refused.
// Errors (kJob) call the file `file`.
Result<Pt2Tensors> load_tensors(const pt2::Program& program, const pt2::Plan& plan,
                                torch::nn::Module& root, const std::string& file);

}  // namespace muster::model
