// A small state to snapshot in tests: everything in it follows from its step.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "muster/ckpt/snapshot.h"

namespace muster::ckpt {

class TestState {
 public:
  explicit TestState(int64_t step, int64_t width = 16) : step_(step), weights_(width) {
    for (size_t i = 0; i < weights_.size(); ++i) {
      weights_[i] = static_cast<float>(step) + 0.5f * static_cast<float>(i);
      moments_.push_back(-2.0 * weights_[i]);
    }
    model_ = {{"fc.weight", DType::F32, {width}, std::as_bytes(std::span(weights_))}};
    state_ = {{"adam.m", DType::F64, {width}, std::as_bytes(std::span(moments_))},
              {"adam.v", DType::F64, {width}, std::as_bytes(std::span(moments_))}};
  }
  TestState(const TestState&) = delete;
  TestState& operator=(const TestState&) = delete;

  // Valid while this lives, or in the full expression of a temporary.
  SnapshotView view() const {
    SnapshotView view;
    view.step = step_;
    view.model = model_;
    view.state = state_;
    view.meta = {{"step", step_}};
    return view;
  }
  const std::vector<TensorView>& model() const { return model_; }
  const std::vector<TensorView>& state() const { return state_; }

  bool equals(const Snapshot& snapshot) const {
    return snapshot.step == step_ && same(model_, snapshot.model) && same(state_, snapshot.state);
  }

 private:
  static bool same(const std::vector<TensorView>& expected, const SafetensorsFile& file) {
    return file.tensors().size() == expected.size() &&
           std::all_of(expected.begin(), expected.end(), [&](const TensorView& tensor) {
             const TensorView* read = file.find(tensor.name);
             return read && read->dtype == tensor.dtype && read->shape == tensor.shape &&
                    std::equal(read->data.begin(), read->data.end(), tensor.data.begin(),
                               tensor.data.end());
           });
  }

  int64_t step_;
  std::vector<float> weights_;
  std::vector<double> moments_;
  std::vector<TensorView> model_;
  std::vector<TensorView> state_;
};

}  // namespace muster::ckpt
