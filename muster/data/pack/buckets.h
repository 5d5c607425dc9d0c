// Samples on disk, sorted roughly: the first half of a shuffle of data that is larger than memory.
//
// Each sample goes to the bucket of its new place, in the order in which it is read; a bucket, once
// complete, fits in memory, where its samples are put in order. So everything is read once and
// written once, from front to back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "muster/base/file_system.h"
#include "muster/base/result.h"

namespace muster::data {

// All samples of one bucket, by their place in it.
class LoadedBucket {
 public:
  // `bytes`: for each sample its place and its contents. Error (kData): it does not have each of
  // `count` places once.
  static Result<LoadedBucket> make(std::string bytes, uint64_t count, size_t sample_bytes);
  std::span<const std::byte> sample(uint64_t place) const;

 private:
  std::string bytes_;
  size_t sample_bytes_ = 0;
  std::vector<uint32_t> entry_of_;  // by place
};

// Not safe for concurrent use.
class SampleBuckets {
 public:
  // In a directory of its own. `memory`: what all buckets together hold before they write. `files`
  // must outlive it.
  SampleBuckets(FileSystem& files, std::string directory, uint64_t buckets, size_t sample_bytes,
                uint64_t memory);

  // Whether finish() has been called, by this process or an earlier one.
  bool complete() const;
  // Drops what is there, and makes the directory.
  Status begin();
  Status add(uint64_t bucket, uint32_t place, std::span<const std::byte> sample);
  Status finish();
  // A bucket with this many samples.
  Result<LoadedBucket> load(uint64_t bucket, uint64_t count) const;
  Status drop(uint64_t bucket);
  Status drop_all();

 private:
  std::string path_of(uint64_t bucket) const;
  std::string mark() const { return directory_ + "/complete"; }
  Status flush(uint64_t bucket);

  FileSystem& files_;
  const std::string directory_;
  const size_t sample_bytes_;
  const size_t most_;  // bytes that a bucket holds before it writes them
  std::vector<std::string> held_;
};

}  // namespace muster::data
