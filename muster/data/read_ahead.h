// Tells data that is streamed which samples will be read in their own order, from front to back, so
// that it fetches them ahead: evaluation, checks and packing, which have no Loader.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>

#include "muster/data/dataset.h"

namespace muster::data {

// Data in memory is left alone. While it lives nothing else may tell the data set what it reads;
// its destructor ends the reading ahead. Whether it is told has no effect on what is read. Safe for
// concurrent use.
class ReadAhead {
 public:
  // Batches of `size` samples from `first` on, the last of which ends before `end`. `at_once`: how
  // many are read at a time, which must be there even if they take more memory than was given.
  ReadAhead(const Dataset& dataset, uint64_t first, uint64_t end, uint64_t size, uint64_t at_once);
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // Batch `i`, counted from 0, was read.
  void done(uint64_t i);
  // All samples before this one were read, or will not be.
  void reached(uint64_t sample);

 private:
  void tell();

  Fetcher* const fetcher_;  // null: nothing is to be told
  const uint64_t first_;
  const uint64_t size_;
  std::mutex mutex_;
  uint64_t next_ = 0;         // all batches before it are done; guarded by mutex_
  std::set<uint64_t> later_;  // those behind it that are; guarded by mutex_
};

}  // namespace muster::data
