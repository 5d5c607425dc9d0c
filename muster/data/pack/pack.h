// Rewrites a data set into files that are read by blocks: `muster data pack`.
//
// Samples are stored as they are read, decoded and of their final size (stored_sample.h), so
// training on them gives the same bits as on the data they were made from, in the same order. Only
// what augmentation fills gaps with may differ, where inputs with `mean` and `deviation` are no
// pixels.
//
// With `shuffle`, sample p of the result is a keyed permutation of p (permutation.h), so the order
// follows from seed and size alone. Data of which a sample costs a block to read is first
// distributed to buckets on disk (buckets.h), in `directory` itself; this takes as much room as the
// result.
//
// Each file is written under another name and renamed, and what a file holds follows from its
// number. So packing that was interrupted continues after the last complete file; distributing
// begins anew. pack.json in the directory says what is packed there: other data, or other options,
// are refused.
//
// Threads: none of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "muster/base/file_system.h"
#include "muster/base/result.h"
#include "muster/config/job.h"
#include "muster/data/dataset.h"

namespace muster::data {

struct PackProgress {
  bool distributes = false;  // reads samples for the shuffle; else writes files
  uint64_t samples = 0;
  uint64_t samples_done = 0;
};

struct PackOptions {
  std::string directory;
  std::string format = "tfrecord";
  uint64_t block = uint64_t{4} << 20;   // bytes of samples, about
  uint64_t file = uint64_t{256} << 20;  // bytes of samples, about; needed in memory for a shuffle
  bool shuffle = false;
  uint64_t seed = 1;
  // Called after every few samples; false ends it, with an error of kind kInterrupted. May be
  // empty.
  // NOLINTNEXTLINE(readability-redundant-member-init): GCC warns who leaves it out
  std::function<bool(const PackProgress&)> progress = {};
};

struct Packed {
  uint64_t samples = 0;
  uint64_t files = 0;
  uint64_t blocks = 0;
  config::SourceOptions source;  // reads the result; its path is in `directory`, as that is given
};

// `source` is what the data set was opened with. Errors: kJob if its samples cannot be packed,
// kUsage if the directory holds something else, those of reading and writing.
Result<Packed> pack(const Dataset& dataset, const config::SourceOptions& source,
                    const PackOptions& options, FileSystem& files);

}  // namespace muster::data
