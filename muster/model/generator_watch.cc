#include "muster/model/generator_watch.h"

#include <mutex>

#include <ATen/CPUGeneratorImpl.h>

namespace muster::model {
namespace {

torch::Tensor state_of_generator() {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

}  // namespace

GeneratorWatch::GeneratorWatch() : state_(state_of_generator()) {}

bool GeneratorWatch::moved() const { return !state_.equal(state_of_generator()); }

}  // namespace muster::model
