// One training step after the other of a .pt2 file, without the rest of Muster; compare.py compares
// its first gradients and its speed with eager PyTorch.
//
//   pt2_step FILE LOSS DATA GRADIENTS
//
// DATA: a safetensors file with `inputs` and `targets`. The gradients of the first step go to
// GRADIENTS. Then reads "N\n" on standard input, runs N steps, prints the seconds of each as JSON;
// ends with its input.
#include <malloc.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include <fmt/ranges.h>
#include <torch/torch.h>

#include "muster/base/check.h"
#include "muster/base/file_system.h"
#include "muster/ckpt/safetensors.h"
#include "muster/model/registry.h"

namespace {

using namespace muster;  // NOLINT(google-build-using-namespace)

torch::Tensor tensor_of(const ckpt::TensorView& view) {
  const auto dtype = view.dtype == ckpt::DType::F32 ? torch::kFloat32 : torch::kInt64;
  const auto tensor = torch::empty(view.shape, dtype);
  std::memcpy(tensor.mutable_data_ptr(), view.data.data(), view.data.size());
  return tensor;
}

data::DType dtype_of(const torch::Tensor& tensor) {
  return tensor.scalar_type() == torch::kFloat32 ? data::DType::kFloat32 : data::DType::kInt64;
}

class Trainer {
 public:
  Trainer(const std::string& file, const std::string& loss, const std::string& data) {
    const auto files = posix_file_system();
    const auto tensors = ckpt::SafetensorsFile::open(*files, data).value();
    inputs_ = tensor_of(*tensors.find("inputs"));
    targets_ = tensor_of(*tensors.find("targets"));
    data::Schema schema;
    schema.input = dtype_of(inputs_);
    schema.input_shape = inputs_.sizes().slice(1).vec();
    schema.target = dtype_of(targets_);
    schema.target_shape = targets_.sizes().slice(1).vec();
    config::ModelOptions options;
    options.file = file;
    options.loss = loss;
    const auto registry = model::Registry::builtin();
    net_ = model::build(registry, options, schema, std::make_shared<model::LaneContext>()).value();
    loss_ = model::find_loss(registry, options, schema).value();
  }

  void step() {
    for (const auto& parameter : net_->parameters()) parameter.mutable_grad().reset();
    torch::Tensor loss;
    if (loss_.compute) {
      loss = loss_.compute(net_->forward(inputs_), targets_);
    } else {
      auto* own = dynamic_cast<model::ComputesLoss*>(net_.get());
      MUSTER_CHECK(own != nullptr, "find_loss() has seen it");
      loss = own->forward_with_loss(inputs_, targets_).loss;
    }
    loss.backward();
  }

  void save_gradients(const std::string& path) const {
    std::vector<torch::Tensor> kept;
    std::vector<ckpt::TensorView> views;
    for (const auto& parameter : net_->named_parameters()) {
      kept.push_back(parameter.value().grad().contiguous());
      const auto& gradient = kept.back();
      views.push_back(
          {parameter.key(),
           ckpt::DType::F32,
           gradient.sizes().vec(),
           {static_cast<const std::byte*>(gradient.const_data_ptr()), gradient.nbytes()}});
    }
    const auto files = posix_file_system();
    const auto written = ckpt::write_safetensors(*files, path, views, {});
    MUSTER_CHECK(written.ok(), "the gradients could not be written");
  }

 private:
  torch::Tensor inputs_;
  torch::Tensor targets_;
  std::shared_ptr<model::Net> net_;
  model::Loss loss_;
};

double seconds_of_step(Trainer& trainer) {
  const auto begin = std::chrono::steady_clock::now();
  trainer.step();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fputs("usage: pt2_step FILE LOSS DATA GRADIENTS\n", stderr);
    return 2;
  }
  // As train::prepare_process() for workers: large pieces of memory are kept from step to step.
  // NOLINTBEGIN(concurrency-mt-unsafe): there is one thread yet
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
  // NOLINTEND(concurrency-mt-unsafe)
  torch::set_num_threads(1);
  Trainer trainer(argv[1], argv[2], argv[3]);
  trainer.step();
  trainer.save_gradients(argv[4]);
  for (int count = 0; std::cin >> count;) {
    std::vector<double> seconds;
    for (int i = 0; i < count; ++i) seconds.push_back(seconds_of_step(trainer));
    fmt::print("[{}]\n", fmt::join(seconds, ", "));
    std::fflush(stdout);
  }
  return 0;
}
