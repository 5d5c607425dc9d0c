// A net that was exported from PyTorch: it runs the nodes of a .pt2 through libtorch's dispatcher,
// and eager autograd follows.
//
//   model: { file: net.pt2 }
//
// Its parameters and running statistics have the names and the values of the file. Nodes that draw
// random numbers or update statistics are replaced (muster/pt2/treatment.h); arguments are
// converted and operators looked up once, when it is built; values are released after their last
// use. Modules of the Python model are layers that can be observed; modules whose names begin with
// # are Muster's.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/result.h"
#include "muster/config/job.h"
#include "muster/data/schema.h"
#include "muster/model/net.h"
#include "muster/model/pt2_node.h"
#include "muster/model/pt2_tensors.h"
#include "muster/pt2/program.h"
#include "muster/pt2/treatment.h"

namespace muster::model {

// The name of the loss that is part of the file.
inline constexpr std::string_view kLossOfFile = "file";

// What the program takes and gives.
struct Pt2Interface {
  pt2::Slot input = pt2::kNoSlot;
  pt2::Slot target = pt2::kNoSlot;  // kNoSlot: it computes no loss
  pt2::Slot output = pt2::kNoSlot;  // kNoSlot: it gives its loss only
  pt2::Slot loss = pt2::kNoSlot;
};

// Whether the program fits the data and the job's loss. Errors (kJob) call the file by its name in
// `options`.
Result<Pt2Interface> find_interface(const pt2::Program& program,
                                    const config::ModelOptions& options,
                                    const data::Schema& schema);

// What becomes of each node, by the options of the job.
Result<pt2::Plan> plan_file(const pt2::File& file, const config::ModelOptions& options);

// The net of options.file, which `file` is; it is not needed any more when the net has been made.
Result<std::shared_ptr<Net>> make_pt2_net(const pt2::File& file,
                                          const config::ModelOptions& options,
                                          const data::Schema& schema,
                                          const std::shared_ptr<LaneContext>& lane);

class Pt2Net : public Net, public KeepsStatistics, public ComputesLoss {
 public:
  // Without the target that a program with a loss takes: its output for targets of 0.
  torch::Tensor forward(const torch::Tensor& input) override;
  Outcome forward_with_loss(const torch::Tensor& input, const torch::Tensor& target) override;
  std::vector<Statistic> statistics() override { return tensors_.statistics_list; }
  std::vector<std::string> lookups() const override { return lookups_; }
  // Whether the program may be run with this many samples of the data at once: it may hold only
  // branches of Python that are right for some numbers (muster/pt2/assumptions.h). forward() throws
  // for others. Errors: kJob.
  Status check_samples(int64_t samples) const;

 private:
  friend class Pt2Builder;
  struct Step {
    std::unique_ptr<Pt2Node> node;
    std::string place;                // for errors: "torch.ops.aten.linear.default (net.py, ...)"
    pt2::Slot result = pt2::kNoSlot;  // the first, if it is a tensor
    std::vector<const Pt2Part*> finished;  // modules whose output it is
    std::vector<pt2::Slot> release;        // nothing reads them later
  };
  void check_shapes(const torch::Tensor& input, const torch::Tensor& target);
  void run(const torch::Tensor& input, const torch::Tensor& target);
  void clear();
  int64_t version_of_fixed() const;
  torch::Tensor take(pt2::Slot slot);

  Pt2Interface interface_;
  std::string file_;  // its name, for errors
  pt2::Assumptions assumptions_;
  std::vector<pt2::Shape> checked_;    // shapes of inputs for which these hold
  std::vector<int64_t> input_shape_;   // of a sample
  std::vector<int64_t> target_shape_;  // of a sample
  torch::Dtype target_dtype_ = torch::kInt64;
  Pt2Tensors tensors_;
  std::vector<torch::Tensor> constants_;  // those of `tensors_`: only the trainer changes them
  std::vector<Step> steps_;
  Pt2Values values_;  // while it runs
  std::vector<std::string> lookups_;
};

}  // namespace muster::model
