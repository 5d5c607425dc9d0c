#include "muster/data/pack/stored_sample.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "muster/data/formats.h"

namespace muster::data {

Result<SampleCoder> SampleCoder::make(const Schema& schema, const config::SourceOptions& options) {
  const bool one_class = schema.target == DType::kInt64 && schema.target_shape.empty();
  const bool one_value = schema.target == DType::kFloat32 && schema.target_elements() == 1;
  if (schema.input != DType::kFloat32 || !(one_class || one_value)) {
    return Error(ErrorKind::kJob,
                 "the format {} has {}, which cannot be packed: only numbers and pixels with a "
                 "class or a value can",
                 options.format, schema.has_ids ? "ids" : "tokens");
  }
  SampleCoder coder;
  coder.form_ = {
      .pixels = schema.pixels, .input_shape = schema.input_shape, .has_classes = one_class};
  coder.mean_ = options.mean;
  coder.deviation_ = options.deviation;
  MUSTER_TRY(coder.values_, pixel_values(options));
  return coder;
}

Status SampleCoder::encode(const std::byte* input, const std::byte* target, std::byte* to) const {
  if (!form_.pixels) {
    std::memcpy(to, input, form_.input_bytes());
  } else {
    const auto* from = reinterpret_cast<const float*>(input);
    for (size_t i = 0; i < form_.input_elements(); ++i) {
      // Nearly always where the scaling undone points to; if not, it is looked for.
      const double near = (double{from[i]} * deviation_ + mean_) * 255 + 0.5;
      auto place = static_cast<size_t>(std::clamp(near, 0.0, 255.0));
      if (values_[place] != from[i]) {
        place = static_cast<size_t>(std::ranges::lower_bound(values_, from[i]) - values_.begin());
        if (place == values_.size() || values_[place] != from[i]) {
          return Error(ErrorKind::kData,
                       "the input has the value {}, which is not one of a pixel; are all inputs of "
                       "this data bytes?",
                       from[i]);
        }
      }
      to[i] = static_cast<std::byte>(place);
    }
  }
  std::memcpy(to + form_.input_bytes(), target, form_.target_bytes());
  return {};
}

}  // namespace muster::data
