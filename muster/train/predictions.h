// What a trained model says of the samples of one batch, and how that is written to a file: one
// line, or one row of fixed length, for each sample, so that parts of a result can be joined
// (muster/parts, row_parts.h). Numbers are written so that they read back exactly.
//
// Values and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "muster/data/table_writer.h"

namespace muster::train {

// Of `count` samples. Which of the vectors are filled says what was asked for.
struct Predictions {
  size_t count = 0;
  // The likeliest class, how likely it is, and that of the data, if that has labels.
  std::vector<int64_t> classes;
  std::vector<float> probabilities;
  std::vector<int64_t> labels;
  // For targets that are values: that of the model, and that of the data, if that has some.
  std::vector<float> values;
  std::vector<float> targets;
  // All numbers of the model's output, or of a layer's; `width` of each sample.
  std::vector<float> numbers;
  size_t width = 0;
  bool features = false;  // they are a layer's
};

// {"sample": 3, "class": 7, "probability": 0.98, "label": 7}, {"sample", "value", "target"},
// {"sample", "output"} or {"sample", "features"}. `i` is below count, `sample` its number.
nlohmann::json to_json(const Predictions& predictions, size_t i, uint64_t sample);

// What is written. Parts of a Parquet file are rows (form_of); those of the others are lines.
enum class OutputFormat { kCsv, kJson, kParquet };
// "csv", "jsonl" or "parquet".
std::optional<OutputFormat> find_output_format(std::string_view name);
std::string_view output_format_name(OutputFormat format);

// The line in front of all others: names of columns, or "" for formats without such a line.
std::string header_of(const Predictions& predictions, OutputFormat format);
// The columns of a Parquet file: those of a CSV file, but all numbers of an output, or of a layer,
// are one column of lists.
data::TableForm form_of(const Predictions& predictions);
// The lines or rows of all samples, the first of which is number `first`.
void append_rows(const Predictions& predictions, uint64_t first, OutputFormat format,
                 std::string& text);

}  // namespace muster::train
