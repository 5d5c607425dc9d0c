// A zip file whose entries are stored, not compressed: the container of a .pt2.
//
// What is read is checked: each entry lies within the file and overlaps no other, its local header
// agrees with the central directory, and its CRC-32 is that of its bytes. Compressed and encrypted
// entries are refused. Zip64 is understood.
//
// Pure, but for write_zip, which appends to a file.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "muster/base/file_system.h"
#include "muster/base/result.h"

namespace muster::pt2 {

struct ZipEntry {
  std::string name;
  std::span<const std::byte> data;  // of the bytes that were read, which must outlive this
};

// In the order of the central directory. Errors (kJob) call the file `name`.
Result<std::vector<ZipEntry>> read_zip(std::span<const std::byte> file, const std::string& name);

// Writes the entries in their order, each aligned to 64 bytes as PyTorch's are. The bytes depend on
// the entries alone. Neither syncs nor closes.
Status write_zip(WritableFile& file, std::span<const ZipEntry> entries);

}  // namespace muster::pt2
