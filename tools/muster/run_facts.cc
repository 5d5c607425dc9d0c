#include "tools/muster/run_facts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>

#include <nlohmann/json.hpp>

#include "muster/base/text.h"

#include "tools/muster/find_run.h"

namespace muster::cli {
namespace {

using Json = nlohmann::json;
using MetricList = std::vector<std::pair<std::string, double>>;

MetricList numbers_in(const Json& object) {
  MetricList values;
  if (!object.is_object()) return values;
  for (const auto& [name, value] : object.items()) {
    if (value.is_number()) values.emplace_back(name, value.get<double>());
  }
  return values;
}

std::string text_in(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

uint64_t count_in(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number_unsigned() ? at->get<uint64_t>() : 0;
}

JobFingerprint fingerprint_in(const Json& object) {
  JobFingerprint fingerprint;
  const auto at = object.find("fingerprint");
  if (at == object.end() || !at->is_object()) return fingerprint;
  for (const auto& [name, hash] : fingerprint.parts())
    *hash = text_in(*at, std::string(name).c_str());
  return fingerprint;
}

// The end of a file that may be large: enough for its last records, whole or torn.
std::string tail_of(const std::string& path) {
  constexpr std::streamoff kTail = 1 << 16;
  std::ifstream file(path, std::ios::binary);
  file.seekg(0, std::ios::end);
  const std::streamoff size = file.tellg();
  if (size <= 0) return "";
  file.seekg(std::max<std::streamoff>(0, size - kTail));
  std::string text(static_cast<size_t>(std::min(size, kTail)), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(0, file.gcount())));
  return text;
}

// The step and figures that were written down last: those of the last evaluation, else the loss.
void add_last_metrics(const std::string& path, RunFacts& facts) {
  const auto lines = split(tail_of(path), '\n');
  bool stepped = false;
  for (auto line = lines.rbegin(); line != lines.rend() && facts.metrics.empty(); ++line) {
    const auto record = Json::parse(*line, nullptr, false);
    if (!record.is_object()) continue;
    const auto step = record.find("step");
    if (!stepped && step != record.end() && step->is_number_integer()) {
      facts.steps = std::max(facts.steps, step->get<int64_t>());
      stepped = true;
    }
    if (const auto test = record.find("test"); test != record.end()) {
      facts.metrics = numbers_in(*test);
    }
  }
  for (auto line = lines.rbegin(); line != lines.rend() && facts.metrics.empty(); ++line) {
    const auto record = Json::parse(*line, nullptr, false);
    if (!record.is_object()) continue;
    const auto loss = record.find("loss");
    if (loss != record.end() && loss->is_number()) {
      facts.metrics = {{"train loss", loss->get<double>()}};
    }
  }
}

void add_newest_checkpoint(const track::RunDirectory& run, FileSystem& files, RunFacts& facts) {
  ckpt::SnapshotStore store(files, run.checkpoints(), 1, true);
  const auto snapshots = store.list();
  if (!snapshots.ok() || snapshots->empty()) return;
  facts.steps = std::max(facts.steps, snapshots->back().step);
  const auto text = files.read(snapshots->back().path + "/meta.json");
  if (!text.ok()) return;
  const auto meta = Json::parse(*text, nullptr, false);
  if (!meta.is_object()) return;
  facts.weights_hash = text_in(meta, "weights_hash");
  facts.fingerprint = fingerprint_in(meta);
}

}  // namespace

bool has_checkpoint(const track::RunDirectory& run, FileSystem& files) {
  const auto snapshots = ckpt::SnapshotStore(files, run.checkpoints(), 1, false).list();
  return snapshots.ok() && !snapshots->empty();
}

RunFacts gather_facts(const track::RunDirectory& run, FileSystem& files) {
  RunFacts facts;
  facts.name = run_name(run);
  facts.path = run.path();
  facts.status = run.read_status();
  facts.steps = facts.status.step;
  if (facts.status.state == track::RunState::kFinished) {
    if (const auto result = run.read_result()) {
      facts.metrics_are_final = true;
      facts.metrics = numbers_in(result->value("test", Json::object()));
      facts.weights_hash = text_in(*result, "weights_hash");
      facts.fingerprint = fingerprint_in(*result);
      const auto steps = result->find("steps");
      if (steps != result->end() && steps->is_number_integer()) facts.steps = steps->get<int64_t>();
      facts.damaged_blocks = count_in(*result, "damaged_blocks");
      facts.replaced_samples = count_in(*result, "replaced_samples");
    }
  }
  if (facts.metrics.empty()) add_last_metrics(run.metrics_file(), facts);
  if (facts.weights_hash.empty()) add_newest_checkpoint(run, files, facts);
  return facts;
}

std::string metric_text(double value) {
  if (!std::isfinite(value)) return "not finite";
  const double size = std::fabs(value);
  return size != 0 && (size < 1e-3 || size >= 1e6) ? fmt::format("{:.3e}", value)
                                                   : fmt::format("{:.4f}", value);
}

std::string metrics_text(const MetricList& metrics) {
  std::string text;
  for (const auto& [name, value] : metrics) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{} {}", name, metric_text(value));
  }
  return text;
}

Paint paint_of(track::RunState state) {
  switch (state) {
    case track::RunState::kFinished:
      return Paint::kGood;
    case track::RunState::kFailed:
    case track::RunState::kDied:
      return Paint::kBad;
    case track::RunState::kInterrupted:
      return Paint::kWarning;
    default:
      return Paint::kPlain;
  }
}

bool is_bit_neutral(const std::string& key) {
  static constexpr std::array<std::string_view, 17> kNeutral = {
      "name",         "threads",       "runs",       "best_by",         "checkpoint.", "track.",
      "data.loader.", "sync.bucket",   "data.test.", "workers.",        "audit.",      "numerics",
      "data.memory",  "data.requests", "data.cache", "data.cache_size", "data.index"};
  return std::ranges::any_of(kNeutral, [&](std::string_view neutral) {
    return neutral.ends_with('.') ? key.starts_with(neutral) : key == neutral;
  });
}

}  // namespace muster::cli
