// A table of numbers while it is read from CSV text: of a whole file, or of a block of one. Columns
// count from 0, as `label` does, lines from 1, as editors do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "muster/base/result.h"
#include "muster/config/job.h"
#include "muster/data/scaling.h"
#include "muster/data/schema.h"

namespace muster::data {

// What the first line of a file says.
struct CsvColumns {
  size_t count = 0;
  size_t label = 0;                // `count`: there is none
  std::vector<std::string> names;  // empty: the file has no header
  bool operator==(const CsvColumns&) const = default;
};

class CsvTable {
 public:
  // `place` stands for the text in errors, as in "'x.csv' line 7".
  CsvTable(std::string place, const config::SourceOptions& options, Scaling scaling)
      : CsvTable(std::move(place), options, std::move(scaling), {}) {}
  // Of rows alone, whose columns are known.
  CsvTable(std::string place, const config::SourceOptions& options, Scaling scaling,
           CsvColumns columns)
      : place_(std::move(place)),
        options_(options),
        scaling_(std::move(scaling)),
        columns_(std::move(columns)) {}

  // What every table wants of the options; how the inputs are scaled.
  static Result<Scaling> check_options(const config::SourceOptions& options);

  // From the first record, which is the header if the options say so.
  Status start(const std::vector<std::string_view>& fields);
  // All rows; the first record is the header if the options say so and the columns are not known.
  // Errors: kData.
  Status read(std::string_view text);

  const CsvColumns& columns() const { return columns_; }
  uint64_t rows() const { return rows_; }
  bool has_classes() const { return options_.target == "class"; }
  // Its number of classes is that of `classes`, or one more than the largest label.
  Schema schema() const;
  std::vector<float> take_inputs() { return std::move(inputs_); }
  // As they were written; NaN where there are no labels.
  std::vector<double> take_targets() { return std::move(targets_); }

 private:
  Status check_header() const;
  Result<size_t> find_label() const;
  std::string cell(uint64_t line, size_t column) const;
  Status add(const std::vector<std::string_view>& fields, uint64_t line);
  Result<double> number(std::string_view field, uint64_t line, size_t column) const;
  Error too_large(std::string_view text, uint64_t line, size_t column) const;
  Status check_class(double value, uint64_t line);
  Status finish();

  const std::string place_;
  const config::SourceOptions& options_;
  const Scaling scaling_;
  CsvColumns columns_;
  uint64_t rows_ = 0;
  std::vector<float> inputs_;
  std::vector<double> targets_;
  int64_t classes_ = 0;
};

}  // namespace muster::data
