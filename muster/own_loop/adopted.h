// A program's module and data as train/ wants to see them.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

#include "muster/data/dataset.h"
#include "muster/model/net.h"

namespace muster {

// Has the parts of the program's module, under the same names, which are the same tensors.
class AdoptedNet final : public model::Net {
 public:
  explicit AdoptedNet(torch::nn::Module& module) {
    for (auto& item : module.named_parameters(/*recurse=*/false)) {
      register_parameter(item.key(), item.value(), item.value().requires_grad());
    }
    for (auto& item : module.named_buffers(/*recurse=*/false)) {
      register_buffer(item.key(), item.value());
    }
    for (auto& item : module.named_children()) register_module(item.key(), item.value());
  }
  torch::Tensor forward(const torch::Tensor&) override {
    TORCH_CHECK(false, "this model is run by its program's own loop, and cannot be run without it");
  }
  bool generator_is_seeded() const override { return true; }
};

struct OwnData {
  uint64_t samples = 0;
  std::string identity;
  std::vector<torch::Tensor> tensors;  // contiguous
};

// Samples without contents: the program knows what belongs to their numbers. But the hash is that
// of the program's data.
class OwnDataset final : public data::Dataset {
 public:
  explicit OwnDataset(OwnData data) : data_(std::move(data)) {
    schema_.input_shape = {1};
    schema_.target = data::DType::kFloat32;
    schema_.target_shape = {1};
  }
  const data::Schema& schema() const override { return schema_; }
  uint64_t size() const override { return data_.samples; }
  void read(uint64_t, std::byte* input, std::byte* target) const override {
    std::memset(input, 0, sizeof(float));
    std::memset(target, 0, sizeof(float));
  }

 protected:
  void add_contents(Hasher& hasher) const override {
    hasher.add(data_.identity.data(), data_.identity.size());
    for (const auto& tensor : data_.tensors) hasher.add(tensor.const_data_ptr(), tensor.nbytes());
  }

 private:
  OwnData data_;
  data::Schema schema_;
};

}  // namespace muster
