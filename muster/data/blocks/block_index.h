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
  uint32_t object = 0;  // place in BlockIndex::objects
  uint64_t offset = 0;  // of its bytes in the object
  uint64_t length = 0;
  uint64_t first = 0;  // sample of the data set
  uint32_t count = 0;  // samples, at least 1
  Hash128 hash;        // of its bytes; all zero: not known yet
  bool operator==(const Block&) const = default;
};

struct BlockIndex {
  std::string format;
  std::vector<store::Object> objects;
  std::vector<Block> blocks;  // by first sample, without gaps; at most 2^32 - 1
  std::string about;          // what the decoder needs to know besides (columns, classes), its own
  std::vector<std::string> notes;  // the same for each block; empty: blocks have none

  uint64_t samples() const {
    return blocks.empty() ? 0 : blocks.back().first + blocks.back().count;
  }
  uint64_t bytes() const;  // of all blocks
  // The note on this block; empty: it has none.
  std::string_view note(size_t block) const {
    return notes.empty() ? std::string_view() : std::string_view(notes[block]);
  }
  // The block that holds this sample, which is below samples(). Quick where blocks have about as
  // many samples as each other.
  size_t block_of(uint64_t sample) const;
  // Of what the samples follow from: not of the names and versions of objects, nor of the places of
  // blocks in them. A block whose hash is not known adds its place instead, which says little: make
  // the hashes known where equal data must be told from other data.
  Hash128 hash() const;
  // "block 12 ('s3://bucket/a.tar', bytes 4,096 to 8,191)", for errors.
  std::string describe(size_t block) const;
  bool operator==(const BlockIndex&) const = default;
};

// The bytes of a file that holds the index. The same index gives the same bytes.
std::string save_index(const BlockIndex& index);
// Errors (kData): not an index, damaged, of a newer version.
Result<BlockIndex> load_index(std::string_view bytes);

}  // namespace muster::data
