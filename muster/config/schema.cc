#include <nlohmann/json.hpp>

#include "muster/base/text.h"
#include "muster/config/document.h"
#include "muster/config/scalar.h"
#include "muster/config/table.h"
#include "muster/config/units.h"

namespace muster::config {
namespace {

using Json = nlohmann::ordered_json;

// A whole number without ".0", as people write bounds.
Json bound(double value) {
  const auto whole = parse_int(number_text(value));
  return whole ? Json(*whole) : Json(value);
}

void add_range(Json& json, const Option& option) {
  if (option.least) json["minimum"] = bound(*option.least);
  if (option.above) json["exclusiveMinimum"] = bound(*option.above);
  if (option.most) json["maximum"] = bound(*option.most);
  if (option.below) json["exclusiveMaximum"] = bound(*option.below);
}

Json number_schema(const Option& option, const char* type) {
  Json json = {{"type", type}};
  add_range(json, option);
  return json;
}

// A number, or text with a unit.
Json unit_schema(const Option& option, const char* type, const char* pattern) {
  Json text = {{"type", "string"}, {"pattern", pattern}};
  return {{"anyOf", Json::array({number_schema(option, type), text})}};
}

Json text_schema(const Option& option) {
  // A name or a column may be called 7: any scalar is a text.
  if (option.choices.empty()) {
    return {{"type", Json::array({"string", "number", "boolean"})}};
  }
  if (!option.open) {
    auto choices = option.choices;
    if (option.get(Job()).text().empty()) choices.emplace_back();  // not chosen
    return {{"enum", choices}};
  }
  return {{"type", "string"}, {"examples", option.choices}};
}

struct TypeSchema {
  const Option& option;

  Json operator()(const Access<int64_t>&) const {
    return option.form == Form::kBytes ? unit_schema(option, "integer", kBytesPattern)
                                       : number_schema(option, "integer");
  }
  Json operator()(const Access<uint64_t>&) const {
    return {{"type", "integer"}, {"minimum", 0}, {"maximum", UINT64_MAX}};
  }
  Json operator()(const Access<double>&) const {
    return option.form == Form::kDuration ? unit_schema(option, "number", kDurationPattern)
                                          : number_schema(option, "number");
  }
  Json operator()(const Access<bool>&) const { return {{"type", "boolean"}}; }
  Json operator()(const Access<std::string>&) const { return text_schema(option); }
  Json operator()(const Access<std::vector<std::string>>&) const {
    return {{"type", Json::array({"array", "string"})}, {"items", {{"type", "string"}}}};
  }
  Json operator()(const Access<std::vector<double>>&) const {
    const Json number = number_schema(option, "number");
    if (option.form == Form::kOneOrMany) {
      const Json numbers = {{"type", "array"}, {"items", number}, {"minItems", 1}};
      return {{"anyOf", Json::array({number, numbers})}};
    }
    return {{"type", "array"}, {"items", number}};
  }
  Json operator()(const Access<Every>&) const {
    return {
        {"anyOf", Json::array({{{"const", 0}}, {{"type", "string"}, {"pattern", kEveryPattern}}})}};
  }
  Json operator()(const Access<Node>&) const {
    return {{"type", Json::array({option.form == Form::kList ? "array" : "object", "null"})}};
  }
};

struct DefaultJson {
  const std::string& text;

  template <typename T>
  Json operator()(const Access<T>&) const {
    if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, Every>) return text;
    // Numbers, bools, lists of them and null are written in YAML as in JSON, but for units.
    Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    return json.is_discarded() ? Json(text) : json;
  }
};

Json option_schema(const Option& option) {
  Json json = {{"description", option.doc}};
  json.update(std::visit(TypeSchema{option}, option.field));
  const Node initial = option.get(Job());
  const std::string text = option.is_text() ? initial.text() : initial.to_line();
  json["default"] = std::visit(DefaultJson{text}, option.field);
  return json;
}

Json section_schema(const std::string& key) {
  const Table& table = option_table();
  Json properties = Json::object();
  for (const auto& name : table.names_in(key)) {
    const std::string full = key.empty() ? name : fmt::format("{}.{}", key, name);
    const Option* option = table.find(full);
    properties[name] = option != nullptr ? option_schema(*option) : section_schema(full);
  }
  Json json = Json::object();
  if (!key.empty()) json["description"] = table.find_section(key)->doc;
  json["type"] = key.empty() ? Json("object") : Json::array({"object", "null"});
  json["additionalProperties"] = false;
  json["properties"] = std::move(properties);
  return json;
}

}  // namespace

std::string json_schema() {
  Json json = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
               {"title", "Muster job"},
               {"description", "One training run. Generated from muster/config/table.cc."}};
  json.update(section_schema(""));
  return json.dump(2) + "\n";
}

}  // namespace muster::config
