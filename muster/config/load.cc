#include "muster/config/load.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "muster/base/text.h"
#include "muster/config/scalar.h"
#include "muster/config/source.h"
#include "muster/config/validate.h"

namespace muster::config {
namespace {

// The value of an option given outside a file.
Result<Node> parse_outside(const Option* option, std::string_view text, const std::string& source) {
  const bool literal =
      option != nullptr && option->is_text() && !text.starts_with('"') && !text.starts_with('\'');
  // Through the parser all the same, for it knows what is text.
  return parse_value(literal ? quote(text) : text, source);
}

// A name that may be made inside a tree. Not what YAML would allow, but what programs ask for.
bool is_name(std::string_view text) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  };
  return !text.empty() && text.size() <= 64 && std::ranges::all_of(text, letter);
}

// Puts `value` at the dotted `path` inside a tree, over what is there.
Status set_inside(Node& tree, const std::string& path, Node value) {
  const auto names = split(path, '.');
  // Together with the value's own depth it must stay readable when it is written (kMostYamlDepth).
  if (names.size() > 16 || !std::ranges::all_of(names, is_name)) {
    return value.error("'{}' is not a name of letters, digits, '_' and '-' between dots", path);
  }
  Node* at = &tree;
  for (const auto& name : names) {
    if (at->is_null()) *at = Node::map({}, value.mark());
    if (!at->is_map())
      return value.error("there is no '{}' to set: what holds it is not a map", name);
    auto& entries = at->entries();
    auto found = std::ranges::find(entries, name, [](const auto& entry) { return entry.first; });
    if (found == entries.end()) found = entries.emplace(entries.end(), name, Node());
    at = &found->second;
  }
  *at = std::move(value);
  return {};
}

Status apply_set(const std::string& text, const std::string& base, LoadedJob& loaded) {
  const size_t equals = text.find('=');
  const std::string key(trim(std::string_view(text).substr(0, equals)));
  if (equals == std::string::npos || key.empty()) {
    return Error(ErrorKind::kUsage, "-s {}: write it as key=value, for example -s steps=100", text);
  }
  const std::string source = "-s " + key;
  const std::string_view value_text = trim(std::string_view(text).substr(equals + 1));
  const Table& table = option_table();
  const Option* option = table.find(key);
  MUSTER_TRY(Node value, parse_outside(option, value_text, source));
  if (option != nullptr) {
    MUSTER_RETURN_IF_ERROR(option->set(loaded.job, value, base));
    loaded.places.insert_or_assign(key, value.mark());
    return {};
  }
  if (table.find_section(key) != nullptr) {
    return read_options(value, key, base, loaded.job, loaded.places);
  }
  if (const Option* tree = table.find_tree_above(key); tree != nullptr) {
    Node whole = tree->get(loaded.job);
    MUSTER_RETURN_IF_ERROR(set_inside(whole, key.substr(tree->key.size() + 1), std::move(value)));
    MUSTER_RETURN_IF_ERROR(tree->set(loaded.job, whole, base));
    loaded.places.insert_or_assign(tree->key, Mark{source, 0, 0});
    return {};
  }
  return value.error("unknown option '{}'{}", key, table.suggestion(key));
}

Status apply_variable(const std::string& name, const std::string& text, const Sources& sources,
                      LoadedJob& loaded) {
  const Table& table = option_table();
  const auto option = std::ranges::find(table.options, name, &Option::environment_name);
  if (option == table.options.end()) {
    if (std::ranges::find(sources.other_variables, name) != sources.other_variables.end())
      return {};
    std::vector<std::string> names;
    for (const auto& each : table.options) names.push_back(each.environment_name());
    loaded.warnings.push_back(
        fmt::format("the environment variable {} is not an option and is "
                    "ignored{}",
                    name, did_you_mean(name, names)));
    return {};
  }
  MUSTER_TRY(const Node value, parse_outside(&*option, text, "environment " + name));
  MUSTER_RETURN_IF_ERROR(option->set(loaded.job, value, sources.current_dir));
  loaded.places.insert_or_assign(option->key, value.mark());
  return {};
}

}  // namespace

Result<LoadedJob> read_job(const Sources& sources) {
  LoadedJob loaded;
  if (!sources.file_name.empty()) {
    MUSTER_TRY(const Node file, parse_yaml(sources.file_text, sources.file_name));
    loaded.places[""] = Mark{sources.file_name, 0, 0};
    MUSTER_RETURN_IF_ERROR(read_options(file, "", sources.base_dir, loaded.job, loaded.places));
  }
  // In an order of their own, so that the first error is always the same one.
  auto variables = sources.environment;
  std::ranges::sort(variables);
  for (const auto& [name, text] : variables) {
    if (!name.starts_with("MUSTER_")) continue;
    MUSTER_RETURN_IF_ERROR(apply_variable(name, text, sources, loaded));
  }
  for (const auto& set : sources.sets) {
    MUSTER_RETURN_IF_ERROR(apply_set(set, sources.current_dir, loaded));
  }
  return loaded;
}

Result<LoadedJob> load_job(const Sources& sources) {
  MUSTER_TRY(LoadedJob loaded, read_job(sources));
  MUSTER_RETURN_IF_ERROR(validate(loaded.job, loaded.places));
  return loaded;
}

Result<LoadedJob> load_job_with_data(Sources sources, const std::string& path,
                                     const std::string& format) {
  auto sets = std::exchange(sources.sets, {"data.test.path=" + path});
  Sources before = sources;
  before.sets.clear();
  MUSTER_TRY(auto loaded, load_job(before));
  MUSTER_TRY(loaded.job.data.test, source_at(loaded.job.data, path, format));
  sources.file_text = resolved_yaml(loaded.job);
  // Like any other path of a command line.
  sources.sets.insert(sources.sets.end(), sets.begin(), sets.end());
  return load_job(sources);
}

void borrow_places(Job& job, std::string_view file_text, const std::string& file_name) {
  const auto file = parse_yaml(file_text, file_name);
  if (!file.ok()) return;  // it has changed meanwhile
  for (const auto& option : option_table().options) {
    if (!option.is_tree()) continue;
    const Node* node = &*file;
    for (const auto& name : split(option.key, '.')) {
      if (node != nullptr) node = node->find(name);
    }
    if (node != nullptr) std::get<Access<Node>>(option.field)(job).borrow_marks(*node);
  }
}

Result<Sources> gather_sources(FileSystem& fs, const std::string& path,
                               std::vector<std::string> sets) {
  Sources sources;
  std::error_code ec;
  const auto current = std::filesystem::current_path(ec);
  if (ec) return io_error(ec.value(), "cannot find out the current directory");
  sources.current_dir = current.string();
  if (!path.empty()) {
    MUSTER_TRY(sources.file_text, fs.read(path));
    sources.file_name = path;
    sources.base_dir = (current / path).parent_path().lexically_normal().string();
  }
  sources.sets = std::move(sets);
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const size_t equals = text.find('=');
    if (!text.starts_with("MUSTER_") || equals == std::string_view::npos) continue;
    sources.environment.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return sources;
}

}  // namespace muster::config
