// Everything that a job's numbers are, in one flat piece of memory.
//
//   weights      float   all parameters and running statistics, as exact::BlockLayout says: those
//                        that training changes, then the frozen ones
//   optimizer    float   the optimizer's buffers, each laid out like the weights that are not
//                        frozen
//   exponents    uint8   one per block: what the next step's fixed-point scale is made from
//   counters     Counters
//
// It is flat so that a snapshot is one memcpy, a joiner's state one transfer, and equality one
// hash. Modules alias their parameters into it (lane_net.h); optimizers update it block by block.
// Memory is touched by several threads, each on blocks of its own; who may do what when is said in
// lockstep.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/hash.h"
#include "muster/base/memory.h"
#include "muster/ckpt/safetensors.h"
#include "muster/exact/block_layout.h"
#include "muster/optim/optimizer.h"
#include "muster/train/state/counters.h"

namespace muster::train {

// One tensor of the model as the arena holds it.
struct TensorSpec {
  optim::TensorInfo info;
  std::vector<int64_t> shape;
  size_t size() const;
};

class Arena {
 public:
  Arena(std::vector<TensorSpec> tensors, std::vector<std::string> state_names,
        Memory& memory = host_memory());

  const exact::BlockLayout& layout() const { return layout_; }
  std::span<const TensorSpec> tensors() const { return tensors_; }
  // nullptr if there is none of that name.
  const TensorSpec* find(const std::string& name, size_t* index = nullptr) const;
  // "" for -1.
  std::string tensor_name(int64_t tensor) const {
    return tensor < 0 ? std::string() : tensors_.at(static_cast<size_t>(tensor)).info.name;
  }
  // Statistics come after all weights; if there are none, the number of tensors.
  size_t first_statistic() const;
  // Where those that change begin, in a buffer of all blocks: a frozen one has no block.
  size_t statistics_begin() const;

  std::span<float> weights() { return {floats(0), layout_.elements()}; }
  std::span<const float> weights() const { return const_cast<Arena*>(this)->weights(); }
  std::span<float> tensor(size_t t);
  size_t optimizer_states() const { return state_names_.size(); }
  std::span<float> optimizer_state(size_t i) {
    return {floats(state_begin(i)), layout_.block_elements()};
  }
  std::span<uint8_t> exponents();
  Counters& counters() { return *counters_; }
  const Counters& counters() const { return *counters_; }
  // What is computed next follows from the counters, so damage to them must be noticed before they
  // are used. Whoever has changed them says so; and whether they are as they were then.
  void seal_counters();
  bool counters_are_sealed() const;

  // All of it.
  std::span<const std::byte> bytes() const { return memory_.bytes(); }
  std::span<std::byte> bytes() { return memory_.bytes(); }

  // The hash that the promise is about: names, shapes and values of all weights and statistics.
  Hash128 weights_hash() const;

  // For audits (audit.h): the hash of part `part` of `parts` of the weights and the optimizer's
  // state, and of all exponents and counters. And where that part begins, for people: "weights of
  // 'fc1.weight'".
  uint64_t part_hash(int64_t part, int64_t parts) const;
  std::string part_name(int64_t part, int64_t parts) const;

  // The contents of an arena's bytes (this one's, or a copy of them) as named tensors: the model as
  // Python would name it, and the rest of the state.
  std::vector<ckpt::TensorView> model_views(std::span<const std::byte> bytes) const;
  std::vector<ckpt::TensorView> state_views(std::span<const std::byte> bytes) const;
  // The reverse. `load_model` wants every tensor, with its shape; `load_matching` takes those that
  // fit and returns how many did.
  Status load_model(const ckpt::SafetensorsFile& file);
  size_t load_matching(const ckpt::SafetensorsFile& file);
  Status load_state(const ckpt::SafetensorsFile& file);

 private:
  float* floats(size_t at) { return reinterpret_cast<float*>(memory_.data()) + at; }
  std::pair<size_t, size_t> part(int64_t part, int64_t parts) const;  // elements: first, size
  // Where optimizer state i begins, in elements; optimizer_states(): where the last one ends.
  size_t state_begin(size_t i) const { return layout_.elements() + i * layout_.block_elements(); }

  std::vector<TensorSpec> tensors_;
  std::vector<std::string> state_names_;
  exact::BlockLayout layout_;
  Buffer memory_;
  Counters* counters_;
  uint64_t seal_ = 0;
};

}  // namespace muster::train
