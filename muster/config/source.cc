#include "muster/config/source.h"

#include <algorithm>

namespace muster::config {

bool is_url(std::string_view address) {
  const size_t end = address.find("://");
  if (end == std::string_view::npos || end == 0) return false;
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' ||
           c == '-' || c == '.';
  };
  return std::ranges::all_of(address.substr(0, end), letter);
}

bool has_wildcard(std::string_view address) {
  // What follows ? in an HTTP address is its query.
  if (address.starts_with("http://") || address.starts_with("https://")) return false;
  return address.find_first_of("*?") != std::string_view::npos;
}

const std::vector<SourceFormat>& source_formats() {
  static const std::vector<SourceFormat> formats = {
      {.name = "idx", .whole = true, .blocks = false},
      {.name = "csv", .whole = true, .blocks = true},
      {.name = "text", .whole = true, .blocks = false},
      {.name = "libsvm", .whole = true, .blocks = true},
      {.name = "ctr", .whole = true, .blocks = false},
      {.name = "jsonl", .whole = false, .blocks = true},
      {.name = "tfrecord", .whole = false, .blocks = true},
      {.name = "webdataset", .whole = false, .blocks = true},
      {.name = "mds", .whole = false, .blocks = true},
      {.name = "parquet", .whole = false, .blocks = true},
      {.name = "arrow", .whole = false, .blocks = true},
      {.name = "images", .whole = true, .blocks = false},
      {.name = "lmdb", .whole = true, .blocks = false},
      {.name = "tokens", .whole = true, .blocks = false},
  };
  return formats;
}

std::vector<std::string> formats_with_path() {
  std::vector<std::string> names;
  for (const auto& format : source_formats()) {
    if (format.name != "idx" && format.name != "ctr") names.emplace_back(format.name);
  }
  return names;
}

std::vector<std::string> formats_of_blocks() {
  std::vector<std::string> names;
  for (const auto& format : source_formats()) {
    if (format.blocks) names.emplace_back(format.name);
  }
  return names;
}

bool has_fields(const SourceOptions& source) {
  return source.format == "jsonl" || source.format == "tfrecord" || source.format == "webdataset" ||
         source.format == "mds" || source.format == "parquet" || source.format == "arrow";
}

bool is_read_by_blocks(const SourceOptions& source) {
  const auto& all = source_formats();
  const auto format = std::ranges::find(all, source.format, &SourceFormat::name);
  if (format == all.end() || !format->blocks) return false;
  if (!format->whole) return true;
  if (source.read != "auto") return source.read == "blocks";
  return is_url(source.path) || has_wildcard(source.path);
}

Status remove_labels(SourceOptions& source) {
  const bool always = source.format == "idx" || source.format == "libsvm" ||
                      source.format == "ctr" || source.format == "text" ||
                      source.format == "tokens";
  if (always) {
    const bool has_some = source.format != "text" && source.format != "tokens";
    return Error(ErrorKind::kUsage, "--no-labels: data of the format {} {}", source.format,
                 has_some ? "always has labels; write any, and ignore what is said of them"
                          : "has none in any case");
  }
  source.label = kNoLabel;
  return {};
}

Result<SourceOptions> source_at(const DataOptions& data, const std::string& path,
                                const std::string& format) {
  SourceOptions source = data.test.format.empty() ? data.train : data.test;
  if (!format.empty() && format != source.format) {
    const bool like_train = format == data.train.format;
    source = like_train ? data.train : SourceOptions{};
    source.format = format;
  }
  if (source.format == "idx" || source.format == "ctr") {
    return Error(ErrorKind::kUsage,
                 "--data names one path, and format {} has none; name a --format, or set {}",
                 source.format,
                 source.format == "idx" ? "-s data.test.images=... -s data.test.labels=..."
                                        : "-s data.test.args=...");
  }
  const SourceOptions defaults;
  source.path = path;
  source.read = defaults.read;
  source.part = defaults.part;
  source.limit = defaults.limit;
  return source;
}

}  // namespace muster::config
