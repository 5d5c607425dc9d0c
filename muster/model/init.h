// The first values of weights.
//
// A weight's first value depends on the job's seed, the parameter's full name and its place in the
// tensor, and on nothing else: not on the order in which layers were made, on threads, nor on
// torch's global generator. So a layer added to a net leaves the first weights of the others alone.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "muster/model/net.h"

namespace muster::model {

// The distribution that a parameter's first values come from.
struct Init {
  enum class Kind { kConstant, kUniform, kNormal };
  Kind kind = Kind::kConstant;
  double value = 0;  // the constant; half the width around 0; the deviation around 0

  static Init constant(double value) { return {Kind::kConstant, value}; }
  static Init uniform(double bound) { return {Kind::kUniform, bound}; }
  static Init normal(double deviation) { return {Kind::kNormal, deviation}; }
  // PyTorch's default for linear and convolution layers, weight and bias alike.
  static Init fan_in(int64_t inputs);
  // He et al. for layers followed by a rectifier, as torchvision's resnets use it.
  static Init kaiming_fan_out(int64_t outputs);
};

// A layer that knows how its own parameters start. Its constructor leaves them unset, which saves
// the time of setting them in every lane thread's copy; initialise() sets them once.
class HasInit {
 public:
  virtual ~HasInit();
  // Names relative to the layer: "weight".
  virtual std::vector<std::pair<std::string, Init>> initial_values() const = 0;
};

// Sets the parameters of all layers that are HasInit. Parameters of other modules (torch::nn's, in
// models of one's own) keep what their constructors gave them; build() (registry.h) seeds torch's
// global generator before it calls a factory, so these too are the same in every run as long as no
// other thread draws from that generator meanwhile.
void initialise(Net& net, uint64_t seed);

}  // namespace muster::model
