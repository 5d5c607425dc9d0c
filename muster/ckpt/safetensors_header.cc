#include "muster/ckpt/safetensors_header.h"

#include <limits>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace muster::ckpt::internal {
namespace {

using Json = nlohmann::json;

// Takes the header event by event instead of as a tree: a tree would forget that a name came twice,
// and a hostile header could make a large one. The parser underneath keeps its own stack, so depth
// cannot overflow ours; here, anything deeper than the format allows is an error at once.
class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(Header& out) : out_(out) {}
  const std::string& problem() const { return problem_; }

  bool start_object(size_t) override {
    switch (at_) {
      case At::kStart:
        at_ = At::kTop;
        return true;
      case At::kTopValue:
        if (key_ == "__metadata__") {
          at_ = At::kMetadata;
          return true;
        }
        entry_ = HeaderEntry();
        entry_.name = key_;
        seen_ = 0;
        at_ = At::kEntry;
        return true;
      default:
        return unexpected("an object");
    }
  }

  bool key(string_t& name) override {
    key_ = name;
    switch (at_) {
      case At::kTop:
        if (!names_.insert(name).second) return fail("'{}' is there twice", name);
        at_ = At::kTopValue;
        return true;
      case At::kMetadata:
        at_ = At::kMetadataValue;
        return true;
      case At::kEntry:
        if (name == "dtype") return begin_field(kDtype, At::kDtypeValue);
        if (name == "shape") return begin_field(kShape, At::kShapeValue);
        if (name == "data_offsets") return begin_field(kOffsets, At::kOffsetsValue);
        return fail("tensor '{}' has the unknown field '{}'", entry_.name, name);
      default:
        return unexpected("a name");
    }
  }

  bool string(string_t& text) override {
    if (at_ == At::kMetadataValue) {
      at_ = At::kMetadata;
      if (!out_.metadata.emplace(key_, text).second) {
        return fail("the metadata has '{}' twice", key_);
      }
      return true;
    }
    if (at_ != At::kDtypeValue) return unexpected("text");
    const auto dtype = dtype_from_name(text);
    if (!dtype) return fail("tensor '{}' has the unknown dtype '{}'", entry_.name, text);
    entry_.dtype = *dtype;
    at_ = At::kEntry;
    return true;
  }

  bool start_array(size_t) override {
    if (at_ == At::kShapeValue) {
      at_ = At::kShape;
      return true;
    }
    if (at_ != At::kOffsetsValue) return unexpected("a list");
    offsets_ = 0;
    at_ = At::kOffsets;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (at_ == At::kShape) {
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return fail("tensor '{}' has a dimension of {}", entry_.name, value);
      }
      entry_.shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (at_ != At::kOffsets) return unexpected("a number");
    if (offsets_ == 2) return fail("tensor '{}' has more than two data_offsets", entry_.name);
    (offsets_++ == 0 ? entry_.begin : entry_.end) = value;
    return true;
  }

  bool end_array() override {
    if (at_ == At::kOffsets && offsets_ != 2) {
      return fail("tensor '{}' has {} of the two data_offsets", entry_.name, offsets_);
    }
    at_ = At::kEntry;
    return true;
  }

  bool end_object() override {
    if (at_ == At::kEntry) {
      if (seen_ != (kDtype | kShape | kOffsets)) {
        return fail("tensor '{}' lacks dtype, shape or data_offsets", entry_.name);
      }
      out_.entries.push_back(std::move(entry_));
    }
    at_ = at_ == At::kTop ? At::kEnd : At::kTop;
    return true;
  }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a truth value"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return unexpected("a number that is not a 64-bit integer");
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    // Also where a string is not valid UTF-8. The library's own sentence may quote raw bytes.
    return fail("its header is not valid JSON at byte {}", 8 + position);
  }

 private:
  enum class At {
    kStart,
    kTop,
    kTopValue,
    kEntry,
    kDtypeValue,
    kShapeValue,
    kShape,
    kOffsetsValue,
    kOffsets,
    kMetadata,
    kMetadataValue,
    kEnd
  };
  enum Field : unsigned { kDtype = 1, kShape = 2, kOffsets = 4 };

  bool begin_field(Field field, At next) {
    if (seen_ & field) return fail("tensor '{}' has '{}' twice", entry_.name, key_);
    seen_ |= field;
    at_ = next;
    return true;
  }

  bool unexpected(std::string_view what) {
    if (at_ == At::kStart) return fail("its header is {}, not an object", what);
    return fail("its header has {} where it does not belong, near '{}'", what, key_);
  }

  // False stops the parser.
  template <typename... Args>
  bool fail(fmt::format_string<Args...> format, Args&&... args) {
    if (problem_.empty()) problem_ = fmt::format(format, std::forward<Args>(args)...);
    return false;
  }

  Header& out_;
  At at_ = At::kStart;
  std::string key_;
  std::set<std::string> names_;
  HeaderEntry entry_;
  unsigned seen_ = 0;
  int offsets_ = 0;
  std::string problem_;
};

}  // namespace

std::string parse_header(std::string_view json, Header& out) {
  // The parser would skip a byte order mark or spaces; the format has neither.
  if (json.empty() || json.front() != '{') return "its header does not begin with '{'";
  HeaderReader reader(out);
  const bool ok = Json::sax_parse(json.begin(), json.end(), &reader);
  if (!reader.problem().empty()) return reader.problem();
  return ok ? "" : "its header cannot be read";
}

}  // namespace muster::ckpt::internal
