// Rows on disk, in a RocksDB database (cold_rows.h).
//
// A library of its own: only muster-server and its tests load RocksDB.
//
// - There is no write-ahead log: a server that comes back begins empty.
// - Every block has a checksum, which every read checks.
// - Bloom filters of 10 bits for each key, and the index of blocks, are in memory, outside of the
//   limit below: some 2 bytes for each row (ColdUse::memory has them).
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "muster/base/result.h"
#include "muster/ps/cold_rows.h"

namespace muster::ps {

struct RocksOptions {
  std::string parent;  // tables.disk
  std::string name;    // of the directory in it, which is gone with the database
  size_t memory = 0;   // bytes: for rows that are not written yet, and a cache of blocks
};

Result<std::unique_ptr<ColdRows>> open_rocks(const RocksOptions& options);

}  // namespace muster::ps
