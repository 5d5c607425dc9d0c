// Tables of numbers; see formats.h for what is read, csv_scanner.h for how the text is cut. Columns
// count from 0, as `label` does, lines from 1, as editors do.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/check.h"
#include "muster/base/text.h"
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

// The table while it is read.
class Table {
 public:
  Table(std::string name, const config::SourceOptions& options)
      : name_(std::move(name)), options_(options) {}

  Status read(std::string_view text) {
    CsvScanner scanner(text, options_.separator[0], name_);
    std::vector<std::string_view> fields;
    bool first = true;
    while (true) {
      MUSTER_TRY(const bool more, scanner.next(fields));
      if (!more) break;
      if (first) {
        MUSTER_RETURN_IF_ERROR(start(fields));
        first = false;
        if (options_.header) continue;
      }
      MUSTER_RETURN_IF_ERROR(add(fields, scanner.line()));
    }
    if (rows() == 0) {
      return Error(ErrorKind::kData, "'{}' has no samples; use a file that has some", name_);
    }
    return finish();
  }

  uint64_t rows() const { return rows_; }
  size_t inputs_per_row() const { return columns_ - 1; }
  int64_t classes() const { return classes_; }
  bool has_classes() const { return options_.target == "class"; }
  std::vector<float> take_inputs() { return std::move(inputs_); }
  std::vector<double> take_targets() { return std::move(targets_); }

 private:
  // From the first record: how many columns there are, what they are called, which is the label.
  Status start(const std::vector<std::string_view>& fields) {
    columns_ = fields.size();
    if (columns_ < 2) {
      return Error(ErrorKind::kData,
                   "'{}' has one column only; a label and at least one input are needed: check "
                   "`separator` (it is '{}')",
                   name_, options_.separator);
    }
    if (options_.header) {
      for (const auto field : fields) names_.emplace_back(trim(field));
      MUSTER_RETURN_IF_ERROR(check_header());
    }
    MUSTER_TRY(label_, find_label());
    return {};
  }

  // A first line of numbers is most likely a sample that would be lost; only 0, 1, 2, ... is what
  // some programs write when columns have no names.
  Status check_header() const {
    bool counts = true;
    for (size_t i = 0; i < names_.size(); ++i) {
      if (!parse_number(names_[i])) return {};
      counts = counts && names_[i] == std::to_string(i);
    }
    if (counts) return {};
    return Error(ErrorKind::kData,
                 "the first line of '{}' holds numbers, not the names of columns; set "
                 "`header: false`",
                 name_);
  }

  Result<size_t> find_label() const {
    const std::string& label = options_.label;
    if (label.empty()) return columns_ - 1;
    const auto named = std::count(names_.begin(), names_.end(), label);
    if (named > 1) {
      return Error(ErrorKind::kData,
                   "'{}' has {} columns called '{}'; give the label's number instead, from 0",
                   name_, named, label);
    }
    if (named == 1) {
      return static_cast<size_t>(std::find(names_.begin(), names_.end(), label) - names_.begin());
    }
    size_t number = 0;
    const auto [end, code] = std::from_chars(label.data(), label.data() + label.size(), number);
    if (code == std::errc{} && end == label.data() + label.size()) {
      if (number < columns_) return number;
      return Error(ErrorKind::kData, "'{}' has the columns 0 to {}, so `label: {}` is not there",
                   name_, columns_ - 1, label);
    }
    return Error(ErrorKind::kData, "'{}' has no column '{}'{}; {}", name_, label,
                 did_you_mean(label, names_),
                 options_.header ? "give one of its names, or a number from 0"
                                 : "without a header, give its number, from 0");
  }

  std::string place(uint64_t line, size_t column) const {
    if (column < names_.size() && !names_[column].empty()) {
      return fmt::format("'{}' line {}, column {} ('{}')", name_, line, column, names_[column]);
    }
    return fmt::format("'{}' line {}, column {} (the first is 0)", name_, line, column);
  }

  Status add(const std::vector<std::string_view>& fields, uint64_t line) {
    if (fields.size() != columns_) {
      return Error(ErrorKind::kData,
                   "'{}' line {} has {} columns, the lines before it {}; "
                   "correct it",
                   name_, line, fields.size(), columns_);
    }
    for (size_t column = 0; column < columns_; ++column) {
      MUSTER_TRY(const double value, number(fields[column], line, column));
      if (column == label_) {
        if (has_classes()) MUSTER_RETURN_IF_ERROR(check_class(value, line));
        targets_.push_back(value);
      } else {
        const auto input = static_cast<float>((value - options_.mean) / options_.deviation);
        if (!std::isfinite(input)) return too_large(fields[column], line, column);
        inputs_.push_back(input);
      }
    }
    ++rows_;
    return {};
  }

  Result<double> number(std::string_view field, uint64_t line, size_t column) const {
    const std::string_view text = trim(field);
    if (text.empty()) {
      return Error(ErrorKind::kData,
                   "{}: the value is missing; fill it in, or leave out the line or the column",
                   place(line, column));
    }
    const auto value = parse_number(text);
    if (!value) {
      const bool header = !options_.header && rows_ == 0;
      return Error(ErrorKind::kData, "{}: '{}' is not a number{}", place(line, column),
                   text.substr(0, 40),
                   header ? "; if the first line holds the names of the columns, set "
                            "`header: true`"
                   : column == label_ && has_classes()
                       ? "; number the classes from 0"
                       : "; correct it, or leave out the line or the column");
    }
    if (!std::isfinite(*value)) return too_large(text, line, column);
    return *value;
  }

  Error too_large(std::string_view text, uint64_t line, size_t column) const {
    return Error(ErrorKind::kData, "{}: '{}' is not finite or does not fit float32; correct it",
                 place(line, column), trim(text).substr(0, 40));
  }

  Status check_class(double value, uint64_t line) {
    const auto wrong = [&](std::string_view why) {
      return Error(ErrorKind::kData, "{}: the label is {}, but {}", place(line, label_), value,
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

  Status finish() {
    if (!has_classes()) {
      classes_ = 0;
      for (size_t row = 0; row < targets_.size(); ++row) {
        if (!std::isfinite(static_cast<float>(targets_[row]))) {
          return Error(ErrorKind::kData, "'{}' sample {}: the label {} is too large for float32",
                       name_, row, targets_[row]);
        }
      }
    } else if (options_.classes > 0) {
      classes_ = options_.classes;
    }
    return {};
  }

  const std::string name_;
  const config::SourceOptions& options_;
  std::vector<std::string> names_;
  size_t columns_ = 0;
  size_t label_ = 0;
  uint64_t rows_ = 0;
  std::vector<float> inputs_;
  std::vector<double> targets_;  // as they were written
  int64_t classes_ = 0;
};

class CsvDataset final : public Dataset {
 public:
  CsvDataset(std::vector<float> inputs, std::vector<double> targets, Schema schema, Slice chosen)
      : inputs_(std::move(inputs)),
        targets_(std::move(targets)),
        schema_(std::move(schema)),
        chosen_(chosen) {}

  const Schema& schema() const override { return schema_; }
  uint64_t size() const override { return chosen_.count; }

  void read(uint64_t index, std::byte* input, std::byte* target) const override {
    MUSTER_CHECK(index < chosen_.count, "a sample lies within the data");
    const uint64_t row = chosen_.first + index;
    std::memcpy(input, inputs_.data() + row * schema_.input_elements(), schema_.input_bytes());
    if (schema_.target == DType::kInt64) {
      *reinterpret_cast<int64_t*>(target) = static_cast<int64_t>(targets_[row]);
    } else {
      *reinterpret_cast<float*>(target) = static_cast<float>(targets_[row]);
    }
  }

 private:
  void add_contents(Hasher& hasher) const override {
    const size_t columns = schema_.input_elements();
    hasher.add(inputs_.data() + chosen_.first * columns, chosen_.count * schema_.input_bytes());
    hasher.add(targets_.data() + chosen_.first, chosen_.count * sizeof(targets_[0]));
  }

  const std::vector<float> inputs_;
  const std::vector<double> targets_;
  const Schema schema_;
  const Slice chosen_;
};

}  // namespace

Result<std::unique_ptr<Dataset>> read_csv(ByteReader reader, const config::SourceOptions& options) {
  MUSTER_RETURN_IF_ERROR(check_scaling(options));
  if (options.separator.size() != 1 || options.separator == "\"" || options.separator == "\n" ||
      options.separator == "\r") {
    return Error(ErrorKind::kJob, "`separator` must be one character such as ',' or ';'");
  }
  if (options.target != "class" && options.target != "value") {
    return Error(ErrorKind::kJob, "`target` is class or value, not '{}'", options.target);
  }
  if (options.classes < 0) return Error(ErrorKind::kJob, "`classes` must not be negative");
  MUSTER_TRY(const std::string text, reader.read_all());
  Table table(reader.name(), options);
  MUSTER_RETURN_IF_ERROR(table.read(text));
  MUSTER_TRY(const Slice chosen, select_samples(options, table.rows(), reader.name()));
  Schema schema;
  schema.input_shape = {static_cast<int64_t>(table.inputs_per_row())};
  schema.classes = table.classes();
  schema.padding = static_cast<float>((0 - options.mean) / options.deviation);
  if (!table.has_classes()) {
    schema.target = DType::kFloat32;
    schema.target_shape = {1};
  }
  return std::unique_ptr<Dataset>(std::make_unique<CsvDataset>(
      table.take_inputs(), table.take_targets(), std::move(schema), chosen));
}

Result<std::unique_ptr<Dataset>> open_csv(const config::SourceOptions& options) {
  if (options.path.empty()) return Error(ErrorKind::kJob, "the format csv needs the file `path`");
  MUSTER_TRY(auto reader, ByteReader::open(options.path));
  return read_csv(std::move(reader), options);
}

}  // namespace muster::data
