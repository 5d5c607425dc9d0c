#include "muster/data/libsvm_lines.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "muster/data/formats.h"

namespace muster::data {
namespace {

// The next word of the line, which loses it; empty at its end.
std::string_view next_word(std::string_view& line) {
  constexpr std::string_view kBlank = " \t\r";
  line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size()));
  const auto word = line.substr(0, line.find_first_of(kBlank));
  line.remove_prefix(word.size());
  return word;
}

bool parse(std::string_view text, int64_t& value) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc{} && end == text.data() + text.size();
}

// Infinite if it is a number that double cannot hold, either way.
bool parse(std::string_view text, double& value) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code == std::errc::result_out_of_range) value = std::numeric_limits<double>::infinity();
  return code != std::errc::invalid_argument && end == text.data() + text.size();
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
    MUSTER_RETURN_IF_ERROR(add_id(word));
  }
  const auto count = static_cast<int64_t>(ids_.size() - before);
  if (options_.features > 0 && count > options_.features) {
    return wrong(
        "it has {} ids, but `features` is {}; set it to the most that a line has, or "
        "shorten the line",
        count, options_.features);
  }
  if (count > kMostIds) {
    return wrong("it has {} ids, more than {}; split it", count, kMostIds);
  }
  longest_ = std::max(longest_, count);
  starts_.push_back(ids_.size());
  return {};
}

Status LibsvmLines::add_id(std::string_view word) {
  const size_t colon = word.find(':');
  int64_t id = 0;
  if (!parse(word.substr(0, colon), id) || id < 0) {
    return wrong(
        "'{}' is not an id, a whole number from 0 to 2^63 - 1, alone or with `:1`; "
        "correct it",
        word.substr(0, 40));
  }
  float value = 1;
  if (colon != std::string_view::npos) {
    MUSTER_TRY(value, parse_value(word, word.substr(colon + 1)));
  }
  ids_.push_back(id);
  if (options_.values) values_.push_back(value);
  largest_ = std::max(largest_, id);
  return {};
}

Result<float> LibsvmLines::parse_value(std::string_view word, std::string_view value) const {
  double number = 0;
  if (!parse(value, number)) {
    return wrong("in '{}' there is no number behind the colon; write the id alone, or with `:1`",
                 word.substr(0, 40));
  }
  if (!options_.values && number != 1) {
    return wrong(
        "'{}' has another value than 1; if ids have values, set `args: {{ values: true }}` for "
        "training and test data",
        word.substr(0, 40));
  }
  const auto found = id_value(number);
  if (!found) {
    return wrong("the value in '{}' is not finite or does not fit float32; correct it",
                 word.substr(0, 40));
  }
  return *found;
}

Result<LibsvmOptions> LibsvmLines::options_of(const config::SourceOptions& options) {
  config::ArgReader args(options.args, "the format libsvm");
  LibsvmOptions found;
  MUSTER_TRY(found.features, get_whole(args, "features", 0, 1, kMostIds));
  MUSTER_TRY(found.values, args.get_bool("values", false));
  MUSTER_RETURN_IF_ERROR(args.finish());
  return found;
}

Schema LibsvmLines::schema() const {
  Schema schema;
  schema.input = DType::kInt64;
  schema.input_shape = {options_.values ? 2 * columns() : columns()};
  schema.classes = 2;
  schema.has_ids = true;
  schema.ids_are_a_bag = true;
  schema.has_values = options_.values;
  return schema;
}

bool LibsvmLines::is_sample(std::string_view line) {
  if (line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
  line = line.substr(0, line.find('#'));
  return !next_word(line).empty();
}

}  // namespace muster::data
