#include "muster/copy/copy_writer.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>
#include <set>
#include <utility>

#include "muster/base/address.h"
#include "muster/base/hash.h"
#include "muster/base/mapped_file.h"
#include "muster/copy/fetcher.h"

namespace muster::copy {
namespace {

using ckpt::SnapshotInfo;

// What a resume needs besides a checkpoint. Logs, TensorBoard files and status are of a machine.
constexpr const char* kJobFile = "job.yaml";
constexpr const char* kIndexes = "index";

std::set<std::string> objects_of(const CopyIndex& index) {
  std::set<std::string> objects;
  for (const auto& file : index.files) objects.insert(file.object);
  for (const auto& checkpoint : index.checkpoints) {
    for (const auto& file : checkpoint.files) objects.insert(file.object);
  }
  return objects;
}

// Takes a number as this class writes it (from 1 on, without zeros in front) from the beginning.
std::optional<uint64_t> take_number(std::string_view& text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || text[0] == '0') return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

bool take(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

// What LocalStore adds to the name of a file that it has not completed.
std::string_view without_aside(std::string_view name) {
  constexpr std::string_view kNew = ".new";
  constexpr size_t kDigits = 16;
  if (!name.ends_with(kNew) || name.size() < kNew.size() + kDigits + 1) return name;
  const auto digits = name.substr(name.size() - kNew.size() - kDigits, kDigits);
  const bool is_aside = digits.find_first_not_of("0123456789abcdef") == std::string_view::npos &&
                        name[name.size() - kNew.size() - kDigits - 1] == '.';
  return is_aside ? name.substr(0, name.size() - kNew.size() - kDigits - 1) : name;
}

// Whether upload() may have been given this name: "checkpoints/step-000000500/meta.json".
bool is_sent(std::string_view name) {
  name = without_aside(name);
  if (name == kJobFile || name == kMetricsFile || name == kResultFile) return true;
  if (take(name, "checkpoints/")) {
    if (name == ckpt::kRollbackFile) return true;
    const size_t slash = std::min(name.find('/'), name.size());
    const auto directory = name.substr(0, slash);
    const auto digits = directory.substr(directory.find_last_not_of("0123456789") + 1);
    int64_t step = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
    return error == std::errc() && end == digits.data() + digits.size() &&
           ckpt::snapshot_directory_name(step) == directory && slash + 1 < name.size() &&
           name.find('/', slash + 1) == std::string_view::npos;
  }
  return take(name, std::string(kIndexes) + "/") && name.ends_with(".index") &&
         name.find('/') == std::string_view::npos;
}

// "3-2/metrics.jsonl": the 3. Nothing if this class does not write such an object: the place may
// have others, even of a similar name.
std::optional<uint64_t> claim_of(std::string_view object) {
  const auto claim = take_number(object);
  const bool is_ours =
      claim && take(object, "-") && take_number(object) && take(object, "/") && is_sent(object);
  return is_ours ? claim : std::nullopt;
}

std::string directory_name(const std::string& path) {
  const auto normal = std::filesystem::absolute(path).lexically_normal();
  return normal.has_filename() ? normal.filename().string()
                               : normal.parent_path().filename().string();
}

}  // namespace

CopyWriter::CopyWriter(store::Store& store, FileSystem& files, CopyOptions options)
    : store_(store),
      files_(files),
      options_([&] {
        options.to = plain_place(options.to);
        return std::move(options);
      }()),
      local_(files, options_.run_directory + "/checkpoints", options_.keep, options_.keep_best) {}

Result<CopyWriter::Outcome> CopyWriter::claim(uint64_t roster, int64_t step,
                                              const TakeOver& take_over) {
  while (true) {
    MUSTER_TRY(auto there, read_index(store_, options_.to));
    MUSTER_TRY(auto own, read_run_id(files_, options_.run_directory));
    if (there && there->index.run != own.run) {
      return Error(ErrorKind::kUsage,
                   "checkpoint.to: '{0}' has the copy of another run, {1}; name another place, or "
                   "continue that run with `muster resume {0}`",
                   options_.to, there->index.name);
    }
    CopyIndex next = there ? there->index : CopyIndex();
    if (roster != 0 && next.roster > roster) {
      taker_ = next.host;
      return Outcome::kTakenOver;
    }
    const bool is_of_group = roster != 0 && own.claimed_as(next.writer);
    const auto* const newest = next.newest();
    if (newest != nullptr && newest->step > std::max(step, own.passed_over) && !is_of_group) {
      MUSTER_TRY(const bool trained_past, has_trained_to(newest->step, roster));
      if (!trained_past) {
        return Error(
            ErrorKind::kUsage,
            "checkpoint.to: the copy in '{0}' has a later checkpoint (of step {1}) than the "
            "run directory (step {2}); continue from it with `muster resume {0}`",
            options_.to, newest->step, step);
      }
    }
    if (there && roster != 0 && take_over && options_.is_behind(own, next.writer)) {
      auto taken = take_over_from(*there, roster, take_over);
      if (!taken.ok()) {
        // What it was reading may have been superseded.
        MUSTER_TRY(const auto now, read_index(store_, options_.to));
        if (now && now->version != there->version) continue;
        return std::move(taken).error();
      }
    }
    if (own.run.empty()) own.run = random_id();
    next.run = own.run;
    next.name = directory_name(options_.run_directory);
    next.claim += 1;
    next.writer = random_id();
    next.host = machine_name();
    next.roster = std::max(next.roster, roster);
    std::erase_if(next.checkpoints, [&](const auto& each) { return each.step > step; });
    // First: if this process dies in between, the next one in this directory knows whose claim the
    // copy has.
    own.claiming = next.writer;
    MUSTER_RETURN_IF_ERROR(write_run_id(files_, options_.run_directory, own));
    const std::string text = next.encode();
    MUSTER_TRY(const auto version,
               store_.write(address_in(options_.to, kIndexFile), std::as_bytes(std::span(text)),
                            there ? store::WriteCondition::if_version(there->version)
                                  : store::WriteCondition::if_absent()));
    if (!version) continue;  // another process was quicker
    MUSTER_RETURN_IF_ERROR(
        write_run_id(files_, options_.run_directory,
                     {.run = own.run, .writer = next.writer, .to = options_.to}));
    index_ = std::move(next);
    version_ = *version;
    part_ = 0;
    published_ = false;
    unnamed_.clear();
    MUSTER_RETURN_IF_ERROR(remove_leftovers());
    return Outcome::kDone;
  }
}

Result<bool> CopyWriter::has_trained_to(int64_t step, uint64_t roster) {
  if (roster == 0) return false;
  MUSTER_TRY(const auto local, local_.list());
  return std::ranges::any_of(
      local, [&](const SnapshotInfo& info) { return info.step >= step && info.roster >= roster; });
}

Status CopyWriter::take_over_from(const StoredIndex& there, uint64_t roster,
                                  const TakeOver& take_over) {
  std::string metrics;
  if (const auto* const file = there.index.find(kMetricsFile); file != nullptr) {
    Fetcher fetcher(store_, files_, options_.to, there, {});
    MUSTER_TRY(metrics, fetcher.read(*file));
  }
  MUSTER_RETURN_IF_ERROR(take_over(metrics));
  MUSTER_TRY(const auto local, local_.list());
  for (const auto& info : local) {
    const bool copied = std::ranges::any_of(
        there.index.checkpoints, [&](const CopiedCheckpoint& each) { return is_same(info, each); });
    if (!copied && info.roster < roster) MUSTER_RETURN_IF_ERROR(files_.remove_all(info.path));
  }
  return {};
}

Status CopyWriter::remove(const std::string& address) {
  auto removed = store_.remove(address);
  if (removed.ok() || removed.error().kind() == ErrorKind::kInterrupted) return removed;
  unremoved_ = removed.error().message();
  return {};
}

// Of earlier claims: what their processes send now, they cannot make part of the copy.
Status CopyWriter::remove_leftovers() {
  MUSTER_TRY(const auto found, store_.list(address_in(options_.to, "*-*/**")));
  const auto used = objects_of(index_);
  const std::string before = address_in(options_.to, "");
  const auto folder_of = [](std::string_view name) { return name.substr(0, name.find('/')); };
  // A directory "1-2" with anything else in it was not made by this class.
  std::set<std::string, std::less<>> foreign;
  for (const auto& object : found) {
    if (!object.name.starts_with(before)) continue;
    const std::string name = object.name.substr(before.size());
    if (!claim_of(name)) foreign.emplace(folder_of(name));
  }
  for (const auto& object : found) {
    if (!object.name.starts_with(before)) continue;
    const std::string name = object.name.substr(before.size());
    const auto claim = claim_of(name);
    if (!claim || *claim >= index_.claim || used.contains(name)) continue;
    if (foreign.contains(folder_of(name))) continue;
    MUSTER_RETURN_IF_ERROR(remove(object.name));
  }
  return {};
}

Result<CopyWriter::Outcome> CopyWriter::send() {
  auto outcome = send_missing();
  if (outcome.ok() || outcome.error().kind() == ErrorKind::kInterrupted) return outcome;
  // Whoever has taken over removes what this process was sending.
  const auto there = read_index(store_, options_.to);
  if (there.ok() && *there && (*there)->version != version_) return lose();
  return outcome;
}

Result<CopyWriter::Outcome> CopyWriter::send_missing() {
  while (true) {
    MUSTER_RETURN_IF_ERROR(remove_unnamed(index_));
    ++part_;
    MUSTER_TRY(const auto rollback, local_.rollback());
    MUSTER_TRY(const auto local, local_.list());
    const auto newest = missing(local);
    CopyIndex next = index_;
    if (newest) {
      auto copied = upload(*newest);
      // It was superseded while it was being read.
      if (!copied.ok() && !files_.exists(newest->path)) continue;
      if (!copied.ok()) return std::move(copied).error();
      std::erase_if(next.checkpoints, [&](const auto& each) { return each.step == copied->step; });
      const auto after = std::ranges::find_if(
          next.checkpoints, [&](const auto& each) { return each.step > copied->step; });
      next.checkpoints.insert(after, *std::move(copied));
    }
    drop_superseded(next, local, rollback);
    MUSTER_TRY(const bool new_result, has_new_result());
    if (!newest && !new_result && published_ && next.checkpoints == index_.checkpoints) {
      return Outcome::kDone;
    }
    MUSTER_TRY(next.files, upload_others());
    MUSTER_TRY(const auto outcome, publish(std::move(next)));
    if (outcome == Outcome::kTakenOver) return outcome;
  }
}

Result<bool> CopyWriter::has_new_result() {
  const auto path = options_.run_directory + "/" + kResultFile;
  if (!files_.exists(path)) return false;
  MUSTER_TRY(const auto text, files_.read(path));
  const CopiedFile* const before = index_.find(kResultFile);
  return before == nullptr || before->hash != hash128(std::as_bytes(std::span(text))).hex();
}

std::optional<SnapshotInfo> CopyWriter::missing(const std::vector<SnapshotInfo>& local) const {
  for (auto it = local.rbegin(); it != local.rend(); ++it) {
    const bool there = std::ranges::any_of(
        index_.checkpoints, [&](const CopiedCheckpoint& each) { return is_same(*it, each); });
    if (!there) return *it;
  }
  return std::nullopt;
}

Result<CopiedFile> CopyWriter::upload(const std::string& name, std::span<const std::byte> bytes,
                                      std::string hash) {
  CopiedFile file{.name = name,
                  .object = fmt::format("{}-{}/{}", index_.claim, part_, name),
                  .size = bytes.size(),
                  .hash = std::move(hash)};
  const auto address = address_in(options_.to, file.object);
  unnamed_.push_back(file.object);
  MUSTER_TRY(const auto version, store_.write(address, bytes, store::WriteCondition::if_absent()));
  if (version) return file;
  return Error(ErrorKind::kIo, "'{}' is there already, but nobody else may write it: remove it",
               address);
}

Result<CopiedCheckpoint> CopyWriter::upload(const SnapshotInfo& checkpoint) {
  const std::string inside =
      fmt::format("checkpoints/{}/", ckpt::snapshot_directory_name(checkpoint.step));
  CopiedCheckpoint copied;
  copied.step = checkpoint.step;
  copied.roster = checkpoint.roster;
  copied.best = checkpoint.best;
  for (const auto& file : checkpoint.files) {
    MUSTER_TRY(const auto mapped, MappedFile::open(checkpoint.path + "/" + file.name));
    if (hash128(mapped.bytes()).hex() != file.hash) {
      return Error(ErrorKind::kCheckpoint,
                   "'{}/{}' is damaged: its bytes have changed since it was written",
                   checkpoint.path, file.name);
    }
    MUSTER_TRY(copied.files.emplace_back(), upload(inside + file.name, mapped.bytes(), file.hash));
  }
  MUSTER_TRY(const auto manifest, files_.read(checkpoint.path + "/" + ckpt::kManifestFile));
  const auto bytes = std::as_bytes(std::span(manifest));
  MUSTER_TRY(copied.files.emplace_back(),
             upload(inside + ckpt::kManifestFile, bytes, hash128(bytes).hex()));
  return copied;
}

Result<std::vector<CopiedFile>> CopyWriter::upload_others() {
  std::vector<std::string> names = {kJobFile, kMetricsFile, kResultFile,
                                    fmt::format("checkpoints/{}", ckpt::kRollbackFile)};
  MUSTER_TRY(const auto indexes, files_.list(options_.run_directory + "/" + kIndexes));
  for (const auto& name : indexes) {
    if (name.ends_with(".index")) names.push_back(fmt::format("{}/{}", kIndexes, name));
  }
  std::vector<CopiedFile> copied;
  for (const auto& name : names) {
    const auto path = options_.run_directory + "/" + name;
    if (!files_.exists(path)) continue;
    // A copy in memory: the metrics may be cut while they are sent.
    MUSTER_TRY(const auto text, files_.read(path));
    const auto bytes = std::as_bytes(std::span(text));
    auto hash = hash128(bytes).hex();
    const CopiedFile* const before = index_.find(name);
    if (before != nullptr && before->size == bytes.size() && before->hash == hash) {
      copied.push_back(*before);
      continue;
    }
    MUSTER_TRY(copied.emplace_back(), upload(name, bytes, std::move(hash)));
  }
  return copied;
}

void CopyWriter::drop_superseded(CopyIndex& next, const std::vector<SnapshotInfo>& local,
                                 const ckpt::SnapshotStore::Rollback& rollback) const {
  std::erase_if(next.checkpoints, [&](const CopiedCheckpoint& each) {
    return rollback.invalidates(each.step, each.roster);
  });
  const auto* const best = next.best();
  const int64_t best_step = options_.keep_best && best != nullptr ? best->step : -1;
  const auto count = static_cast<int64_t>(next.checkpoints.size());
  const int64_t first_kept =
      count > options_.keep ? next.checkpoints[static_cast<size_t>(count - options_.keep)].step : 0;
  std::erase_if(next.checkpoints, [&](const CopiedCheckpoint& each) {
    const bool is_local =
        std::ranges::any_of(local, [&](const SnapshotInfo& info) { return is_same(info, each); });
    return !is_local && each.step < first_kept && each.step != best_step;
  });
}

Result<CopyWriter::Outcome> CopyWriter::publish(CopyIndex next) {
  const std::string text = next.encode();
  MUSTER_TRY(const auto version,
             store_.write(address_in(options_.to, kIndexFile), std::as_bytes(std::span(text)),
                          store::WriteCondition::if_version(version_)));
  if (!version) return lose();
  const auto before = objects_of(std::exchange(index_, std::move(next)));
  version_ = *version;
  published_ = true;
  unnamed_.clear();
  const auto now = objects_of(index_);
  for (const auto& object : before) {
    if (now.contains(object)) continue;
    MUSTER_RETURN_IF_ERROR(remove(address_in(options_.to, object)));
  }
  return Outcome::kDone;
}

Result<CopyWriter::Outcome> CopyWriter::lose() {
  MUSTER_TRY(const auto there, read_index(store_, options_.to));
  if (!there) {
    return Error(ErrorKind::kUsage,
                 "'{}' was removed while the copy was being written; stop the run, and `muster "
                 "resume` makes a new copy",
                 address_in(options_.to, kIndexFile));
  }
  taker_ = there->index.host;
  MUSTER_RETURN_IF_ERROR(remove_unnamed(there->index));
  return Outcome::kTakenOver;
}

Status CopyWriter::remove_unnamed(const CopyIndex& index) {
  const auto used = objects_of(index);
  for (const auto& object : std::exchange(unnamed_, {})) {
    if (used.contains(object)) continue;
    MUSTER_RETURN_IF_ERROR(remove(address_in(options_.to, object)));
  }
  return {};
}

}  // namespace muster::copy
