// Opens data that is read by blocks, as a job names it: lists its objects, finds or makes their
// index, and makes a BlockDataset of it.
//
// An index that was made is saved in a directory that all workers of a job share (in its run
// directory, unless the job says otherwise), so that the others, those that start later, and a
// resumed run take the same one. One process at a time makes an index there; the others wait for
// it. Where files cannot be locked, or the directory cannot be written to, each makes its own,
// which is the same.
//
// Versions. The objects of a saved index are those that were listed then: one that was changed
// since is an error when it is read. Local files are listed again, because each machine may have a
// copy with times of its own: if names and sizes are the same, the hashes of blocks tell whether
// the contents are; if not, another index is made and saved beside it, and the job's fingerprint
// tells. A saved index is never replaced, except by BlockSetup::index_again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "muster/base/file_system.h"
#include "muster/base/result.h"
#include "muster/config/job.h"
#include "muster/data/blocks/block_dataset.h"
#include "muster/data/blocks/block_format.h"
#include "muster/data/blocks/block_index.h"
#include "muster/data/dataset.h"
#include "muster/store/store.h"

namespace muster::data {

// What opening needs besides the options of the source.
struct BlockSetup {
  std::shared_ptr<store::Store> store;  // null: one for all addresses, which waits for servers
  // Where indexes and the cache are. Null: the disk, if neither is named; else it must outlive the
  // data set.
  FileSystem* files = nullptr;
  std::string indexes;       // directory; empty: an index is not saved
  bool index_again = false;  // even if there is one, in its place
  uint64_t block = uint64_t{4} << 20;
  // Of files that are written in blocks, longer ones are refused (BlockFormat::has_own_blocks).
  // 0: none are.
  uint64_t longest_block = 0;
  StreamOptions stream;
  // Called about every 100 ms while it lists, indexes or waits; false ends it.
  KeepWaiting keep_waiting = {};  // NOLINT(readability-redundant-member-init)
  // What takes long, about once a second: "indexing 's3://...': 3 of 12 files, 1.2 GB of 5 GB".
  // NOLINTNEXTLINE(readability-redundant-member-init): GCC warns who leaves it out
  std::function<void(const std::string& what)> tell = {};
};

// As the job has it: block size, window, memory, requests, cache; and data.index if it is set.
BlockSetup setup_of(const config::DataOptions& options);

// A store for all addresses that tries again until a server answers (store/retry.h).
std::shared_ptr<store::Store> open_patient_store();

// The name of the file with the index of this source: of what the index follows from. Options that
// only decode samples, such as the size of images, do not change it; nor does signing a URL again.
// If there is one of other files, the index has a longer name.
std::string index_name(const config::SourceOptions& options, uint64_t block);

// An index, and the file that it was saved in; empty: it was not to be saved.
struct FoundIndex {
  BlockIndex index;
  std::string path;
};

// The index that is saved for this source, or a new one, which is saved. kData: a block is longer
// than setup.longest_block; of a file that must be indexed, before its blocks are read.
Result<FoundIndex> find_index(const config::SourceOptions& options, const BlockFormat& format,
                              store::Store& store, const BlockSetup& setup);

Result<std::unique_ptr<Dataset>> open_blocks(const config::SourceOptions& options,
                                             std::unique_ptr<BlockFormat> format,
                                             const BlockSetup& setup);

}  // namespace muster::data
