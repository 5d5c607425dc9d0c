// Which bytes hold which samples: the index of data that is read by blocks.
//
// A block is the least that is read and decoded at once (a row group, a run of records, a range of
// lines). The index is made once, and is the same for all workers; its hash is part of the job's
// identity.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/hash.h"
#include "muster/base/result.h"
#include "muster/store/store.h"

namespace muster::data {

struct Block {
  uint32_t object = 0;   // place in BlockIndex::objects
  uint64_t offset = 0;   // of its bytes in the object
  uint64_t length = 0;
  uint64_t first = 0;    // sample of the data set
  uint32_t count = 0;    // samples, at least 1
  Hash128 hash;          // of its bytes; all zero: not known yet
  bool operator==(const Block&) const = default;
};

struct BlockIndex {
  std::string format;
  std::vector<store::Object> objects;
  std::vector<Block> blocks;  // by first sample, without gaps
  std::string about;          // what the decoder needs to know besides (columns, classes), its own

  uint64_t samples() const { return blocks.empty() ? 0 : blocks.back().first + blocks.back().count; }
  // The block that holds this sample, which is below samples().
  size_t block_of(uint64_t sample) const;
  // Of what the samples follow from: not of the names and versions of objects.
  Hash128 hash() const;
  bool operator==(const BlockIndex&) const = default;
};

std::string save_index(const BlockIndex& index);
// Errors (kData): not an index, damaged, of a newer version.
Result<BlockIndex> load_index(std::string_view bytes);

}  // namespace muster::data
