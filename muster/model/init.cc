#include "muster/model/init.h"

#include <cmath>
#include <span>

#include "muster/base/check.h"
#include "muster/base/hash.h"
#include "muster/base/random.h"
#include "muster/model/random_fill.h"

namespace muster::model {
namespace {

void fill(torch::Tensor& tensor, const Init& init, const RandomStream& stream) {
  MUSTER_CHECK(tensor.is_contiguous() && tensor.scalar_type() == torch::kFloat32,
               "only contiguous float32 parameters can be initialised");
  const std::span<float> values(tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel()));
  const auto bound = static_cast<float>(init.value);
  switch (init.kind) {
    case Init::Kind::kConstant:
      std::fill(values.begin(), values.end(), bound);
      break;
    case Init::Kind::kUniform:
      fill_uniform(stream, -bound, bound, values);
      break;
    case Init::Kind::kNormal:
      fill_normal(stream, 0, init.value, values);
      break;
  }
}

}  // namespace

HasInit::~HasInit() = default;

Init Init::fan_in(int64_t inputs) {
  return uniform(1.0 / std::sqrt(static_cast<double>(std::max<int64_t>(inputs, 1))));
}

Init Init::kaiming_fan_out(int64_t outputs) {
  return normal(std::sqrt(2.0 / static_cast<double>(std::max<int64_t>(outputs, 1))));
}

void initialise(Net& net, uint64_t seed) {
  torch::NoGradGuard no_grad;
  for (const auto& entry : net.named_modules()) {
    const auto* layer = dynamic_cast<const HasInit*>(entry.value().get());
    if (layer == nullptr) continue;
    auto parameters = entry.value()->named_parameters(/*recurse=*/false);
    for (const auto& [name, init] : layer->initial_values()) {
      torch::Tensor* tensor = parameters.find(name);
      MUSTER_CHECK(tensor != nullptr, "initial_values() names a parameter that is not there");
      const std::string full = entry.key().empty() ? name : entry.key() + "." + name;
      fill(*tensor, init, RandomStream(seed, Purpose::kInit, hash64(full.data(), full.size())));
    }
  }
}

}  // namespace muster::model
