#include "muster/data/libsvm_lines.h"

#include <algorithm>
#include <charconv>

#include "muster/data/formats.h"

namespace muster::data {
namespace {

// A sample with more ids than this is taken for a mistake: a batch has room for as many in each.
constexpr int64_t kMostFeatures = 1 << 20;

// The next word of the line, which loses it; empty at its end.
std::string_view next_word(std::string_view& line) {
  constexpr std::string_view kBlank = " \t\r";
  line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size()));
  const auto word = line.substr(0, line.find_first_of(kBlank));
  line.remove_prefix(word.size());
  return word;
}

template <typename T>
bool parse(std::string_view text, T& value) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc{} && end == text.data() + text.size();
}

}  // namespace

Status LibsvmLines::read(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // a byte order mark
  for (number_ = 1; !text.empty(); ++number_) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    line = line.substr(0, line.find('#'));
    const std::string_view label = next_word(line);
    if (label.empty()) continue;
    MUSTER_RETURN_IF_ERROR(add_label(label));
    MUSTER_RETURN_IF_ERROR(add_ids(line));
  }
  if (clicked_.empty()) {
    return Error(ErrorKind::kData, "{} has no samples; use a file that has some", place_);
  }
  if (columns() == 0) {
    return Error(ErrorKind::kData,
                 "{} has labels, but no ids; a line is a label and then ids, separated by "
                 "spaces",
                 place_);
  }
  return {};
}

Status LibsvmLines::add_label(std::string_view label) {
  const bool clicked = label == "1" || label == "+1";
  if (!clicked && label != "0" && label != "-1") {
    return wrong("the label is '{}', but labels are 0 and 1, or -1 and 1; correct it",
                 label.substr(0, 40));
  }
  if (!clicked) {
    // A file with both most likely has three classes.
    if (no_click_.empty()) {
      no_click_ = label;
      no_click_line_ = number_;
    } else if (label != no_click_) {
      return wrong(
          "the label is {}, but line {} has {}; labels are 0 and 1, or -1 and 1: use one "
          "of the two",
          label, no_click_line_, no_click_);
    }
  }
  clicked_.push_back(clicked ? 1 : 0);
  return {};
}

Status LibsvmLines::add_ids(std::string_view line) {
  const size_t before = ids_.size();
  for (auto word = next_word(line); !word.empty(); word = next_word(line)) {
    MUSTER_TRY(ids_.emplace_back(), parse_id(word));
    largest_ = std::max(largest_, ids_.back());
  }
  const auto count = static_cast<int64_t>(ids_.size() - before);
  if (features_ > 0 && count > features_) {
    return wrong(
        "it has {} ids, but `features` is {}; set it to the most that a line has, or "
        "shorten the line",
        count, features_);
  }
  if (count > kMostFeatures) {
    return wrong("it has {} ids, more than {}; split it", count, kMostFeatures);
  }
  longest_ = std::max(longest_, count);
  starts_.push_back(ids_.size());
  return {};
}

Result<int64_t> LibsvmLines::parse_id(std::string_view word) const {
  const size_t colon = word.find(':');
  int64_t id = 0;
  if (!parse(word.substr(0, colon), id) || id < 0) {
    return wrong(
        "'{}' is not an id, a whole number from 0 to 2^63 - 1, alone or with `:1`; "
        "correct it",
        word.substr(0, 40));
  }
  double value = 1;
  if (colon != std::string_view::npos && !parse(word.substr(colon + 1), value)) {
    return wrong("in '{}' there is no number behind the colon; write the id alone, or with `:1`",
                 word.substr(0, 40));
  }
  if (value != 1) {
    return wrong(
        "'{}' has another value than 1, but per-sample weights are not supported yet; "
        "write the id alone, or with `:1`",
        word.substr(0, 40));
  }
  return id;
}

Result<int64_t> LibsvmLines::features_of(const config::SourceOptions& options) {
  config::ArgReader args(options.args, "the format libsvm");
  MUSTER_TRY(const int64_t features, get_whole(args, "features", 0, 1, kMostFeatures));
  MUSTER_RETURN_IF_ERROR(args.finish());
  return features;
}

Schema LibsvmLines::schema() const {
  Schema schema;
  schema.input = DType::kInt64;
  schema.input_shape = {columns()};
  schema.classes = 2;
  schema.has_ids = true;
  schema.ids_are_a_bag = true;
  return schema;
}

bool LibsvmLines::is_sample(std::string_view line) {
  if (line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
  line = line.substr(0, line.find('#'));
  return !next_word(line).empty();
}

}  // namespace muster::data
