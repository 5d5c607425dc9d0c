#include "muster/data/pack/buckets.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "muster/base/check.h"

namespace muster::data {
namespace {

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

}  // namespace

Result<LoadedBucket> LoadedBucket::make(std::string bytes, uint64_t count, size_t sample_bytes) {
  LoadedBucket bucket;
  bucket.sample_bytes_ = sample_bytes;
  bucket.entry_of_.assign(count, kNone);
  const Error damaged(ErrorKind::kData, "it does not have its {} samples", count);
  const size_t entry_bytes = sizeof(uint32_t) + sample_bytes;
  if (bytes.size() != count * entry_bytes) return damaged;
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t place = 0;
    std::memcpy(&place, bytes.data() + i * entry_bytes, sizeof(place));
    if (place >= count || bucket.entry_of_[place] != kNone) return damaged;
    bucket.entry_of_[place] = i;
  }
  bucket.bytes_ = std::move(bytes);
  return bucket;
}

std::span<const std::byte> LoadedBucket::sample(uint64_t place) const {
  const size_t at = entry_of_[place] * (sizeof(uint32_t) + sample_bytes_) + sizeof(uint32_t);
  return std::as_bytes(std::span(bytes_)).subspan(at, sample_bytes_);
}

SampleBuckets::SampleBuckets(FileSystem& files, std::string directory, uint64_t buckets,
                             size_t sample_bytes, uint64_t memory)
    : files_(files),
      directory_(std::move(directory)),
      sample_bytes_(sample_bytes),
      most_(std::max<uint64_t>(memory / buckets, 1)),
      held_(buckets) {}

std::string SampleBuckets::path_of(uint64_t bucket) const {
  return fmt::format("{}/{}.bucket", directory_, bucket);
}

bool SampleBuckets::complete() const { return files_.exists(mark()); }

Status SampleBuckets::begin() {
  MUSTER_RETURN_IF_ERROR(files_.remove_all(directory_));
  return files_.create_directories(directory_);
}

Status SampleBuckets::add(uint64_t bucket, uint32_t place, std::span<const std::byte> sample) {
  MUSTER_CHECK(sample.size() == sample_bytes_, "samples are alike");
  std::string& held = held_[bucket];
  held.append(reinterpret_cast<const char*>(&place), sizeof(place));
  held.append(reinterpret_cast<const char*>(sample.data()), sample.size());
  return held.size() < most_ ? Status() : flush(bucket);
}

// Opened for each write: there may be more buckets than a process may have files open.
Status SampleBuckets::flush(uint64_t bucket) {
  std::string& held = held_[bucket];
  if (held.empty()) return {};
  MUSTER_TRY(const auto file, files_.open_to_append(path_of(bucket)));
  MUSTER_RETURN_IF_ERROR(file->append(held));
  held.clear();
  return file->close();
}

// Before the mark says that they are complete they are on the disk: after a power failure a bucket
// may have its length and not its contents, which load() would not notice.
Status SampleBuckets::finish() {
  for (uint64_t bucket = 0; bucket < held_.size(); ++bucket) {
    MUSTER_TRY(const auto file, files_.open_to_append(path_of(bucket)));
    MUSTER_RETURN_IF_ERROR(file->append(held_[bucket]));
    MUSTER_RETURN_IF_ERROR(file->sync());
    MUSTER_RETURN_IF_ERROR(file->close());
    held_[bucket] = {};
  }
  return write_file_atomically(files_, mark(), "");
}

Result<LoadedBucket> SampleBuckets::load(uint64_t bucket, uint64_t count) const {
  MUSTER_TRY(auto bytes, files_.read(path_of(bucket)));
  auto loaded = LoadedBucket::make(std::move(bytes), count, sample_bytes_);
  if (!loaded.ok()) {
    return std::move(loaded).error().context("'{}' is damaged (delete '{}' and pack again)",
                                             path_of(bucket), directory_);
  }
  return loaded;
}

Status SampleBuckets::drop(uint64_t bucket) { return files_.remove_all(path_of(bucket)); }

Status SampleBuckets::drop_all() { return files_.remove_all(directory_); }

}  // namespace muster::data
