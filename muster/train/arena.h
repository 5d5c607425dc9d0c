// Everything that a job's numbers are, in one flat piece of memory.
//
//   weights      float   all parameters and running statistics, as exact::BlockLayout says: those
//                        that training changes, then the frozen ones
//   slots        float   the optimizer's buffers, each laid out like the weights that are not
//   frozen exponents    uint8   one per block: what the next step's fixed-point scale is made from
//   counters     Counters
//
// It is flat so that a snapshot is one memcpy, a joiner's state one transfer, and equality one
// hash. Modules alias their parameters into it (lane_net.h); optimizers update it block by block.
// Memory is touched by several threads, each on blocks of its own; who may do what when is said in
// stepper.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/hash.h"
#include "muster/base/large_memory.h"
#include "muster/ckpt/safetensors.h"
#include "muster/exact/block_layout.h"
#include "muster/optim/optimizer.h"

namespace muster::train {

// One tensor of the model as the arena holds it.
struct TensorSpec {
  optim::TensorInfo info;
  std::vector<int64_t> shape;
  size_t size() const;
};

// With the loss, which is the first.
inline constexpr size_t kMostMetrics = 16;

struct Counters {
  int64_t step = 0;         // committed steps
  int64_t attempt = 0;      // changes of the scales since then
  int64_t redoing = 0;      // 1: the next step has overflowed and is computed again
  uint64_t samples = 0;     // samples in them
  uint64_t redone = 0;      // steps computed again because a scale was too small
  uint64_t skipped = 0;     // steps without an update because something was not finite
  double best = 0;          // the best test metric so far
  int64_t best_step = -1;   // where; -1: no evaluation yet
  int64_t stale_evals = 0;  // evaluations since then
  // Of the last evaluation: where (-1: none yet), and what it gave, in the order of EvalReport. In
  // the state, because whoever takes over a job must be able to tell them.
  int64_t eval_step = -1;
  std::array<double, kMostMetrics> eval{};
  // Which samples the committed steps were computed from: a chain of the hashes that the lanes
  // made of the numbers of the samples they really had, in the order of steps and lanes. Equal to
  // expected_ledger() (ledger.h) if each pass used each sample once.
  uint64_t ledger = 0;
  // Of the last committed step (StepReport, stepper.h). In the state for the same reason.
  double last_loss = 0;
  double last_lr = 0;
  double last_gradient_norm = -1;
  uint64_t last_samples = 0;
  int64_t last_redone = 0;
  int64_t last_skipped = 0;
  // StepReport::gradient_bits of the last committed step, and the fewest of all; -1: none yet.
  int64_t last_gradient_bits = -1;
  int64_t fewest_gradient_bits = -1;
};

class Arena {
 public:
  Arena(std::vector<TensorSpec> tensors, std::vector<std::string> slot_names);

  const exact::BlockLayout& layout() const { return layout_; }
  std::span<const TensorSpec> tensors() const { return tensors_; }
  // nullptr if there is none of that name.
  const TensorSpec* find(const std::string& name, size_t* index = nullptr) const;

  std::span<float> weights() { return {floats(0), layout_.elements()}; }
  std::span<const float> weights() const { return const_cast<Arena*>(this)->weights(); }
  std::span<float> tensor(size_t t);
  size_t slots() const { return slot_names_.size(); }
  std::span<float> slot(size_t i) { return {floats(slot_begin(i)), layout_.block_elements()}; }
  std::span<uint8_t> exponents();
  Counters& counters() { return *counters_; }
  const Counters& counters() const { return *counters_; }
  // What is computed next follows from the counters, so damage to them must be noticed before they
  // are used. Whoever has changed them says so; and whether they are as they were then.
  void seal_counters();
  bool counters_are_sealed() const;

  // All of it.
  std::span<const std::byte> bytes() const { return {memory_.get(), size_}; }
  std::span<std::byte> bytes() { return {memory_.get(), size_}; }

  // The hash that the promise is about: names, shapes and values of all weights and statistics.
  Hash128 weights_hash() const;

  // For audits (audit.h): the hash of part `part` of `parts` of the weights and slots, and of all
  // exponents and counters. And where that part begins, for people: "weights of 'fc1.weight'".
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
  float* floats(size_t at) { return reinterpret_cast<float*>(memory_.get()) + at; }
  std::pair<size_t, size_t> part(int64_t part, int64_t parts) const;  // elements: first, size
  // Where slot i begins, in elements; slots(): where the last one ends.
  size_t slot_begin(size_t i) const { return layout_.elements() + i * layout_.block_elements(); }

  std::vector<TensorSpec> tensors_;
  std::vector<std::string> slot_names_;
  exact::BlockLayout layout_;
  size_t size_;
  LargeMemory memory_;
  Counters* counters_;
  uint64_t seal_ = 0;
};

}  // namespace muster::train
