#include "muster/data/pack/stored_sample.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "muster/data/formats.h"

namespace muster::data {
namespace {

using Input = SampleForm::Input;

// Formats of records read whole numbers as doubles (blocks/id_lists.cc).
constexpr int64_t kMostId = int64_t{1} << 53;

// Nothing: samples of this kind cannot be packed.
Result<Input> input_of(const Schema& schema, const std::string& format) {
  const bool one_class = schema.target == DType::kInt64 && schema.target_shape.empty();
  const bool one_value = schema.target == DType::kFloat32 && schema.target_elements() == 1;
  const bool one_target = one_class || one_value;
  if (schema.input == DType::kFloat32 && one_target) {
    return schema.pixels ? Input::kPixels : Input::kNumbers;
  }
  if (schema.has_ids && one_target) {
    if (schema.numbers == 0 && schema.ids_are_a_bag) {
      return schema.has_values ? Input::kIdsWithValues : Input::kIds;
    }
    return Error(ErrorKind::kJob,
                 "the format {} has ids in columns of their own, beside numbers, which cannot be "
                 "packed: records have one list of ids",
                 format);
  }
  const bool tokens = schema.input == DType::kInt64 && !schema.has_ids &&
                      schema.target == DType::kInt64 && schema.input_shape.size() == 1 &&
                      schema.target_shape == schema.input_shape && schema.classes > 0 &&
                      schema.classes <= std::numeric_limits<int32_t>::max();
  if (tokens) return Input::kTokens;
  return Error(ErrorKind::kJob,
               "samples of the format {} cannot be packed: what can are numbers, pixels and lists "
               "of ids with a class or a value, and tokens",
               format);
}

int64_t load(const std::byte* from, size_t i) {
  int64_t value = 0;
  std::memcpy(&value, from + i * sizeof(value), sizeof(value));
  return value;
}

template <typename T>
void store(std::byte* to, size_t i, T value) {
  std::memcpy(to + i * sizeof(T), &value, sizeof(T));
}

}  // namespace

Result<SampleCoder> SampleCoder::make(const Schema& schema, const config::SourceOptions& options) {
  SampleCoder coder;
  MUSTER_TRY(coder.form_.input, input_of(schema, options.format));
  coder.form_.input_shape = schema.input_shape;
  coder.form_.has_classes = schema.target == DType::kInt64;
  MUSTER_TRY(coder.scaling_, Scaling::make(options));
  MUSTER_TRY(coder.values_, PixelValues::make(coder.scaling_));
  return coder;
}

Status SampleCoder::encode(const std::byte* input, const std::byte* target, std::byte* to) const {
  switch (form_.input) {
    case Input::kNumbers:
      std::memcpy(to, input, form_.input_bytes());
      break;
    case Input::kPixels:
      MUSTER_RETURN_IF_ERROR(encode_pixels(input, to));
      break;
    case Input::kTokens:
      return encode_tokens(input, target, to);
    case Input::kIds:
    case Input::kIdsWithValues:
      MUSTER_RETURN_IF_ERROR(encode_ids(input, to));
      break;
  }
  std::memcpy(to + form_.input_bytes(), target, form_.target_bytes());
  return {};
}

Status SampleCoder::encode_pixels(const std::byte* input, std::byte* to) const {
  const auto* from = reinterpret_cast<const float*>(input);
  const size_t channels = static_cast<size_t>(std::max<int64_t>(form_.input_shape.front(), 1));
  const size_t in_channel = std::max<size_t>(form_.input_elements() / channels, 1);
  for (size_t i = 0; i < form_.input_elements(); ++i) {
    const size_t channel = i / in_channel;
    const auto& values = values_.of(channel);
    // Nearly always where the scaling undone points to; if not, it is looked for.
    const double near =
        (double{from[i]} * scaling_.deviation(channel) + scaling_.mean(channel)) * 255 + 0.5;
    auto place = static_cast<size_t>(std::clamp(near, 0.0, 255.0));
    if (values[place] != from[i]) {
      place = static_cast<size_t>(std::ranges::lower_bound(values, from[i]) - values.begin());
      if (place == values.size() || values[place] != from[i]) {
        return Error(ErrorKind::kData,
                     "the input has the value {}, which is not one of a pixel; are all inputs of "
                     "this data bytes?",
                     from[i]);
      }
    }
    to[i] = static_cast<std::byte>(place);
  }
  return {};
}

Status SampleCoder::encode_tokens(const std::byte* input, const std::byte* target,
                                  std::byte* to) const {
  const size_t context = form_.input_elements();
  for (size_t i = 0; i < context; ++i) {
    if (i > 0 && load(input, i) != load(target, i - 1)) {
      return Error(ErrorKind::kData,
                   "the target of token {} is not the token after it, which is what packed tokens "
                   "have",
                   i - 1);
    }
    store(to, i, static_cast<int32_t>(load(input, i)));
  }
  store(to, context, static_cast<int32_t>(load(target, context - 1)));
  return {};
}

Status SampleCoder::encode_ids(const std::byte* input, std::byte* to) const {
  const size_t columns = form_.id_columns();
  bool ended = false;
  for (size_t i = 0; i < columns; ++i) {
    const int64_t id = load(input, i);
    if (id >= kMostId) {
      return Error(ErrorKind::kData, "the id {} cannot be packed: ids of records are below 2^53",
                   id);
    }
    if (id < 0) ended = true;
    if (id >= 0 && ended) {
      return Error(ErrorKind::kData, "the id {} is behind a column without one", id);
    }
    store(to, i, id);
    if (form_.input == Input::kIdsWithValues) {
      const auto value = std::bit_cast<double>(load(input, columns + i));
      store(to + columns * sizeof(int64_t), i, static_cast<float>(value));
    }
  }
  return {};
}

}  // namespace muster::data
