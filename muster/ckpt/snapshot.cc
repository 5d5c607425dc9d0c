#include "muster/ckpt/snapshot.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "muster/base/check.h"
#include "muster/base/fault_point.h"
#include "muster/base/hash.h"

namespace muster::ckpt {
namespace {

using nlohmann::json;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kTmpPrefix = ".tmp-";
constexpr std::string_view kOldPrefix = ".old-";
constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kStateFile = "state.safetensors";
constexpr const char* kMetaFile = "meta.json";

template <typename Number>
std::optional<Number> parse_number(std::string_view digits) {
  Number value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || digits.empty()) {
    return std::nullopt;
  }
  return value;
}

std::optional<int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const auto step = parse_number<int64_t>(name.substr(kPrefix.size()));
  // Only our own spelling: "step-5" is somebody else's.
  if (!step || *step < 0 || snapshot_directory_name(*step) != name) return std::nullopt;
  return step;
}

// ".tmp-3-step-000000500": the 3.
std::optional<uint64_t> roster_of_aside(std::string_view name) {
  const auto rest = name.substr(kTmpPrefix.size());
  return parse_number<uint64_t>(rest.substr(0, rest.find('-')));
}

std::string hash_of(std::string_view text) { return hash128(std::as_bytes(std::span(text))).hex(); }

Error damaged(const std::string& path, std::string_view why) {
  return Error(ErrorKind::kCheckpoint,
               "the snapshot '{}' is damaged ({}); an earlier one can be used instead", path, why);
}

Result<FileDigest> write_text(FileSystem& fs, const std::string& path, std::string_view text) {
  MUSTER_TRY(auto file, fs.create(path));
  MUSTER_RETURN_IF_ERROR(file->append(text));
  MUSTER_RETURN_IF_ERROR(file->sync());
  MUSTER_RETURN_IF_ERROR(file->close());
  return FileDigest{text.size(), hash128(std::as_bytes(std::span(text)))};
}

}  // namespace

// Nine digits, so that the names sort by step; more if it takes more.
std::string snapshot_directory_name(int64_t step) { return fmt::format("{}{:09}", kPrefix, step); }

struct SnapshotStore::Manifest {
  // Format 1, which had the counters as one tensor of bytes, can be read too.
  static constexpr int kFormat = 2;
  static constexpr int kOldestFormat = 1;
  static bool known(int format) { return format >= kOldestFormat && format <= kFormat; }

  int64_t step = 0;
  uint64_t roster = 0;
  bool best = false;
  std::map<std::string, std::pair<uint64_t, std::string>> files;  // name -> size, hash
  int format = kFormat;  // of another, nothing else is known

  // The manifest vouches for the files, and its own hash for the manifest.
  std::string encode() const {
    json object = {{"format", format}, {"step", step}, {"roster", roster}, {"best", best}};
    for (const auto& [name, file] : files) {
      object["files"][name] = {{"size", file.first}, {"xxh3_128", file.second}};
    }
    object["xxh3_128"] = hash_of(object.dump());
    return object.dump(2) + "\n";
  }

  // Nothing if it is not exactly what encode() wrote.
  static std::optional<Manifest> decode(const std::string& text) {
    json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object() || !object.contains("xxh3_128")) return std::nullopt;
    try {
      const std::string expected = object["xxh3_128"].get<std::string>();
      object.erase("xxh3_128");
      if (hash_of(object.dump()) != expected) return std::nullopt;
      Manifest manifest;
      manifest.format = object.at("format").get<int>();
      if (!known(manifest.format)) return manifest;
      manifest.step = object.at("step").get<int64_t>();
      manifest.roster = object.at("roster").get<uint64_t>();
      manifest.best = object.at("best").get<bool>();
      for (const auto& [name, file] : object.at("files").items()) {
        manifest.files[name] = {file.at("size").get<uint64_t>(),
                                file.at("xxh3_128").get<std::string>()};
      }
      return manifest;
    } catch (const json::exception&) {
      return std::nullopt;
    }
  }
};

SnapshotStore::SnapshotStore(FileSystem& fs, std::string directory, int keep, bool keep_best,
                             std::function<void()> progress)
    : fs_(fs),
      directory_(std::move(directory)),
      keep_(std::max(1, keep)),
      keep_best_(keep_best),
      progress_(std::move(progress)) {}

// ---- writing

Status SnapshotStore::write(const SnapshotView& snapshot) {
  MUSTER_CHECK(snapshot.step >= 0, "steps count from 0");
  MUSTER_CHECK(snapshot.meta.is_object() || snapshot.meta.is_null(), "meta is an object");
  const auto failed = [&](Error error) {
    return std::move(error).context("the snapshot of step {} was not written", snapshot.step);
  };
  if (Status status = make_directory(); !status.ok()) return failed(std::move(status).error());
  if (Status status = refuse_if_outdated(snapshot); !status.ok()) return status;
  if (Status status = remove_leftovers(snapshot.roster); !status.ok()) {
    return failed(std::move(status).error());
  }
  const std::string name = snapshot_directory_name(snapshot.step);
  const std::string aside = path(fmt::format("{}{}-{}", kTmpPrefix, snapshot.roster, name));
  Status status = write_files(snapshot, aside);
  if (status.ok()) status = put_in_place(aside, name);
  if (!status.ok()) {
    (void)fs_.remove_all(aside);  // the first error is the one to tell
    return failed(std::move(status).error());
  }
  {
    const std::lock_guard lock(mutex_);
    damaged_.erase(name);
  }
  if (Status removed = remove_superseded(snapshot.step); !removed.ok()) {
    return std::move(removed).error().context(
        "the snapshot of step {} is written, but an older one cannot be removed", snapshot.step);
  }
  return {};
}

Status SnapshotStore::make_directory() {
  if (directory_is_durable_) return {};
  MUSTER_RETURN_IF_ERROR(fs_.create_directories(directory_));
  // Its own name must survive too, also if it was made by a process that died before this point.
  const std::string parent = std::filesystem::path(directory_).parent_path().string();
  MUSTER_RETURN_IF_ERROR(fs_.sync_directory(parent.empty() ? "." : parent));
  directory_is_durable_ = true;
  return {};
}

Status SnapshotStore::write_files(const SnapshotView& snapshot, const std::string& aside) {
  MUSTER_RETURN_IF_ERROR(fs_.create_directories(aside));
  Manifest manifest;
  manifest.step = snapshot.step;
  manifest.roster = snapshot.roster;
  manifest.best = snapshot.best;
  const auto record = [&](const char* name, const FileDigest& digest) {
    manifest.files[name] = {digest.size, digest.hash.hex()};
  };
  // "format": "pt" is what tells Python's loaders that these are torch tensors.
  MUSTER_TRY(const auto model, write_safetensors(fs_, aside + "/" + kModelFile, snapshot.model,
                                                 {{"format", "pt"}}, progress_));
  record(kModelFile, model);
  fault_point(FaultPoint::kCheckpoint);
  MUSTER_TRY(const auto state,
             write_safetensors(fs_, aside + "/" + kStateFile, snapshot.state, {}, progress_));
  record(kStateFile, state);
  const json object = snapshot.meta.is_null() ? json::object() : snapshot.meta;
  MUSTER_TRY(const auto meta,
             write_text(fs_, aside + "/" + kMetaFile,
                        object.dump(2, ' ', false, json::error_handler_t::replace) + "\n"));
  record(kMetaFile, meta);
  if (progress_) progress_();
  MUSTER_TRY(const auto written, write_text(fs_, aside + "/" + kManifestFile, manifest.encode()));
  (void)written;
  if (progress_) progress_();
  return fs_.sync_directory(aside);
}

Status SnapshotStore::put_in_place(const std::string& aside, const std::string& name) {
  // A directory cannot be renamed over another, so one of the same step steps back first; until the
  // new one is in its place, candidates() reads it under its other name.
  const std::string old = path(std::string(kOldPrefix) + name);
  if (fs_.exists(path(name))) {
    MUSTER_RETURN_IF_ERROR(fs_.remove_all(old));
    MUSTER_RETURN_IF_ERROR(fs_.rename(path(name), old));
  }
  if (Status status = fs_.rename(aside, path(name)); !status.ok()) {
    if (fs_.exists(old)) (void)fs_.rename(old, path(name));
    return status;
  }
  MUSTER_RETURN_IF_ERROR(fs_.sync_directory(directory_));
  (void)fs_.remove_all(old);  // if it stays, the next write takes it for the leftover it is
  return {};
}

Status SnapshotStore::refuse_if_outdated(const SnapshotView& snapshot) {
  MUSTER_TRY(const auto last, rollback());
  if (last.invalidates(snapshot.step, snapshot.roster)) {
    return Error(ErrorKind::kCheckpoint,
                 "the snapshot of step {} by roster {} was not written: the workers have gone back "
                 "to step {} since, because of a faulty one",
                 snapshot.step, snapshot.roster, last.step);
  }
  MUSTER_TRY(const auto there, list());
  for (const auto& other : there) {
    if (other.step >= snapshot.step && other.roster > snapshot.roster) {
      return Error(ErrorKind::kCheckpoint,
                   "the snapshot of step {} by roster {} was not written: roster {} has already "
                   "written step {}, so this worker is no longer part of the job",
                   snapshot.step, snapshot.roster, other.roster, other.step);
    }
  }
  return {};
}

Status SnapshotStore::remove_leftovers(uint64_t roster) {
  MUSTER_TRY(const auto names, fs_.list(directory_));
  for (const auto& name : names) {
    if (name.starts_with(kTmpPrefix)) {
      // One of a newer roster is not a leftover: somebody else is writing it.
      if (roster_of_aside(name).value_or(0) > roster) continue;
      MUSTER_RETURN_IF_ERROR(fs_.remove_all(path(name)));
    } else if (name.starts_with(kOldPrefix)) {
      const std::string usual = name.substr(kOldPrefix.size());
      if (!step_of(usual)) continue;
      if (fs_.exists(path(usual))) {
        MUSTER_RETURN_IF_ERROR(fs_.remove_all(path(name)));
      } else {
        MUSTER_RETURN_IF_ERROR(fs_.rename(path(name), path(usual)));
      }
    }
  }
  return {};
}

Status SnapshotStore::remove_superseded(int64_t just_written) {
  MUSTER_TRY(const auto all, candidates());
  std::optional<int64_t> best;
  const int64_t trusted = kept_for_rollback_;
  std::optional<int64_t> for_rollback;
  std::optional<int64_t> next_for_rollback;  // will be, once it is trusted
  std::optional<int64_t> best_for_rollback;
  std::vector<Candidate> sound;  // as far as it is known without reading the tensors
  std::vector<std::string> superfluous;
  for (const auto& candidate : all) {
    const auto manifest = read_manifest(candidate.name);
    if (is_damaged(candidate.name) ||
        (!manifest.ok() && manifest.error().kind() == ErrorKind::kCheckpoint)) {
      superfluous.push_back(candidate.name);
      continue;
    }
    sound.push_back(candidate);
    // Oldest first: the newest wins.
    const bool marked = manifest.ok() && manifest->best;
    if (marked) best = candidate.step;
    if (candidate.step > trusted) {
      if (!next_for_rollback) next_for_rollback = candidate.step;
      continue;
    }
    for_rollback = candidate.step;
    if (marked) best_for_rollback = candidate.step;
  }
  for (size_t i = 0; i < sound.size(); ++i) {
    const bool among_newest = i + static_cast<size_t>(keep_) >= sound.size();
    const int64_t step = sound[i].step;
    const bool is_best = keep_best_ && (best == step || best_for_rollback == step);
    const bool to_go_back_to = trusted >= 0 && (for_rollback == step || next_for_rollback == step);
    if (!among_newest && !is_best && !to_go_back_to && step != just_written) {
      superfluous.push_back(sound[i].name);
    }
  }
  for (const auto& name : superfluous) MUSTER_RETURN_IF_ERROR(fs_.remove_all(path(name)));
  return {};
}

Status SnapshotStore::discard_after(int64_t step, uint64_t roster) {
  MUSTER_TRY(const auto all, candidates_and_invalid());
  // Newest first, so that a crash in between leaves one line of history.
  for (auto it = all.rbegin(); it != all.rend() && it->step > step; ++it) {
    const auto manifest = read_manifest(it->name);
    if (manifest.ok() && manifest->roster > roster) continue;
    // Of another version, or not readable at present: not ours to remove.
    if (!manifest.ok() && manifest.error().kind() != ErrorKind::kCheckpoint) continue;
    MUSTER_RETURN_IF_ERROR(fs_.remove_all(path(it->name)));
  }
  return fs_.exists(directory_) ? fs_.sync_directory(directory_) : Status();
}

Status SnapshotStore::roll_back(const Rollback& rollback) {
  MUSTER_TRY(const auto last, this->rollback());
  if (last.roster >= rollback.roster) return {};
  MUSTER_RETURN_IF_ERROR(note_rollback(rollback));
  return discard_after(rollback.step, rollback.roster);
}

Status SnapshotStore::note_rollback(const Rollback& rollback) {
  MUSTER_TRY(const auto last, this->rollback());
  if (last.roster >= rollback.roster) return {};
  MUSTER_RETURN_IF_ERROR(make_directory());
  const json object = {{"roster", rollback.roster}, {"step", rollback.step}};
  return write_file_atomically(fs_, path(kRollbackFile), object.dump() + "\n");
}

Status SnapshotStore::finish_rollback() {
  MUSTER_TRY(const auto last, rollback());
  if (last.roster == 0) return {};
  MUSTER_RETURN_IF_ERROR(discard_after(last.step, last.roster));
  MUSTER_RETURN_IF_ERROR(fs_.remove_all(path(kRollbackFile)));
  return fs_.sync_directory(directory_);
}

// ---- reading

Result<SnapshotStore::Rollback> SnapshotStore::rollback() {
  const auto file = path(kRollbackFile);
  if (!fs_.exists(file)) return Rollback{};
  MUSTER_TRY(const auto text, fs_.read(file));
  return parse_rollback(text, file);
}

Result<SnapshotStore::Rollback> SnapshotStore::parse_rollback(const std::string& text,
                                                              const std::string& file) {
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool sound = object.is_object() && object.contains("roster") && object.contains("step") &&
                     object["roster"].is_number_unsigned() && object["step"].is_number_integer();
  if (!sound) {
    return Error(ErrorKind::kCheckpoint,
                 "'{}' is damaged: it says which snapshots are invalid after a faulty worker was "
                 "found. Remove it together with the snapshots that may be wrong",
                 file);
  }
  return Rollback{object["roster"].get<uint64_t>(), object["step"].get<int64_t>()};
}

bool SnapshotStore::is_invalid(const Candidate& candidate, const Rollback& rollback) {
  if (rollback.roster == 0 || candidate.step <= rollback.step) return false;  // without reading
  const auto manifest = read_manifest(candidate.name);
  return manifest.ok() && rollback.invalidates(candidate.step, manifest->roster);
}

Result<std::vector<SnapshotStore::Candidate>> SnapshotStore::candidates() {
  MUSTER_TRY(auto found, candidates_and_invalid());
  MUSTER_TRY(const auto last, rollback());
  std::erase_if(found, [&](const Candidate& candidate) { return is_invalid(candidate, last); });
  return found;
}

Result<std::vector<SnapshotStore::Candidate>> SnapshotStore::candidates_and_invalid() {
  MUSTER_TRY(const auto names, fs_.list(directory_));
  std::map<int64_t, std::string> by_step;
  for (const auto& name : names) {
    if (const auto step = step_of(name)) {
      by_step[*step] = name;
    } else if (name.starts_with(kOldPrefix)) {
      if (const auto old = step_of(std::string_view(name).substr(kOldPrefix.size()))) {
        by_step.emplace(*old, name);  // "." sorts first, so the usual name replaces it
      }
    }
  }
  std::vector<Candidate> found;
  found.reserve(by_step.size());
  for (auto& [step, name] : by_step) found.push_back({step, std::move(name)});
  return found;
}

Result<SnapshotStore::Manifest> SnapshotStore::read_manifest(const std::string& name) {
  const std::string file = path(name) + "/" + kManifestFile;
  if (!fs_.exists(file)) return damaged(path(name), "it has no manifest.json");
  MUSTER_TRY(const auto text, fs_.read(file));
  auto manifest = Manifest::decode(text);
  if (!manifest) return damaged(path(name), "its manifest.json is not as it was written");
  if (!Manifest::known(manifest->format)) {
    return Error(
        ErrorKind::kMachine,
        "the snapshot '{}' has format {}, this Muster reads formats {} to {}; use the version that "
        "wrote it",
        path(name), manifest->format, Manifest::kOldestFormat, Manifest::kFormat);
  }
  return *std::move(manifest);
}

Result<Snapshot> SnapshotStore::read(const Candidate& candidate) {
  const std::string directory = path(candidate.name);
  MUSTER_TRY(const auto manifest, read_manifest(candidate.name));
  if (manifest.step != candidate.step) {
    return damaged(directory, fmt::format("its manifest is of step {}", manifest.step));
  }
  const auto read_file = [&](const char* name) -> Result<std::string> {
    const auto expected = manifest.files.find(name);
    if (expected == manifest.files.end()) {
      return damaged(directory, fmt::format("its manifest does not know {}", name));
    }
    const std::string file = directory + "/" + name;
    if (!fs_.exists(file)) return damaged(directory, fmt::format("{} is missing", name));
    MUSTER_TRY(std::string bytes, fs_.read_in_parts(file, progress_));
    if (bytes.size() != expected->second.first) {
      return damaged(directory, fmt::format("{} has {} bytes instead of {}", name, bytes.size(),
                                            expected->second.first));
    }
    if (hash_of(bytes) != expected->second.second) {
      return damaged(directory, fmt::format("the bytes of {} have changed", name));
    }
    return bytes;
  };
  MUSTER_TRY(std::string meta_text, read_file(kMetaFile));
  json meta = json::parse(meta_text, nullptr, /*allow_exceptions=*/false);
  if (!meta.is_object()) return damaged(directory, "meta.json is not an object");
  MUSTER_TRY(std::string model_bytes, read_file(kModelFile));
  MUSTER_TRY(auto model,
             SafetensorsFile::parse(std::move(model_bytes), directory + "/" + kModelFile));
  MUSTER_TRY(std::string state_bytes, read_file(kStateFile));
  MUSTER_TRY(auto state,
             SafetensorsFile::parse(std::move(state_bytes), directory + "/" + kStateFile));
  return Snapshot{manifest.step,    manifest.roster,  manifest.best,  directory,
                  std::move(model), std::move(state), std::move(meta)};
}

Result<std::optional<Snapshot>> SnapshotStore::load_newest(std::vector<std::string>* notes) {
  MUSTER_TRY(const auto all, candidates());
  std::string newest_problem;
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    auto snapshot = read(*it);
    if (snapshot.ok()) return std::optional<Snapshot>(std::move(*snapshot));
    // Of another version: going on from an older one would hide that. The person should know.
    if (snapshot.error().kind() == ErrorKind::kMachine) return std::move(snapshot).error();
    if (newest_problem.empty()) newest_problem = snapshot.error().message();
    if (notes) notes->push_back(snapshot.error().message());
    // A file that could not be read (rights, a sick disk) may be read tomorrow: keep it.
    if (snapshot.error().kind() == ErrorKind::kCheckpoint) mark_damaged(it->name);
  }
  if (all.empty()) return std::optional<Snapshot>();
  return Error(
      ErrorKind::kCheckpoint,
      "none of the {} snapshots in '{}' can be used; the newest: {}; start the job anew or "
      "bring back a copy",
      all.size(), directory_, newest_problem);
}

Result<std::optional<Snapshot>> SnapshotStore::load_best() {
  MUSTER_TRY(const auto infos, list());
  for (auto it = infos.rbegin(); it != infos.rend(); ++it) {
    if (!it->best) continue;
    MUSTER_TRY(auto snapshot, load(it->step));
    return std::optional<Snapshot>(std::move(snapshot));
  }
  return std::optional<Snapshot>();
}

Result<Snapshot> SnapshotStore::load(int64_t step) {
  MUSTER_TRY(const auto all, candidates());
  std::string there;
  for (const auto& candidate : all) {
    if (candidate.step == step) return read(candidate);
    there += fmt::format("{}{}", there.empty() ? "" : ", ", candidate.step);
  }
  return Error(ErrorKind::kCheckpoint, "there is no snapshot of step {} in '{}'; there are: {}",
               step, directory_, there.empty() ? "none" : there);
}

Result<std::vector<SnapshotInfo>> SnapshotStore::list(std::optional<Error>* unreadable) {
  MUSTER_TRY(const auto all, candidates());
  std::vector<SnapshotInfo> infos;
  for (const auto& candidate : all) {
    auto manifest = read_manifest(candidate.name);
    if (!manifest.ok()) {
      const bool damaged = manifest.error().kind() == ErrorKind::kCheckpoint;
      if (!damaged && unreadable != nullptr) *unreadable = std::move(manifest).error();
      continue;
    }
    if (manifest->step != candidate.step) continue;
    SnapshotInfo info{candidate.step, manifest->roster, manifest->best, path(candidate.name), {}};
    for (const auto& [name, file] : manifest->files) {
      info.files.push_back({name, file.first, file.second});
    }
    infos.push_back(std::move(info));
  }
  return infos;
}

void SnapshotStore::mark_damaged(const std::string& name) {
  const std::lock_guard lock(mutex_);
  damaged_.insert(name);
}

bool SnapshotStore::is_damaged(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return damaged_.contains(name);
}

}  // namespace muster::ckpt
