#include "muster/data/blocks/json_fields.h"

#include <algorithm>
#include <cstdint>

#include <nlohmann/json.hpp>

namespace muster::data {
namespace {

// A longer list of keys is of no help in an error.
constexpr size_t kMostKeys = 50;
constexpr int kMostDepth = 64;

// Called by the parser for each piece of the text; builds no tree.
class Handler {
 public:
  using Number = nlohmann::json::number_integer_t;
  using Unsigned = nlohmann::json::number_unsigned_t;
  using Float = nlohmann::json::number_float_t;

  Handler(std::span<const std::string> names, std::span<Value> values)
      : names_(names), values_(values) {}

  bool null() { return other(); }
  bool boolean(bool value) { return add(value ? 1 : 0); }
  bool number_integer(Number value) { return add(static_cast<double>(value)); }
  bool number_unsigned(Unsigned value) { return add(static_cast<double>(value)); }
  bool number_float(Float value, const std::string& /*text*/) { return add(value); }
  bool string(std::string& /*text*/) { return other(); }
  bool binary(nlohmann::json::binary_t& /*bytes*/) { return other(); }
  bool start_object(size_t /*size*/) {
    if (depth_ == 0) object_ = true;
    if (depth_ > 0) other();
    return ++depth_ <= kMostDepth;
  }
  bool key(std::string& name) {
    if (depth_ != 1) return true;
    if (keys_.size() < kMostKeys) keys_.push_back(name);
    wanted_ = nullptr;
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) return true;
    wanted_ = &values_[static_cast<size_t>(found - names_.begin())];
    *wanted_ = {};
    wanted_->kind = Value::Kind::kNumbers;
    return true;
  }
  bool end_object() {
    --depth_;
    return true;
  }
  bool start_array(size_t /*size*/) { return ++depth_ <= kMostDepth; }
  bool end_array() {
    --depth_;
    return true;
  }
  bool parse_error(size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) {
    position_ = position;
    return false;
  }

  size_t position() const { return position_; }
  bool is_object() const { return object_; }
  std::vector<std::string> take_keys() { return std::move(keys_); }

 private:
  bool add(double value) {
    if (wanted_ != nullptr && wanted_->kind == Value::Kind::kNumbers) {
      wanted_->numbers.push_back(value);
    }
    return true;
  }
  // Something that is no number makes the entry unfit.
  bool other() {
    if (wanted_ != nullptr) {
      wanted_->kind = Value::Kind::kOther;
      wanted_->numbers.clear();
    }
    return true;
  }

  const std::span<const std::string> names_;
  const std::span<Value> values_;
  Value* wanted_ = nullptr;  // the entry that is being read
  int depth_ = 0;
  bool object_ = false;
  size_t position_ = 0;
  std::vector<std::string> keys_;
};

}  // namespace

Status read_json_fields(std::string_view text, std::span<const std::string> names,
                        std::span<Value> values) {
  Handler handler(names, values);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &handler)) {
    return Error(ErrorKind::kData, "not JSON from character {} on, or nested too deeply",
                 handler.position());
  }
  if (!handler.is_object()) return Error(ErrorKind::kData, "not a JSON object, {{\"key\": value}}");
  return {};
}

std::vector<std::string> json_keys(std::string_view text) {
  Handler handler({}, {});
  nlohmann::json::sax_parse(text.begin(), text.end(), &handler);
  return handler.take_keys();
}

}  // namespace muster::data
