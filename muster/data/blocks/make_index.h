// Makes the index of data that is read by blocks: cuts each object into blocks, and hashes them.
//
// All bytes are read once to be hashed, and by most formats once more to be cut. What it gives
// follows from the objects' contents and the options alone, so workers that make it twice get the
// same.
//
// Threads: `threads` of its own, named "index", joined before it returns. Each takes one object
// after the other.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/result.h"
#include "muster/data/blocks/block_format.h"
#include "muster/data/blocks/block_index.h"
#include "muster/data/blocks/partial_index.h"
#include "muster/store/store.h"

namespace muster::data {

struct IndexProgress {
  uint64_t objects = 0;
  uint64_t objects_done = 0;
  uint64_t bytes = 0;  // of all objects
  uint64_t bytes_done = 0;
};

struct IndexOptions {
  uint64_t block = uint64_t{4} << 20;  // bytes, about
  // Objects that have longer blocks are refused, before the blocks are read. 0: none are.
  uint64_t longest_block = 0;
  int threads = 8;
  PartialIndex* partial = nullptr;  // objects that it knows are not read; others are added to it
  // Called about every 100 ms by the caller's thread; false ends it, with an error of kind
  // kInterrupted. May be empty.
  // NOLINTNEXTLINE(readability-redundant-member-init): GCC warns who leaves it out
  std::function<bool(const IndexProgress&)> progress = {};
};

// The error (kData) for a block that is longer than a lane can mix; `block` says which one.
Error too_long(std::string_view block, uint64_t longest);

// Of these objects, in their order. Errors: kData if an object is not of the format or none has
// samples; those of the store; kInterrupted. An error ends the indexing of the other objects at
// their next read, and is returned also if `progress` gave false meanwhile.
Result<BlockIndex> make_index(const BlockFormat& format, std::string name,
                              std::vector<store::Object> objects, store::Store& store,
                              const IndexOptions& options);

}  // namespace muster::data
