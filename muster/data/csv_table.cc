#include "muster/data/csv_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "muster/base/text.h"
#include "muster/config/source.h"
#include "muster/data/csv_scanner.h"
#include "muster/data/formats.h"

namespace muster::data {
namespace {

// A class number above this is taken for a mistake unless the job says how many classes there are:
// a model would be made with one output for each.
constexpr double kMostClasses = 1 << 24;

// Infinite if it is a number that double cannot hold, either way; nothing if it is none.
std::optional<double> parse_number(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size() || code == std::errc::invalid_argument) return std::nullopt;
  if (code == std::errc::result_out_of_range) return std::numeric_limits<double>::infinity();
  return value;
}

}  // namespace

Status CsvTable::read(std::string_view text) {
  CsvScanner scanner(text, options_.separator[0], place_);
  std::vector<std::string_view> fields;
  bool first = columns_.count == 0;
  if (!first) MUSTER_RETURN_IF_ERROR(scaling_.check_shape(schema().input_shape));
  while (true) {
    MUSTER_TRY(const bool more, scanner.next(fields));
    if (!more) break;
    if (first) {
      MUSTER_RETURN_IF_ERROR(start(fields));
      MUSTER_RETURN_IF_ERROR(scaling_.check_shape(schema().input_shape));
      first = false;
      if (options_.header) continue;
    }
    MUSTER_RETURN_IF_ERROR(add(fields, scanner.line()));
  }
  if (rows() == 0) {
    return Error(ErrorKind::kData, "{} has no samples; use a file that has some", place_);
  }
  return finish();
}

// From the first record: how many columns there are, what they are called, which is the label.
Status CsvTable::start(const std::vector<std::string_view>& fields) {
  columns_.count = fields.size();
  const size_t least = config::has_labels(options_) ? 2 : 1;
  if (columns_.count < least) {
    return Error(ErrorKind::kData,
                 "{} has one column only; a label and at least one input are needed: check "
                 "`separator` (it is '{}')",
                 place_, options_.separator);
  }
  if (options_.header) {
    for (const auto field : fields) columns_.names.emplace_back(trim(field));
    MUSTER_RETURN_IF_ERROR(check_header());
  }
  MUSTER_TRY(columns_.label, find_label());
  return {};
}

// A first line of numbers is most likely a sample that would be lost; only 0, 1, 2, ... is what
// some programs write when columns have no names.
Status CsvTable::check_header() const {
  bool counts = true;
  for (size_t i = 0; i < columns_.names.size(); ++i) {
    if (!parse_number(columns_.names[i])) return {};
    counts = counts && columns_.names[i] == std::to_string(i);
  }
  if (counts) return {};
  return Error(ErrorKind::kData,
               "the first line of {} holds numbers, not the names of columns; set "
               "`header: false`",
               place_);
}

Result<size_t> CsvTable::find_label() const {
  const std::string& label = options_.label;
  if (!config::has_labels(options_)) return columns_.count;
  if (label.empty()) return columns_.count - 1;
  const auto named = std::count(columns_.names.begin(), columns_.names.end(), label);
  if (named > 1) {
    return Error(ErrorKind::kData,
                 "{} has {} columns called '{}'; give the label's number instead, from 0", place_,
                 named, label);
  }
  if (named == 1) {
    return static_cast<size_t>(std::find(columns_.names.begin(), columns_.names.end(), label) -
                               columns_.names.begin());
  }
  size_t number = 0;
  const auto [end, code] = std::from_chars(label.data(), label.data() + label.size(), number);
  if (code == std::errc{} && end == label.data() + label.size()) {
    if (number < columns_.count) return number;
    return Error(ErrorKind::kData, "{} has the columns 0 to {}, so `label: {}` is not there",
                 place_, columns_.count - 1, label);
  }
  return Error(ErrorKind::kData, "{} has no column '{}'{}; {}", place_, label,
               did_you_mean(label, columns_.names),
               options_.header ? "give one of its names, or a number from 0"
                               : "without a header, give its number, from 0");
}

std::string CsvTable::cell(uint64_t line, size_t column) const {
  if (column < columns_.names.size() && !columns_.names[column].empty()) {
    return fmt::format("{} line {}, column {} ('{}')", place_, line, column,
                       columns_.names[column]);
  }
  return fmt::format("{} line {}, column {} (the first is 0)", place_, line, column);
}

Status CsvTable::add(const std::vector<std::string_view>& fields, uint64_t line) {
  if (fields.size() != columns_.count) {
    return Error(ErrorKind::kData,
                 "{} line {} has {} columns, the lines before it {}; "
                 "correct it",
                 place_, line, fields.size(), columns_.count);
  }
  size_t input_column = 0;
  for (size_t column = 0; column < columns_.count; ++column) {
    MUSTER_TRY(const double value, number(fields[column], line, column));
    if (column == columns_.label) {
      if (has_classes()) MUSTER_RETURN_IF_ERROR(check_class(value, line));
      targets_.push_back(value);
    } else {
      const float input = scaling_(value, input_column++);
      if (!std::isfinite(input)) return too_large(fields[column], line, column);
      inputs_.push_back(input);
    }
  }
  if (columns_.label == columns_.count) {
    targets_.push_back(std::numeric_limits<double>::quiet_NaN());
  }
  ++rows_;
  return {};
}

Result<double> CsvTable::number(std::string_view field, uint64_t line, size_t column) const {
  const std::string_view text = trim(field);
  if (text.empty()) {
    return Error(ErrorKind::kData,
                 "{}: the value is missing; fill it in, or leave out the line or the column",
                 cell(line, column));
  }
  const auto value = parse_number(text);
  if (!value) {
    const bool header = !options_.header && rows_ == 0;
    return Error(ErrorKind::kData, "{}: '{}' is not a number{}", cell(line, column),
                 text.substr(0, 40),
                 header ? "; if the first line holds the names of the columns, set "
                          "`header: true`"
                 : column == columns_.label && has_classes()
                     ? "; number the classes from 0"
                     : "; correct it, or leave out the line or the column");
  }
  if (!std::isfinite(*value)) return too_large(text, line, column);
  return *value;
}

Error CsvTable::too_large(std::string_view text, uint64_t line, size_t column) const {
  return Error(ErrorKind::kData, "{}: '{}' is not finite or does not fit float32; correct it",
               cell(line, column), trim(text).substr(0, 40));
}

Status CsvTable::check_class(double value, uint64_t line) {
  const auto wrong = [&](std::string_view why) {
    return Error(ErrorKind::kData, "{}: the label is {}, but {}", cell(line, columns_.label), value,
                 why);
  };
  if (value != std::floor(value) || value < 0) {
    return wrong("a class is a whole number from 0; for real numbers set `target: value`");
  }
  if (options_.classes > 0 && value >= static_cast<double>(options_.classes)) {
    return wrong(fmt::format("labels go from 0 to {}; correct the file, or `classes`",
                             options_.classes - 1));
  }
  if (options_.classes == 0 && value >= kMostClasses) {
    return wrong("that is no likely class; set `target: value`, or say how many `classes`");
  }
  classes_ = std::max(classes_, static_cast<int64_t>(value) + 1);
  return {};
}

Status CsvTable::finish() {
  if (!has_classes()) {
    classes_ = 0;
    if (!config::has_labels(options_)) return {};
    for (size_t row = 0; row < targets_.size(); ++row) {
      if (!std::isfinite(static_cast<float>(targets_[row]))) {
        return Error(ErrorKind::kData, "{} sample {}: the label {} is too large for float32",
                     place_, row, targets_[row]);
      }
    }
  } else if (options_.classes > 0) {
    classes_ = options_.classes;
  }
  return {};
}

Result<Scaling> CsvTable::check_options(const config::SourceOptions& options) {
  MUSTER_TRY(Scaling scaling, Scaling::make(options));
  if (options.separator.size() != 1 || options.separator == "\"" || options.separator == "\n" ||
      options.separator == "\r") {
    return Error(ErrorKind::kJob, "`separator` must be one character such as ',' or ';'");
  }
  if (options.target != "class" && options.target != "value") {
    return Error(ErrorKind::kJob, "`target` is class or value, not '{}'", options.target);
  }
  if (options.classes < 0) return Error(ErrorKind::kJob, "`classes` must not be negative");
  return scaling;
}

Schema CsvTable::schema() const {
  Schema schema;
  const bool labelled = columns_.label < columns_.count;
  schema.input_shape = {static_cast<int64_t>(columns_.count) - (labelled ? 1 : 0)};
  schema.classes = classes_;
  schema.padding = scaling_.zeros();
  if (!has_classes()) {
    schema.target = DType::kFloat32;
    schema.target_shape = {1};
  }
  return schema;
}

}  // namespace muster::data
