// Whether something drew from torch's global generator of the CPU.
#pragma once

#include <torch/types.h>

namespace muster::model {

class GeneratorWatch {
 public:
  GeneratorWatch();
  // Since it was made, in any thread.
  bool moved() const;

 private:
  torch::Tensor state_;
};

}  // namespace muster::model
