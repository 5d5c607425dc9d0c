// What walks the table: finding, reading, writing, comparing.
#include <algorithm>

#include "muster/base/text.h"
#include "muster/config/foreign_names.h"
#include "muster/config/table.h"

namespace muster::config {
namespace {

// "optimizer" and "lr" of "optimizer.lr".
std::pair<std::string_view, std::string_view> split_key(std::string_view key) {
  const size_t dot = key.rfind('.');
  if (dot == std::string_view::npos) return {{}, key};
  return {key.substr(0, dot), key.substr(dot + 1)};
}

std::string join_key(std::string_view section, std::string_view name) {
  return section.empty() ? std::string(name) : fmt::format("{}.{}", section, name);
}

// The map in `root` at `section`, made on the way.
Node& map_at(Node& root, std::string_view section) {
  Node* at = &root;
  if (section.empty()) return *at;
  for (const auto& part : split(section, '.')) {
    auto& entries = at->entries();
    const auto found = std::ranges::find(entries, part, [](const auto& e) { return e.first; });
    at =
        found != entries.end() ? &found->second : &entries.emplace_back(part, Node::map({})).second;
  }
  return *at;
}

// The name of an option in another framework. In a section that has an option of that last name,
// it is that one: eval.batch_size is eval.batch.
std::string foreign_suggestion(const Table& table, std::string_view key) {
  const auto [section, name] = split_key(key);
  const auto [ours, hint] = foreign_name(key);
  if (!hint.empty()) return fmt::format(" ({})", hint);
  if (ours.empty()) return "";
  const std::string here = join_key(section, split_key(ours).second);
  const bool is_here =
      !section.empty() && (table.find(here) != nullptr || table.find_section(here) != nullptr);
  return fmt::format(" (did you mean '{}'?)", is_here ? here : ours);
}

// "optimizer: adam", where others name what we say in a map.
std::string as_map(const Table& table, std::string_view section, const Node& value) {
  if (!value.is_scalar() || section.empty()) return "";
  for (const std::string_view name : {"kind", "zoo"}) {
    if (table.find(join_key(section, name)) == nullptr) continue;
    return fmt::format(": {}: {{ {}: {} }}", split_key(section).second, name, value.to_line());
  }
  return "";
}

}  // namespace

const Option* Table::find(std::string_view key) const {
  const auto at = std::ranges::find(options, key, &Option::key);
  return at == options.end() ? nullptr : &*at;
}

const SectionInfo* Table::find_section(std::string_view key) const {
  const auto at = std::ranges::find(sections, key, &SectionInfo::key);
  return at == sections.end() ? nullptr : &*at;
}

const Option* Table::find_tree_above(std::string_view key) const {
  const auto above = [&](const Option& option) {
    return option.is_tree() && key.starts_with(option.key) && key.size() > option.key.size() + 1 &&
           key[option.key.size()] == '.';
  };
  const auto at = std::ranges::find_if(options, above);
  return at == options.end() ? nullptr : &*at;
}

std::vector<std::string> Table::names_in(std::string_view section) const {
  std::vector<std::string> names;
  const auto add = [&](std::string_view key) {
    const auto [parent, name] = split_key(key);
    if (parent == section && !key.empty()) names.emplace_back(name);
  };
  for (const auto& option : options) add(option.key);
  for (const auto& info : sections) add(info.key);
  return names;
}

std::string Table::suggestion(std::string_view key) const {
  // Before what is only spelled alike: num_workers is not workers.
  if (auto foreign = foreign_suggestion(*this, key); !foreign.empty()) return foreign;
  // The section that is there, and the first part of the key that is not in it.
  std::string_view section;
  std::string_view rest = key;
  while (true) {
    const size_t dot = rest.find('.');
    const std::string next = join_key(section, rest.substr(0, dot));
    if (dot == std::string_view::npos || find_section(next) == nullptr) break;
    section = key.substr(0, next.size());
    rest = rest.substr(dot + 1);
  }
  const std::string_view name = rest.substr(0, rest.find('.'));
  if (const std::string near = closest(name, names_in(section)); !near.empty()) {
    const std::string better = join_key(section, near) + std::string(rest.substr(name.size()));
    return fmt::format(" (did you mean '{}'?)", better);
  }
  // The right name in the wrong place: lr instead of optimizer.lr.
  const std::string_view last = split_key(key).second;
  const auto elsewhere = std::ranges::find(options, last, &Option::name);
  return elsewhere == options.end() ? "" : fmt::format(" (did you mean '{}'?)", elsewhere->key);
}

Status read_options(const Node& tree, std::string_view section, const std::string& base, Job& job,
                    Places& places) {
  const Table& table = option_table();
  if (tree.is_null()) return {};
  if (!tree.is_map()) {
    return tree.error("{} must be a map of options{}", section.empty() ? "a job" : section,
                      as_map(table, section, tree));
  }
  if (!section.empty()) places.insert_or_assign(std::string(section), tree.key_mark());
  for (const auto& [name, value] : tree.entries()) {
    const std::string key = join_key(section, name);
    if (name.find('.') != std::string::npos) {
      if (table.find(key) == nullptr)
        return value.key_error("unknown option '{}'{}", key, table.suggestion(key));
      const auto [outer, inner] = split_key(key);
      return value.key_error("'{}' must be nested in a file: {}: {{ {}: ... }}", key, outer, inner);
    }
    if (const Option* option = table.find(key)) {
      MUSTER_RETURN_IF_ERROR(option->set(job, value, base));
      places.insert_or_assign(key, value.key_mark());
    } else if (table.find_section(key) != nullptr) {
      MUSTER_RETURN_IF_ERROR(read_options(value, key, base, job, places));
    } else {
      return value.key_error("unknown option '{}'{}", key, table.suggestion(key));
    }
  }
  return {};
}

std::string resolved_yaml(const Job& job) {
  Node root = Node::map({});
  for (const auto& option : option_table().options) {
    const auto [section, name] = split_key(option.key);
    map_at(root, section).entries().emplace_back(name, option.get(job));
  }
  return root.to_yaml() + "\n";
}

std::vector<Difference> diff(const Job& a, const Job& b) {
  std::vector<Difference> differences;
  for (const auto& option : option_table().options) {
    const Node in_a = option.get(a);
    const Node in_b = option.get(b);
    if (in_a == in_b) continue;
    differences.push_back({option.key, in_a.to_line(), in_b.to_line()});
  }
  return differences;
}

}  // namespace muster::config
