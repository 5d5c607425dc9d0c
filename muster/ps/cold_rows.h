// Rows on disk: what a server's tables use of a database (cold/rocks_rows.h is one).
//
// A row is a key and some bytes. Nothing here outlives its server: what is lost is with the other
// copy of a shard, and in checkpoints.
//
// find() may be called by several threads, also while one other thread calls any of the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "muster/base/result.h"

namespace muster::ps {

// Which rows: those of one shard of one table, or its candidates (table.h).
struct ColdPart {
  uint32_t table = 0;
  uint32_t shard = 0;
  bool candidates = false;
};

struct ColdRow {
  uint64_t key = 0;
  std::string_view bytes;
};

// Bytes that are in use.
struct ColdUse {
  uint64_t disk = 0;
  uint64_t memory = 0;  // buffers, cache, filters and indexes
};

class ColdRows {
 public:
  using Found = std::function<void(size_t place, std::string_view bytes)>;
  using Visit = std::function<void(const ColdRow& row)>;

  virtual ~ColdRows() = default;

  // In place of what is there with the same key. When it returns, the rows need not be kept.
  virtual Status put(ColdPart part, std::span<const ColdRow> rows) = 0;
  // found(place in `keys`, bytes), in ascending order of places, for those that are there.
  virtual Status find(ColdPart part, std::span<const uint64_t> keys, const Found& found) = 0;
  virtual Status remove(ColdPart part, std::span<const uint64_t> keys) = 0;
  // In any order. `visit` may change this; what it changes is not visited.
  virtual Status scan(ColdPart part, const Visit& visit) = 0;
  virtual Status clear(ColdPart part) = 0;

  virtual ColdUse use() const = 0;
};

}  // namespace muster::ps
