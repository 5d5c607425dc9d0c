// Any bytes as a job file, and any bytes after -s: the whole way from text to a job and back. What
// can be read must be written such that it reads back equal, to the byte.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "muster/base/check.h"
#include "muster/config/load.h"
#include "muster/config/table.h"
#include "muster/config/validate.h"

using namespace muster::config;  // NOLINT: a program of one file

namespace {

// Writing adds indentation and options, so only what is far from the limit must fit again.
constexpr size_t kMostWritten = kMostYamlBytes;

void check_tree(std::string_view text) {
  const auto tree = parse_yaml(text, "fuzz.yaml");
  if (!tree.ok()) return;
  const std::string written = tree->to_yaml();
  if (written.size() > kMostWritten) return;
  const auto again = parse_yaml(written, "written.yaml");
  MUSTER_CHECK(again.ok(), again.error().message());
  MUSTER_CHECK(*again == *tree, written);
  const auto line = parse_yaml(tree->to_line(), "line.yaml");
  MUSTER_CHECK(line.ok() && *line == *tree, tree->to_line());
}

void check_job(const Sources& sources) {
  const auto read = read_job(sources);
  if (!read.ok()) {
    MUSTER_CHECK(!read.error().message().empty(), "an error says something");
    return;
  }
  (void)validate(read->job, read->places).ok();
  Sources resolved;
  resolved.file_name = "resolved.yaml";
  resolved.file_text = resolved_yaml(read->job);
  resolved.base_dir = "/elsewhere";
  if (resolved.file_text.size() > kMostWritten) return;
  const auto again = read_job(resolved);
  MUSTER_CHECK(again.ok(), again.error().message());
  MUSTER_CHECK(again->job == read->job, resolved.file_text);
  MUSTER_CHECK(resolved_yaml(again->job) == resolved.file_text, resolved.file_text);
  MUSTER_CHECK(diff(read->job, again->job).empty(), "equal jobs do not differ");
}

}  // namespace

// The file, and after bytes of 0xFF (which no text holds) what follows -s.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  Sources sources;
  sources.file_name = "fuzz.yaml";
  sources.base_dir = "/jobs";
  sources.current_dir = "/here";
  const size_t end = text.find('\xff');
  sources.file_text = text.substr(0, end);
  while (text.find('\xff') != std::string_view::npos) {
    text.remove_prefix(text.find('\xff') + 1);
    sources.sets.emplace_back(text.substr(0, text.find('\xff')));
  }
  check_tree(sources.file_text);
  check_job(sources);
  return 0;
}
