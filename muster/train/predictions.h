// What a trained model says of the samples of one batch, and how that is written to a file: one
// line for each sample, so that parts of a result can be joined (muster/parts). Numbers are written
// so that they read back exactly.
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

namespace muster::train {

// Of `count` samples. Which of the vectors are filled says what was asked for.
struct Predictions {
  size_t count = 0;
  // The likeliest class, how likely it is, and that of the data.
  std::vector<int64_t> classes;
  std::vector<float> probabilities;
  std::vector<int64_t> labels;
  // For targets that are values: that of the model, and that of the data.
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

// A file of columns would be another one, with files of parts that are joined by its library.
enum class Lines { kCsv, kJson };
// "csv" or "jsonl".
std::optional<Lines> find_lines(std::string_view name);
std::string_view lines_name(Lines lines);

// The line in front of all others: names of columns, or "" for JSON lines.
std::string header_of(const Predictions& predictions, Lines lines);
// The lines of all samples, the first of which is number `first`.
void append_lines(const Predictions& predictions, uint64_t first, Lines lines, std::string& text);

}  // namespace muster::train
