#include "muster/train/predictions.h"

#include <cmath>
#include <iterator>
#include <span>

#include <fmt/format.h>

namespace muster::train {
namespace {

std::span<const float> numbers_of(const Predictions& predictions, size_t i) {
  return std::span(predictions.numbers).subspan(i * predictions.width, predictions.width);
}

const char* numbers_name(const Predictions& predictions) {
  return predictions.features ? "features" : "output";
}

// The shortest text that reads back as the same number. JSON has no name for what is not finite.
void append_number(float value, Lines lines, std::string& text) {
  if (lines == Lines::kJson && !std::isfinite(value)) {
    text += "null";
  } else {
    fmt::format_to(std::back_inserter(text), "{}", value);
  }
}

void append_csv(const Predictions& p, size_t i, std::string& text) {
  if (!p.classes.empty()) {
    fmt::format_to(std::back_inserter(text), ",{},", p.classes[i]);
    append_number(p.probabilities[i], Lines::kCsv, text);
    fmt::format_to(std::back_inserter(text), ",{}", p.labels[i]);
  } else if (!p.values.empty()) {
    text += ',';
    append_number(p.values[i], Lines::kCsv, text);
    text += ',';
    append_number(p.targets[i], Lines::kCsv, text);
  } else {
    for (const float number : numbers_of(p, i)) {
      text += ',';
      append_number(number, Lines::kCsv, text);
    }
  }
  text += '\n';
}

void append_json(const Predictions& p, size_t i, std::string& text) {
  if (!p.classes.empty()) {
    fmt::format_to(std::back_inserter(text), R"(,"class":{},"probability":)", p.classes[i]);
    append_number(p.probabilities[i], Lines::kJson, text);
    fmt::format_to(std::back_inserter(text), R"(,"label":{})", p.labels[i]);
  } else if (!p.values.empty()) {
    text += R"(,"value":)";
    append_number(p.values[i], Lines::kJson, text);
    text += R"(,"target":)";
    append_number(p.targets[i], Lines::kJson, text);
  } else {
    fmt::format_to(std::back_inserter(text), R"(,"{}":[)", numbers_name(p));
    bool first = true;
    for (const float number : numbers_of(p, i)) {
      if (!first) text += ',';
      first = false;
      append_number(number, Lines::kJson, text);
    }
    text += ']';
  }
  text += "}\n";
}

}  // namespace

nlohmann::json to_json(const Predictions& predictions, size_t i, uint64_t sample) {
  nlohmann::json object = {{"sample", sample}};
  if (!predictions.classes.empty()) {
    object["class"] = predictions.classes[i];
    object["probability"] = predictions.probabilities[i];
    object["label"] = predictions.labels[i];
  } else if (!predictions.values.empty()) {
    object["value"] = predictions.values[i];
    object["target"] = predictions.targets[i];
  } else {
    const auto numbers = numbers_of(predictions, i);
    object[numbers_name(predictions)] = std::vector<float>(numbers.begin(), numbers.end());
  }
  return object;
}

std::optional<Lines> find_lines(std::string_view name) {
  if (name == "csv") return Lines::kCsv;
  if (name == "jsonl") return Lines::kJson;
  return std::nullopt;
}

std::string_view lines_name(Lines lines) { return lines == Lines::kCsv ? "csv" : "jsonl"; }

std::string header_of(const Predictions& predictions, Lines lines) {
  if (lines == Lines::kJson) return "";
  if (!predictions.classes.empty()) return "sample,class,probability,label\n";
  if (!predictions.values.empty()) return "sample,value,target\n";
  std::string header = "sample";
  const char* name = predictions.features ? "feature" : "output";
  for (size_t i = 0; i < predictions.width; ++i) header += fmt::format(",{}_{}", name, i);
  return header + "\n";
}

void append_lines(const Predictions& predictions, uint64_t first, Lines lines, std::string& text) {
  for (size_t i = 0; i < predictions.count; ++i) {
    if (lines == Lines::kJson) text += R"({"sample":)";
    fmt::format_to(std::back_inserter(text), "{}", first + i);
    if (lines == Lines::kCsv) {
      append_csv(predictions, i, text);
    } else {
      append_json(predictions, i, text);
    }
  }
}

}  // namespace muster::train
