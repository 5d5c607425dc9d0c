#include "muster/data/blocks/record.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include <fmt/ranges.h>

#include "muster/base/text.h"
#include "muster/config/source.h"
#include "muster/data/blocks/image.h"
#include "muster/data/formats.h"

namespace muster::data {
namespace {

constexpr int64_t kMostSide = 1 << 14;
// A sample larger than this is taken for a mistake.
constexpr int64_t kMostElements = int64_t{1} << 28;

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// "a" or ["a", "b"].
Result<std::vector<std::string>> get_names(config::ArgReader& args, std::string_view key) {
  const config::Node* node = args.get(key);
  std::vector<std::string> names;
  if (node == nullptr) return names;
  if (!node->is_list()) {
    MUSTER_TRY(names.emplace_back(), node->as_string(key));
    return names;
  }
  for (const auto& item : node->items()) {
    MUSTER_TRY(names.emplace_back(), item.as_string(key));
  }
  if (names.empty()) return node->error("{} must name at least one field", key);
  return names;
}

Result<std::vector<int64_t>> get_shape(config::ArgReader& args, std::string_view key) {
  const config::Node* node = args.get(key);
  std::vector<int64_t> shape;
  if (node == nullptr) return shape;
  if (node->is_list()) {
    MUSTER_TRY(shape, node->as_ints(key));
  } else {
    MUSTER_TRY(shape.emplace_back(), node->as_int(key));
  }
  int64_t elements = 1;
  for (const int64_t side : shape) {
    if (side < 1 || side > kMostElements) {
      return node->error("{} must be whole numbers from 1, not {}", key, side);
    }
    elements *= side;
    if (elements > kMostElements) return node->error("{} is too large", key);
  }
  if (shape.empty() || shape.size() > 4) return node->error("{} has from 1 to 4 numbers", key);
  return shape;
}

// At least 1, also of an empty input.
size_t elements_in_channel(const Schema& schema) {
  const auto channels = static_cast<size_t>(std::max<int64_t>(schema.input_shape[0], 1));
  return std::max<size_t>(schema.input_elements() / channels, 1);
}

}  // namespace

Result<Recipe> Recipe::make(const config::SourceOptions& options, config::ArgReader& args,
                            FieldDefaults defaults) {
  MUSTER_TRY(Scaling scaling, Scaling::make(options));
  if (options.target != "class" && options.target != "value") {
    return Error(ErrorKind::kJob, "`target` is class or value, not '{}'", options.target);
  }
  Recipe recipe;
  recipe.has_classes_ = options.target == "class";
  if (recipe.has_classes_ && options.classes < 1) {
    return Error(
        ErrorKind::kJob,
        "the format {} needs `classes`, the number of classes: data that is read by blocks "
        "is not searched for the largest label",
        options.format);
  }
  recipe.classes_ = recipe.has_classes_ ? options.classes : 0;
  MUSTER_TRY(recipe.pixels_, PixelValues::make(scaling));
  recipe.scaling_ = std::move(scaling);
  recipe.defaults_ = std::move(defaults);
  if (recipe.defaults_.lists) {
    MUSTER_TRY(recipe.tokens_, TokenLists::make(options, args));
    if (recipe.tokens_) {
      recipe.names_ = {recipe.tokens_->name()};
      return recipe;
    }
    MUSTER_TRY(recipe.ids_, IdLists::make(options, args));
  }
  MUSTER_RETURN_IF_ERROR(recipe.read_args(args));
  recipe.has_labels_ = config::has_labels(options);
  if (recipe.has_labels_) {
    recipe.names_.push_back(options.label.empty() ? recipe.defaults_.label : options.label);
  }
  return recipe;
}

Status Recipe::read_args(config::ArgReader& args) {
  MUSTER_TRY(const int64_t first_label, get_whole(args, "first_label", 0, -1000, 1000));
  first_label_ = static_cast<double>(first_label);
  if (ids_) {
    names_ = ids_->names();
    return {};
  }
  MUSTER_TRY(names_, get_names(args, "input"));
  if (names_.empty()) names_ = defaults_.input;
  if (names_.empty()) {
    return Error(ErrorKind::kJob, "say which {} is the input: `args: {{ input: NAME }}`",
                 defaults_.field);
  }
  MUSTER_TRY(shape_, get_shape(args, "shape"));
  MUSTER_TRY(const std::string layout, args.get_string("layout", "chw"));
  if (layout != "chw" && layout != "hwc") {
    return Error(ErrorKind::kJob, "`layout` is chw or hwc, not '{}'", layout);
  }
  pixels_last_ = layout == "hwc";
  MUSTER_TRY(const auto size, get_shape(args, "size"));
  if (size.size() > 2) {
    return Error(ErrorKind::kJob, "`size` is one number, or height and width");
  }
  if (!size.empty()) {
    height_ = static_cast<size_t>(size.front());
    width_ = static_cast<size_t>(size.back());
    if (std::max(height_, width_) > static_cast<size_t>(kMostSide)) {
      return Error(ErrorKind::kJob, "`size` is at most {}", kMostSide);
    }
  }
  const auto least = static_cast<int64_t>(std::max(height_, width_));
  MUSTER_TRY(const int64_t shorter,
             get_whole(args, "resize", 0, std::max<int64_t>(least, 1), kMostSide));
  shorter_ = static_cast<size_t>(shorter);
  if (height_ == 0 && shorter_ != 0) {
    return Error(ErrorKind::kJob, "`resize` needs `size`, the size that is cut out after it");
  }
  MUSTER_TRY(const int64_t channels, get_whole(args, "channels", 3, 1, 3));
  if (channels == 2) return Error(ErrorKind::kJob, "`channels` is 1 or 3");
  channels_ = static_cast<size_t>(channels);
  return {};
}

Result<Schema> Recipe::schema_with(std::vector<int64_t> input_shape, bool pixels) const {
  MUSTER_RETURN_IF_ERROR(scaling_.check_shape(input_shape));
  Schema schema;
  schema.pixels = pixels;
  // What a raw zero becomes: of a pixel and of a number, both are divided after the mean is taken.
  schema.padding = scaling_.zeros();
  schema.input_shape = std::move(input_shape);
  schema.classes = classes_;
  if (!has_classes_) {
    schema.target = DType::kFloat32;
    schema.target_shape = {1};
  }
  return schema;
}

Result<std::vector<int64_t>> Recipe::image_shape(std::span<const std::byte> file) const {
  const auto channels = static_cast<int64_t>(channels_);
  if (height_ > 0) {
    return std::vector<int64_t>{channels, static_cast<int64_t>(height_),
                                static_cast<int64_t>(width_)};
  }
  MUSTER_TRY(const Image image, decode_image(file, channels_));
  return std::vector<int64_t>{channels, static_cast<int64_t>(image.height),
                              static_cast<int64_t>(image.width)};
}

void Recipe::add_to(const Schema& schema, Hasher& hasher) const {
  pixels_.add_to(hasher);
  scaling_.add_to(hasher);
  const double numbers[] = {first_label_,
                            static_cast<double>(height_),
                            static_cast<double>(width_),
                            static_cast<double>(shorter_),
                            static_cast<double>(channels_),
                            static_cast<double>(pixels_last_),
                            static_cast<double>(shape_.size())};
  hasher.add(numbers, sizeof(numbers));
  hasher.add(shape_.data(), shape_.size() * sizeof(int64_t));
  for (const std::string& name : names_) hasher.add(name.c_str(), name.size() + 1);
  if (tokens_) hasher.add("tokens", 6);
  // Numbers have one dimension, unless `shape` is given, and so have raw pixels.
  const bool images = shape_.empty() && schema.input_shape.size() == 3;
  if (images) {
    const Hash128 decoder = decoder_hash();
    hasher.add(&decoder, sizeof(decoder));
  }
}

Status Recipe::gather(const Record& record, std::vector<Value>& values) const {
  values.clear();
  values.resize(names_.size());
  MUSTER_RETURN_IF_ERROR(record.get(names_, values));
  for (size_t i = 0; i < names_.size(); ++i) {
    if (values[i].kind == Value::Kind::kOther) {
      return Error(ErrorKind::kData, "the {} '{}' is not a number, or a list of numbers",
                   defaults_.field, names_[i]);
    }
    if (values[i].kind != Value::Kind::kMissing) continue;
    const auto there = record.names();
    return Error(ErrorKind::kData, "there is no {} '{}'{}; there are: {}", defaults_.field,
                 names_[i], did_you_mean(names_[i], there), fmt::join(there, ", "));
  }
  return {};
}

Result<Schema> Recipe::schema_of(const Record& record) const {
  std::vector<Value> values;
  MUSTER_RETURN_IF_ERROR(gather(record, values));
  if (ids_) {
    MUSTER_TRY(Schema schema, schema_with({}, false));
    ids_->describe(schema);
    return schema;
  }
  if (tokens_) {
    MUSTER_RETURN_IF_ERROR(tokens_->check(values.front()));
    MUSTER_TRY(Schema schema, schema_with({}, false));
    tokens_->describe(schema);
    return schema;
  }
  if (has_labels_) values.pop_back();
  const bool pixels = values.size() == 1 && values.front().kind == Value::Kind::kBytes;
  if (!shape_.empty()) return schema_with(shape_, pixels);
  int64_t numbers = 0;
  for (const auto& value : values) {
    if (value.kind == Value::Kind::kBytes) {
      if (values.size() > 1) {
        return Error(ErrorKind::kData,
                     "an image must be the only input; remove the other names from `input`");
      }
      auto shape = image_shape(value.bytes);
      if (!shape.ok()) {
        return std::move(shape).error().context("{} '{}'", defaults_.field, names_.front());
      }
      return schema_with(*std::move(shape), pixels);
    }
    numbers += static_cast<int64_t>(value.numbers.size());
  }
  if (numbers == 0) return Error(ErrorKind::kData, "the input has no numbers");
  return schema_with({numbers}, pixels);
}

Status Recipe::put_image(std::span<const std::byte> file, const Schema& schema, float* to) const {
  MUSTER_TRY(Image image, decode_image(file, channels_));
  if (height_ > 0) {
    const bool as_it_is = image.height == height_ && image.width == width_ &&
                          (shorter_ == 0 || shorter_ == std::min(height_, width_));
    if (!as_it_is) image = fit_image(image, height_, width_, shorter_);
  }
  const std::vector<int64_t> shape = {static_cast<int64_t>(image.channels),
                                      static_cast<int64_t>(image.height),
                                      static_cast<int64_t>(image.width)};
  if (shape != schema.input_shape) {
    return Error(ErrorKind::kData,
                 "the image has the shape {} and the first one {}; set `size` in `args`",
                 shape_text(shape), shape_text(schema.input_shape));
  }
  write_planes(image, pixels_, to);
  return {};
}

Status Recipe::put_pixels(std::span<const std::byte> raw, const Schema& schema, float* to) const {
  const size_t elements = schema.input_elements();
  if (raw.size() != elements) {
    return Error(ErrorKind::kData, "there are {} bytes of pixels, but the shape {} has {}",
                 raw.size(), shape_text(schema.input_shape), elements);
  }
  const auto* from = reinterpret_cast<const uint8_t*>(raw.data());
  const auto channels = static_cast<size_t>(schema.input_shape[0]);
  if (!pixels_last_ || schema.input_shape.size() != 3) {
    pixels_.put({from, elements}, channels, to);
    return {};
  }
  if (channels == 3) {
    pixels_.put_in_turns({from, elements}, to);
    return {};
  }
  const size_t area = elements / channels;
  for (size_t i = 0; i < area; ++i) {
    for (size_t c = 0; c < channels; ++c) to[c * area + i] = pixels_.of(c)[from[i * channels + c]];
  }
  return {};
}

Status Recipe::put_number(double value, size_t channel, float* to) const {
  const float scaled = scaling_(value, channel);
  if (!std::isfinite(scaled)) {
    return Error(ErrorKind::kData, "the number {} is not finite or does not fit float32", value);
  }
  *to = scaled;
  return {};
}

Status Recipe::put_numbers(std::span<const float> numbers, const Schema& schema, float* to) const {
  const size_t in_channel = elements_in_channel(schema);
  for (size_t i = 0; i < numbers.size(); ++i) {
    MUSTER_RETURN_IF_ERROR(put_number(numbers[i], i / in_channel, to + i));
  }
  return {};
}

Status Recipe::put_class(double label, std::byte* target) const {
  const double number = label - first_label_;
  if (!(number >= 0 && number < static_cast<double>(classes_)) || number != std::floor(number)) {
    return Error(ErrorKind::kData,
                 "the label is {}, but labels are whole numbers from {} to {}; correct it, "
                 "`classes`, or `first_label` in `args`",
                 label, first_label_, first_label_ + static_cast<double>(classes_) - 1);
  }
  const auto value = static_cast<int64_t>(number);
  std::memcpy(target, &value, sizeof(value));
  return {};
}

void Recipe::put_no_label(std::byte* target) const { data::put_no_label(has_classes_, target); }

Status Recipe::put_label(const Value& value, std::byte* target) const {
  if (value.kind != Value::Kind::kNumbers || value.numbers.size() != 1) {
    return Error(ErrorKind::kData, "the label '{}' must be one number, but it is {}", names_.back(),
                 value.kind == Value::Kind::kBytes
                     ? std::string("bytes")
                     : fmt::format("{} numbers", value.numbers.size()));
  }
  const double label = value.numbers.front();
  if (has_classes_) return put_class(label, target);
  const auto number = static_cast<float>(label);
  if (!std::isfinite(number)) {
    return Error(ErrorKind::kData, "the label {} is not finite or does not fit float32", label);
  }
  std::memcpy(target, &number, sizeof(number));
  return {};
}

Status Recipe::read(const Record& record, const Schema& schema, std::byte* input,
                    std::byte* target) const {
  std::vector<Value> values;
  MUSTER_RETURN_IF_ERROR(gather(record, values));
  if (tokens_) return tokens_->read(values.front(), input, target);
  if (has_labels_) {
    MUSTER_RETURN_IF_ERROR(put_label(values.back(), target));
    values.pop_back();
  } else {
    put_no_label(target);
  }
  if (ids_) return ids_->read(values, input);
  auto* to = reinterpret_cast<float*>(input);
  if (values.front().kind == Value::Kind::kBytes && values.size() == 1) {
    auto status = shape_.empty() ? put_image(values.front().bytes, schema, to)
                                 : put_pixels(values.front().bytes, schema, to);
    if (!status.ok())
      return std::move(status).error().context("{} '{}'", defaults_.field, names_[0]);
    return {};
  }
  size_t done = 0;
  const size_t wanted = schema.input_elements();
  const size_t in_channel = elements_in_channel(schema);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto& numbers = values[i].numbers;
    if (values[i].kind != Value::Kind::kNumbers || numbers.size() > wanted - done) {
      return Error(ErrorKind::kData, "{} '{}' has {}; the input has the shape {}", defaults_.field,
                   names_[i],
                   values[i].kind == Value::Kind::kNumbers
                       ? fmt::format("{} numbers", numbers.size())
                       : std::string("bytes instead of numbers"),
                   shape_text(schema.input_shape));
    }
    for (const double number : numbers) {
      if (auto status = put_number(number, done / in_channel, to + done); !status.ok()) {
        return std::move(status).error().context("{} '{}'", defaults_.field, names_[i]);
      }
      ++done;
    }
  }
  if (done != wanted) {
    return Error(ErrorKind::kData, "the input has {} numbers, but its shape {} has {}", done,
                 shape_text(schema.input_shape), wanted);
  }
  return {};
}

}  // namespace muster::data
