#include "muster/train/predictions.h"

#include <cmath>
#include <iterator>
#include <span>
#include <type_traits>

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
void append_number(float value, OutputFormat format, std::string& text) {
  if (format == OutputFormat::kJson && !std::isfinite(value)) {
    text += "null";
  } else {
    fmt::format_to(std::back_inserter(text), "{}", value);
  }
}

void append_csv(const Predictions& p, size_t i, std::string& text) {
  if (!p.classes.empty()) {
    fmt::format_to(std::back_inserter(text), ",{},", p.classes[i]);
    append_number(p.probabilities[i], OutputFormat::kCsv, text);
    if (!p.labels.empty()) fmt::format_to(std::back_inserter(text), ",{}", p.labels[i]);
  } else if (!p.values.empty()) {
    text += ',';
    append_number(p.values[i], OutputFormat::kCsv, text);
    if (!p.targets.empty()) {
      text += ',';
      append_number(p.targets[i], OutputFormat::kCsv, text);
    }
  } else {
    for (const float number : numbers_of(p, i)) {
      text += ',';
      append_number(number, OutputFormat::kCsv, text);
    }
  }
  text += '\n';
}

void append_json(const Predictions& p, size_t i, std::string& text) {
  if (!p.classes.empty()) {
    fmt::format_to(std::back_inserter(text), R"(,"class":{},"probability":)", p.classes[i]);
    append_number(p.probabilities[i], OutputFormat::kJson, text);
    if (!p.labels.empty()) {
      fmt::format_to(std::back_inserter(text), R"(,"label":{})", p.labels[i]);
    }
  } else if (!p.values.empty()) {
    text += R"(,"value":)";
    append_number(p.values[i], OutputFormat::kJson, text);
    if (!p.targets.empty()) {
      text += R"(,"target":)";
      append_number(p.targets[i], OutputFormat::kJson, text);
    }
  } else {
    fmt::format_to(std::back_inserter(text), R"(,"{}":[)", numbers_name(p));
    bool first = true;
    for (const float number : numbers_of(p, i)) {
      if (!first) text += ',';
      first = false;
      append_number(number, OutputFormat::kJson, text);
    }
    text += ']';
  }
  text += "}\n";
}

template <typename T>
void append_value(T value, std::string& bytes) {
  static_assert(std::is_arithmetic_v<T>);
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// The row without its first column, as form_of() says.
void append_binary(const Predictions& p, size_t i, std::string& bytes) {
  if (!p.classes.empty()) {
    append_value(p.classes[i], bytes);
    append_value(p.probabilities[i], bytes);
    if (!p.labels.empty()) append_value(p.labels[i], bytes);
  } else if (!p.values.empty()) {
    append_value(p.values[i], bytes);
    if (!p.targets.empty()) append_value(p.targets[i], bytes);
  } else {
    const auto numbers = std::as_bytes(numbers_of(p, i));
    bytes.append(reinterpret_cast<const char*>(numbers.data()), numbers.size());
  }
}

}  // namespace

nlohmann::json to_json(const Predictions& predictions, size_t i, uint64_t sample) {
  nlohmann::json object = {{"sample", sample}};
  if (!predictions.classes.empty()) {
    object["class"] = predictions.classes[i];
    object["probability"] = predictions.probabilities[i];
    if (!predictions.labels.empty()) object["label"] = predictions.labels[i];
  } else if (!predictions.values.empty()) {
    object["value"] = predictions.values[i];
    if (!predictions.targets.empty()) object["target"] = predictions.targets[i];
  } else {
    const auto numbers = numbers_of(predictions, i);
    object[numbers_name(predictions)] = std::vector<float>(numbers.begin(), numbers.end());
  }
  return object;
}

std::optional<OutputFormat> find_output_format(std::string_view name) {
  if (name == "csv") return OutputFormat::kCsv;
  if (name == "jsonl") return OutputFormat::kJson;
  if (name == "parquet") return OutputFormat::kParquet;
  return std::nullopt;
}

std::string_view output_format_name(OutputFormat format) {
  switch (format) {
    case OutputFormat::kCsv:
      return "csv";
    case OutputFormat::kJson:
      return "jsonl";
    case OutputFormat::kParquet:
      break;
  }
  return "parquet";
}

std::string header_of(const Predictions& predictions, OutputFormat format) {
  if (format != OutputFormat::kCsv) return "";
  if (!predictions.classes.empty()) {
    return predictions.labels.empty() ? "sample,class,probability\n"
                                      : "sample,class,probability,label\n";
  }
  if (!predictions.values.empty()) {
    return predictions.targets.empty() ? "sample,value\n" : "sample,value,target\n";
  }
  std::string header = "sample";
  const char* name = predictions.features ? "feature" : "output";
  for (size_t i = 0; i < predictions.width; ++i) header += fmt::format(",{}_{}", name, i);
  return header + "\n";
}

data::TableForm form_of(const Predictions& predictions) {
  using Type = data::TableColumn::Type;
  data::TableForm form;
  const auto add = [&](const char* name, Type type, size_t width = 0) {
    form.columns.push_back({name, type, width});
  };
  add("sample", Type::kInt64);
  if (!predictions.classes.empty()) {
    add("class", Type::kInt64);
    add("probability", Type::kFloat32);
    if (!predictions.labels.empty()) add("label", Type::kInt64);
  } else if (!predictions.values.empty()) {
    add("value", Type::kFloat32);
    if (!predictions.targets.empty()) add("target", Type::kFloat32);
  } else {
    add(numbers_name(predictions), Type::kFloat32, predictions.width);
  }
  return form;
}

void append_rows(const Predictions& predictions, uint64_t first, OutputFormat format,
                 std::string& text) {
  for (size_t i = 0; i < predictions.count; ++i) {
    const uint64_t sample = first + i;
    switch (format) {
      case OutputFormat::kCsv:
        fmt::format_to(std::back_inserter(text), "{}", sample);
        append_csv(predictions, i, text);
        break;
      case OutputFormat::kJson:
        fmt::format_to(std::back_inserter(text), R"({{"sample":{})", sample);
        append_json(predictions, i, text);
        break;
      case OutputFormat::kParquet:
        append_value(static_cast<int64_t>(sample), text);
        append_binary(predictions, i, text);
        break;
    }
  }
}

}  // namespace muster::train
