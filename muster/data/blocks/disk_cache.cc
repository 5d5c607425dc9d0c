#include "muster/data/blocks/disk_cache.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

namespace muster::data {
namespace {

constexpr size_t kHashBytes = 2 * sizeof(uint64_t);
constexpr auto kLongestWrite = std::chrono::hours(1);
// Of the room that is seen, what is used before looking again.
constexpr uint64_t kShare = 16;

Moment now() { return std::chrono::steady_clock::now(); }

// Differs with the key too: a file under another name is not taken for that block.
std::array<char, kHashBytes> trailer(const Hash128& key, std::string_view bytes) {
  Hash128 hash = hash128(std::as_bytes(std::span(bytes)));
  hash.high += key.high;  // not xor: the key may be this hash
  hash.low += key.low;
  std::array<char, kHashBytes> result;
  std::memcpy(result.data(), &hash.high, sizeof(hash.high));
  std::memcpy(result.data() + sizeof(hash.high), &hash.low, sizeof(hash.low));
  return result;
}

// A temporary file that a killed worker left: none is written for so long.
bool is_left_over(const std::filesystem::directory_entry& file) {
  // Only what has a name that this cache gives: the directory may have files of its user.
  const std::string key = file.path().stem().string();
  if (!file.path().has_extension() || key.size() != 32 ||
      key.find_first_not_of("0123456789abcdef") != std::string::npos ||
      file.path().parent_path().filename() != key.substr(0, 2)) {
    return false;
  }
  std::error_code error;
  const auto written = file.last_write_time(error);
  return !error && std::filesystem::file_time_type::clock::now() - written > kLongestWrite;
}

// Of the files that are kept. Removes what was left over.
uint64_t bytes_in(const std::string& directory) {
  uint64_t sum = 0;
  std::error_code error;
  auto it = std::filesystem::recursive_directory_iterator(directory, error);
  while (!error && it != std::filesystem::recursive_directory_iterator()) {
    std::error_code gone;  // another process may remove it meanwhile
    if (it->is_regular_file(gone) && is_left_over(*it)) {
      std::filesystem::remove(it->path(), gone);
    } else if (it->is_regular_file(gone)) {
      const uint64_t size = it->file_size(gone);
      if (!gone) sum += size;
    }
    it.increment(error);
  }
  return sum;
}

}  // namespace

DiskCache::DiskCache(FileSystem& fs, std::string directory, uint64_t capacity, Duration pause)
    : fs_(fs),
      directory_(std::move(directory)),
      capacity_(capacity),
      pause_(pause),
      bytes_(bytes_in(directory_)) {}

std::unique_ptr<DiskCache> DiskCache::open(FileSystem& fs, std::string directory, uint64_t capacity,
                                           Duration pause) {
  const auto made = fs.create_directories(directory);
  std::unique_ptr<DiskCache> cache(new DiskCache(fs, std::move(directory), capacity, pause));
  if (!made.ok()) {
    const std::lock_guard lock(cache->mutex_);
    cache->note_failure(made.error());
  }
  return cache;
}

Hash128 DiskCache::key_of(const BlockIndex& index, size_t block) {
  const Block& it = index.blocks[block];
  if (it.hash != Hash128{}) return it.hash;
  const auto& object = index.objects[it.object];
  Hasher hasher;
  const std::array<uint64_t, 4> numbers = {it.offset, it.length, object.name.size(),
                                           object.version.size()};
  hasher.add(numbers.data(), sizeof(numbers));
  hasher.add(object.name.data(), object.name.size());
  hasher.add(object.version.data(), object.version.size());
  return hasher.finish();
}

// 256 of them, so that none has millions of files.
std::string DiskCache::folder_of(const Hash128& key) const {
  return directory_ + "/" + key.hex().substr(0, 2);
}

std::string DiskCache::path_of(const Hash128& key) const {
  return folder_of(key) + "/" + key.hex();
}

std::optional<std::string> DiskCache::read(const Hash128& key, uint64_t length) {
  const std::string path = path_of(key);
  if (!fs_.exists(path)) {
    ++misses_;
    return std::nullopt;
  }
  auto file = fs_.read(path);
  if (file.ok() && file->size() == length + kHashBytes) {
    const auto expected = trailer(key, std::string_view(*file).substr(0, length));
    if (std::memcmp(expected.data(), file->data() + length, kHashBytes) == 0) {
      ++hits_;
      file->resize(length);
      return *std::move(file);
    }
  }
  ++misses_;
  if (file.ok()) {  // else it is gone, or the disk is: nothing to remove
    ++damaged_;
    (void)fs_.remove_all(path);
    const std::lock_guard lock(mutex_);
    // Another process may have written it, which is not counted here.
    const uint64_t freed = std::min<uint64_t>(bytes_, file->size());
    bytes_ -= freed;
    spare_ += freed;
  }
  return std::nullopt;
}

Status DiskCache::write_file(const Hash128& key, std::string_view bytes) {
  const std::string aside = fmt::format("{}.{}-{}", path_of(key), ::getpid(), named_++);
  auto file = fs_.create(aside);
  if (!file.ok()) {  // its folder is not there yet, or was deleted
    MUSTER_RETURN_IF_ERROR(fs_.create_directories(folder_of(key)));
    file = fs_.create(aside);
    if (!file.ok()) return std::move(file).error();
  }
  const auto hash = trailer(key, bytes);
  auto status = (*file)->append(bytes);
  if (status.ok()) status = (*file)->append(std::string_view(hash.data(), hash.size()));
  if (status.ok()) status = (*file)->close();
  if (status.ok()) status = fs_.rename(aside, path_of(key));
  if (!status.ok()) (void)fs_.remove_all(aside);
  return status;
}

bool DiskCache::reserve(uint64_t size) {
  const std::lock_guard lock(mutex_);
  const Moment at = now();
  const bool old = at - looked_ >= pause_ && (full_ || capacity_ != kUnlimited);
  if (size > spare_ && full_ && !old) return false;
  if (size > spare_ || old) {
    looked_ = at;
    bytes_ = bytes_in(directory_) + writing_;
    const uint64_t room = capacity_ - std::min(capacity_, bytes_);
    full_ = size > room;
    spare_ = full_ ? room : std::max(size, room / kShare);  // a smaller one may still fit
    if (full_) return false;
  }
  spare_ -= size;
  bytes_ += size;
  writing_ += size;
  return true;
}

void DiskCache::end_write(uint64_t size, const Status& status) {
  const std::lock_guard lock(mutex_);
  writing_ -= size;
  if (status.ok()) {
    problem_.clear();
    return;
  }
  bytes_ -= std::min(bytes_, size);
  note_failure(status.error());
}

void DiskCache::note_failure(const Error& error) {
  spare_ = 0;
  full_ = true;
  looked_ = now();
  problem_ = fmt::format("the cache of data keeps no further blocks until its disk works again: {}",
                         error.message());
}

void DiskCache::write(const Hash128& key, std::string_view bytes) {
  const uint64_t size = bytes.size() + kHashBytes;
  // Before it is written, so that several threads stay within the capacity together.
  if (reserve(size)) end_write(size, write_file(key, bytes));
}

DiskCache::Counters DiskCache::counters() const {
  const std::lock_guard lock(mutex_);
  return {.hits = hits_, .misses = misses_, .damaged = damaged_, .bytes = bytes_};
}

std::string DiskCache::problem() const {
  const std::lock_guard lock(mutex_);
  return problem_;
}

}  // namespace muster::data
