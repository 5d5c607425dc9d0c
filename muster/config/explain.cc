#include <algorithm>

#include "muster/base/text.h"
#include "muster/config/document.h"
#include "muster/config/table.h"

namespace muster::config {
namespace {

std::string only_text(const Option& option) {
  if (!option.only) return "";
  const auto& values = option.only->values;
  return fmt::format("{} {}", option.only->key,
                     values.empty() ? "registered in C++" : join_words(values, "or"));
}

std::string explain_option(const Option& option) {
  const std::string initial = option.get(Job()).to_line();
  const std::string value = option.example.empty() ? initial : option.example;
  // Quotes keep what YAML or a shell would take apart.
  const bool plain = value.find_first_of(" []{}*;\"") == std::string::npos;
  const std::string shell = plain ? value : "'" + value + "'";
  std::string text = fmt::format("{}: {}\n\n  {}\n\n", option.key, option.type_text(), option.doc);
  text += fmt::format("  default      {}\n", initial);
  if (option.only) text += fmt::format("  only with    {}\n", only_text(option));
  text += fmt::format("  command line -s {}={}\n", option.key, shell);
  text += fmt::format("  environment  {}={}\n", option.environment_name(), shell);
  return text;
}

std::string first_sentence(const std::string& doc) { return doc.substr(0, doc.find(". ") + 1); }

std::string explain_section(const SectionInfo& section) {
  const Table& table = option_table();
  std::string text = section.key.empty() ? "The options of a job.\n\n"
                                         : fmt::format("{}: {}\n\n", section.key, section.doc);
  size_t width = 0;
  for (const auto& name : table.names_in(section.key)) width = std::max(width, name.size());
  for (const auto& name : table.names_in(section.key)) {
    const std::string key = section.key.empty() ? name : section.key + "." + name;
    const Option* option = table.find(key);
    const std::string& doc = option != nullptr ? option->doc : table.find_section(key)->doc;
    const std::string sentence = doc.find(". ") == std::string::npos ? doc : first_sentence(doc);
    text += option != nullptr ? fmt::format("  {:{}}  {} [{}]\n", name, width, sentence,
                                            option->get(Job()).to_line())
                              : fmt::format("  {:{}}  {} (section)\n", name, width, sentence);
  }
  return text;
}

}  // namespace

Result<std::string> explain(std::string_view key) {
  const Table& table = option_table();
  if (const Option* option = table.find(key)) return explain_option(*option);
  if (const SectionInfo* section = table.find_section(key)) return explain_section(*section);
  if (const Option* tree = table.find_tree_above(key)) return explain_option(*tree);
  return Error(ErrorKind::kUsage, "unknown option '{}'{}", key, table.suggestion(key));
}

}  // namespace muster::config
