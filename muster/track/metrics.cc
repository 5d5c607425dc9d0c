#include "muster/track/metrics.h"

#include <functional>
#include <optional>
#include <string_view>

#include "muster/base/check.h"

namespace muster::track {
namespace {

using nlohmann::json;

std::optional<json> parse_record(std::string_view line) {
  json record = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object()) return std::nullopt;
  const auto step = record.find("step");
  if (step == record.end() || !step->is_number_integer()) return std::nullopt;
  return record;
}

// `line` without its newline; `whole` if it had one.
void for_each_line(std::string_view text,
                   const std::function<void(std::string_view line, bool whole)>& visit) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const bool whole = end != std::string_view::npos;
    visit(text.substr(0, end), whole);
    text.remove_prefix(whole ? end + 1 : text.size());
  }
}

}  // namespace

Result<MetricsWriter> MetricsWriter::open(FileSystem& fs, const std::string& path) {
  if (fs.exists(path)) {
    MUSTER_TRY(std::string text, fs.read(path));
    if (!text.empty() && text.back() != '\n') {
      const size_t last_newline = text.rfind('\n');
      text.resize(last_newline == std::string::npos ? 0 : last_newline + 1);
      MUSTER_RETURN_IF_ERROR(write_file_atomically(fs, path, text));
    }
  }
  MUSTER_TRY(auto file, fs.open_to_append(path));
  return MetricsWriter(fs, path, std::move(file));
}

Status MetricsWriter::write(const json& record) {
  MUSTER_CHECK(record.is_object() && record.contains("step") && record["step"].is_number_integer(),
               "a record has a step");
  // One append, so that a line is never half another's.
  return file_->append(record.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
}

Status MetricsWriter::truncate_after(int64_t step) {
  MUSTER_TRY(const std::string text, fs_->read(path_));
  // From the end: steps come in order, so after the last line to stay there is nothing to parse.
  // Recovery waits for this, and the file of a long run has millions of lines.
  std::string_view kept = text;
  while (!kept.empty()) {
    const size_t newline = kept.size() < 2 ? kept.npos : kept.rfind('\n', kept.size() - 2);
    const size_t begin = newline == kept.npos ? 0 : newline + 1;
    const auto record = parse_record(kept.substr(begin));
    if (kept.back() == '\n' && record && record->at("step").get<int64_t>() <= step) break;
    kept = kept.substr(0, begin);
  }
  if (kept.size() == text.size()) return {};
  MUSTER_RETURN_IF_ERROR(write_file_atomically(*fs_, path_, kept));
  MUSTER_TRY(file_, fs_->open_to_append(path_));  // the old one is no longer at this name
  return {};
}

Result<Metrics> read_metrics(FileSystem& fs, const std::string& path) {
  Metrics metrics;
  if (!fs.exists(path)) return metrics;
  MUSTER_TRY(const std::string text, fs.read(path));
  for_each_line(text, [&](std::string_view line, bool) {
    if (auto record = parse_record(line)) {
      metrics.records.push_back(*std::move(record));
    } else {
      ++metrics.skipped;
    }
  });
  return metrics;
}

}  // namespace muster::track
