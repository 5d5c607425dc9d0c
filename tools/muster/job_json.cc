#include "tools/muster/job_json.h"

#include "muster/base/text.h"
#include "muster/config/table.h"

namespace muster::cli {
namespace {

using Json = nlohmann::ordered_json;

// What only a later module gives types to: numbers and truth values as YAML would read them.
Json tree_json(const config::Node& node) {
  if (node.is_list()) {
    Json list = Json::array();
    for (const auto& item : node.items()) list.push_back(tree_json(item));
    return list;
  }
  if (node.is_map()) {
    Json map = Json::object();
    for (const auto& [key, value] : node.entries()) map[key] = tree_json(value);
    return map;
  }
  if (node.is_null()) return nullptr;
  if (const auto value = node.as_int(""); value.ok()) return *value;
  if (const auto value = node.as_number(""); value.ok()) return *value;
  if (const auto value = node.as_bool(""); value.ok()) return *value;
  return node.text();
}

}  // namespace

Json option_value_json(const config::Option& option, const config::Job& job) {
  config::Job copy = job;  // fields are reached for writing
  return std::visit(
      [&](const auto& access) -> Json {
        using Field = std::decay_t<decltype(access(copy))>;
        if constexpr (std::is_same_v<Field, config::Node>) {
          return tree_json(access(copy));
        } else if constexpr (std::is_same_v<Field, config::Every>) {
          return option.get(job).text();
        } else {
          return access(copy);
        }
      },
      option.field);
}

Json job_json(const config::Job& job) {
  Json root = Json::object();
  for (const auto& option : config::option_table().options) {
    Json* at = &root;
    for (const auto& part : split(option.key, '.')) at = &(*at)[part];
    *at = option_value_json(option, job);
  }
  return root;
}

}  // namespace muster::cli
