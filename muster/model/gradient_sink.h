// Where a layer may put the gradient of a large weight, piece by piece, instead of returning it.
//
// The gradient of a matrix of millions of weights does not fit into a core's cache: written whole
// and then read by the sum, it crosses the memory bus three times, and every lane does so. A layer
// that makes it a few rows at a time can hand over each piece while it is still in the cache, and
// the whole never exists. See linear.cc for the one layer where this pays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <torch/types.h>

namespace muster::model {

// Takes the gradient of one parameter.
class GradientSink {
 public:
  // Pieces must begin at a multiple of this, and only the last may end elsewhere.
  static constexpr int64_t kGrain = 4096;

  virtual ~GradientSink() = default;
  // Elements [first, first + piece.size()) of the gradient. May be called by several threads at
  // once, each with other elements; all of them together must cover the parameter exactly once.
  virtual void add(size_t first, std::span<const float> piece) = 0;
  // Whether this pass uses the parameter in one place only. Asked in backward, when the whole graph
  // is known. If it does not (a layer that is applied twice, a weight that an embedding shares),
  // the gradients of all uses have to be added up first: the layer returns its part as usual.
  virtual bool only_use() const = 0;
};

// A layer that can do so.
class StreamsGradient {
 public:
  virtual ~StreamsGradient() = default;
  // From now on the gradient of `weight()` goes to `sink`, if the layer thinks that it pays; else
  // it is found in weight().grad() as always. `sink` must live as long as gradients are computed.
  virtual void stream_to(GradientSink* sink) = 0;
  virtual const torch::Tensor& weight() const = 0;
};

}  // namespace muster::model
