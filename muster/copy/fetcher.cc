#include "muster/copy/fetcher.h"

#include <algorithm>
#include <filesystem>

#include "muster/base/hash.h"
#include "muster/base/text.h"

namespace muster::copy {
namespace {

constexpr size_t kAtOnce = size_t{16} << 20;

}  // namespace

Fetcher::Fetcher(store::Store& store, FileSystem& files, std::string to, StoredIndex stored,
                 Callbacks callbacks)
    : store_(store),
      files_(files),
      to_(std::move(to)),
      stored_(std::move(stored)),
      callbacks_(std::move(callbacks)) {}

Result<bool> Fetcher::is_current() {
  MUSTER_TRY(const auto now, read_index(store_, to_));
  return now && now->version == stored_.version;
}

Status Fetcher::read_parts(const CopiedFile& file,
                           const std::function<Status(std::span<const std::byte> part)>& take) {
  // Its name is used once, so there is no other version to be confused with.
  const store::Object object{
      .name = address_in(to_, file.object), .size = file.size, .version = {}};
  std::vector<std::byte> buffer(std::min<uint64_t>(file.size, kAtOnce));
  Hasher hasher;
  for (uint64_t at = 0; at < file.size; at += buffer.size()) {
    const auto part = std::span(buffer).first(std::min<uint64_t>(file.size - at, buffer.size()));
    MUSTER_RETURN_IF_ERROR(store_.read(object, at, part));
    hasher.add(part);
    MUSTER_RETURN_IF_ERROR(take(part));
    if (callbacks_.progress) callbacks_.progress();
  }
  if (hasher.finish().hex() != file.hash) {
    return Error(ErrorKind::kCheckpoint, "'{}' is damaged: its bytes have changed", object.name);
  }
  bytes_ += file.size;
  return {};
}

Status Fetcher::fetch(const CopiedFile& file, const std::string& path) {
  if (callbacks_.tell) {
    callbacks_.tell(
        fmt::format("fetching {} ({})", file.name, human_bytes(static_cast<double>(file.size))));
  }
  const auto parent = std::filesystem::path(path).parent_path().string();
  MUSTER_RETURN_IF_ERROR(files_.create_directories(parent.empty() ? "." : parent));
  MUSTER_TRY(const auto out, files_.create(path));
  MUSTER_RETURN_IF_ERROR(
      read_parts(file, [&](std::span<const std::byte> part) { return out->append(part); }));
  MUSTER_RETURN_IF_ERROR(out->sync());
  return out->close();
}

Result<std::string> Fetcher::read(const CopiedFile& file) {
  std::string text;
  MUSTER_RETURN_IF_ERROR(read_parts(file, [&](std::span<const std::byte> part) -> Status {
    text.append(reinterpret_cast<const char*>(part.data()), part.size());
    return {};
  }));
  return text;
}

Result<ckpt::SnapshotStore::Rollback> Fetcher::rollback() {
  const auto* const file = index().find(fmt::format("checkpoints/{}", ckpt::kRollbackFile));
  if (file == nullptr) return ckpt::SnapshotStore::Rollback();
  MUSTER_TRY(const auto text, read(*file));
  return ckpt::SnapshotStore::parse_rollback(text, file->object);
}

Status Fetcher::fetch(const CopiedCheckpoint& checkpoint, const std::string& directory) {
  const std::string all = directory + "/checkpoints";
  const std::string name = ckpt::snapshot_directory_name(checkpoint.step);
  const std::string place = all + "/" + name;
  if (files_.exists(place)) return {};
  // A name that ckpt takes for a leftover if this process dies.
  const std::string aside = fmt::format("{}/.tmp-0-{}-{}", all, name, random_id());
  const auto fetched = [&]() -> Status {
    for (const auto& file : checkpoint.files) {
      MUSTER_RETURN_IF_ERROR(fetch(file, aside + "/" + file.name.substr(file.name.rfind('/') + 1)));
    }
    MUSTER_RETURN_IF_ERROR(files_.sync_directory(aside));
    MUSTER_RETURN_IF_ERROR(files_.rename(aside, place));
    return files_.sync_directory(all);
  }();
  if (!fetched.ok()) (void)files_.remove_all(aside);
  return fetched;
}

Result<std::optional<int64_t>> Fetcher::fetch_checkpoints(const std::string& directory,
                                                          int64_t after) {
  const auto& all = index().checkpoints;
  std::optional<int64_t> newest;
  for (auto it = all.rbegin(); it != all.rend() && !newest && it->step > after; ++it) {
    MUSTER_TRY(const bool whole, try_fetch(*it, directory));
    if (whole) newest = it->step;
  }
  if (!newest && !all.empty() && all.back().step > after) {
    return Error(ErrorKind::kCheckpoint, "no checkpoint in '{}' is whole; the newest: {}", to_,
                 notes_.front());
  }
  const auto* const best = index().best();
  if (newest && best != nullptr && best->step < *newest) {
    MUSTER_TRY(const bool whole, try_fetch(*best, directory));
    (void)whole;
  }
  return newest;
}

Result<bool> Fetcher::try_fetch(const CopiedCheckpoint& checkpoint, const std::string& directory) {
  auto fetched = fetch(checkpoint, directory);
  if (fetched.ok()) return true;
  const auto kind = fetched.error().kind();
  if (kind != ErrorKind::kCheckpoint && kind != ErrorKind::kData) {
    return std::move(fetched).error();
  }
  passed_over_ = std::max(passed_over_, checkpoint.step);
  notes_.push_back(fmt::format("the checkpoint of step {} is passed over: {}", checkpoint.step,
                               fetched.error().message()));
  return false;
}

}  // namespace muster::copy
