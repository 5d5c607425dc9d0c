#include "muster/model/pt2_net.h"

#include <algorithm>
#include <utility>

#include "muster/base/check.h"

namespace muster::model {
namespace {

std::vector<int64_t> batched(int64_t samples, const std::vector<int64_t>& sample) {
  std::vector<int64_t> shape = {samples};
  shape.insert(shape.end(), sample.begin(), sample.end());
  return shape;
}

}  // namespace

Status Pt2Net::check_samples(int64_t samples) const {
  std::vector<pt2::Shape> shapes = {batched(samples, input_shape_)};
  if (interface_.target != pt2::kNoSlot) shapes.push_back(batched(samples, target_shape_));
  return pt2::check_shapes(assumptions_, file_, shapes);
}

// Most runs have the shapes of the one before.
void Pt2Net::check_shapes(const torch::Tensor& input, const torch::Tensor& target) {
  std::vector<pt2::Shape> shapes = {input.sizes().vec()};
  if (interface_.target != pt2::kNoSlot) shapes.push_back(target.sizes().vec());
  if (shapes == checked_) return;
  const auto status = pt2::check_shapes(assumptions_, file_, shapes);
  TORCH_CHECK(status.ok(), status.error().message());
  checked_ = std::move(shapes);
}

torch::Tensor Pt2Net::forward(const torch::Tensor& input) {
  if (interface_.output == pt2::kNoSlot) {
    TORCH_CHECK(is_training(),
                "the model of the file returns its loss only, so it cannot predict; "
                "export one that returns (output, loss)");
  }
  torch::Tensor target;
  if (interface_.target != pt2::kNoSlot) {
    target = torch::zeros(batched(input.size(0), target_shape_), target_dtype_);
  }
  run(input, target);
  return take(interface_.output != pt2::kNoSlot ? interface_.output : interface_.loss);
}

ComputesLoss::Outcome Pt2Net::forward_with_loss(const torch::Tensor& input,
                                                const torch::Tensor& target) {
  MUSTER_CHECK(interface_.loss != pt2::kNoSlot, "find_interface() has seen that it has a loss");
  run(input, target);
  Outcome outcome;
  outcome.loss = values_[static_cast<size_t>(interface_.loss)].toTensor();
  if (interface_.output != pt2::kNoSlot) {
    outcome.output = values_[static_cast<size_t>(interface_.output)].toTensor();
  }
  clear();
  return outcome;
}

torch::Tensor Pt2Net::take(pt2::Slot slot) {
  auto result = values_[static_cast<size_t>(slot)].toTensor();
  clear();
  return result;
}

void Pt2Net::clear() { std::ranges::fill(values_, c10::IValue()); }

// Views of a constant share its version, so this finds changes that go through them, too.
int64_t Pt2Net::version_of_fixed() const {
  int64_t sum = 0;
  for (const auto& constant : constants_) sum += constant._version();
  return sum;
}

void Pt2Net::run(const torch::Tensor& input, const torch::Tensor& target) {
  check_shapes(input, target);
  const int64_t version = version_of_fixed();
  // Nodes have what is fixed; but an output may be one of these, too.
  values_ = tensors_.fixed;
  values_[static_cast<size_t>(interface_.input)] = input;
  if (interface_.target != pt2::kNoSlot) values_[static_cast<size_t>(interface_.target)] = target;
  const Step* running = nullptr;
  try {
    for (Step& step : steps_) {
      running = &step;
      step.node->run(values_, is_training());
      for (const Pt2Part* part : step.finished) {
        part->show_output(values_[static_cast<size_t>(step.result)].toTensor());
      }
      for (const pt2::Slot slot : step.release) values_[static_cast<size_t>(slot)] = c10::IValue();
    }
  } catch (c10::Error& error) {
    error.add_context(running->place);
    throw;
  }
  TORCH_CHECK(
      version == version_of_fixed(),
      "the model changes one of its parameters or buffers in forward, so workers could differ "
      "in it (an embedding with max_norm does, for example)");
}

}  // namespace muster::model
