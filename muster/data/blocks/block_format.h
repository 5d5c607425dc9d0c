// A format of data that is read by blocks: how objects are cut into blocks, and blocks decoded into
// samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/hash.h"
#include "muster/base/result.h"
#include "muster/config/job.h"
#include "muster/data/blocks/block_index.h"
#include "muster/data/schema.h"

namespace muster::data {

// One object while it is indexed: ranges of it, from any place. `name` is for errors:
// without a signature that its address may have (store::printable).
struct ObjectReader {
  std::string name;
  uint64_t size = 0;
  std::function<Status(uint64_t offset, std::span<std::byte> into)> read;
};

// A block's place in its object.
struct Extent {
  uint64_t offset = 0;
  uint64_t length = 0;
  uint32_t count = 0;
  bool operator==(const Extent&) const = default;
};

// The samples of one block. Immutable; safe for concurrent use.
class DecodedBlock {
 public:
  virtual ~DecodedBlock() = default;
  // Writes sample `i` of the block, as Dataset::read does. Errors (kData): the sample is damaged,
  // or does not fit the schema; they name the place within the block, the caller puts the object's
  // name in front.
  virtual Status read(uint32_t i, std::byte* input, std::byte* target) const = 0;
  // Memory that it holds besides the bytes it was decoded from.
  virtual uint64_t memory() const { return 0; }
  // Whether it refers to the bytes it was decoded from. If not, they are released.
  virtual bool needs_bytes() const { return true; }
};

// Pure: what it gives follows from the options it was made with and from its arguments. Safe for
// concurrent use, set_about() apart.
class BlockFormat {
 public:
  virtual ~BlockFormat() = default;
  // Cuts an object into blocks of about `block_bytes` (at least one sample each), from its first
  // byte of samples to its last.
  virtual Result<std::vector<Extent>> cut(const ObjectReader& object,
                                          uint64_t block_bytes) const = 0;
  // What blocks do not say and decode() must know: names of columns, the layout of records. It must
  // be the same for all objects of a data set, and is kept in BlockIndex::about. Most formats have
  // nothing to say.
  virtual Result<std::string> about(const ObjectReader& object) const;
  // The same for what differs between blocks: a note on each, in the order of cut(). decode() and
  // schema_of() find it in front of the block's bytes. Kept in BlockIndex::notes. Empty, as of most
  // formats: their blocks say all that is needed.
  virtual Result<std::vector<std::string>> notes(const ObjectReader& object) const;
  // Whether files are written in blocks that cut() can only take as they are.
  virtual bool has_own_blocks() const { return false; }
  // Tells what about() gave. Called once, before schema_of() and decode(). Errors (kData): the text
  // is not from about().
  virtual Status set_about(std::string_view about);
  // The schema, from the options and the first block of the data.
  virtual Result<Schema> schema_of(std::span<const std::byte> block, uint32_t count) const = 0;
  // May keep pointers to `bytes`: if the result needs_bytes(), the caller keeps them as long as it.
  virtual Result<std::unique_ptr<DecodedBlock>> decode(std::span<const std::byte> bytes,
                                                       uint32_t count,
                                                       const Schema& schema) const = 0;
  // Adds the options that decode() reads by: what samples follow from besides blocks, about() and
  // schema. It is part of the data's hash.
  virtual void add_to(const Schema& schema, Hasher& hasher) const = 0;
};

inline Result<std::string> BlockFormat::about(const ObjectReader& /*object*/) const {
  return std::string();
}
inline Result<std::vector<std::string>> BlockFormat::notes(const ObjectReader& /*object*/) const {
  return std::vector<std::string>();
}
inline Status BlockFormat::set_about(std::string_view /*about*/) { return {}; }

using BlockFormatFactory =
    std::function<Result<std::unique_ptr<BlockFormat>>(const config::SourceOptions&)>;

}  // namespace muster::data
