// What is known of an index that is being made, in a file: so that indexing thousands of objects,
// or a few large ones, continues where it was interrupted or killed.
//
// The file is a list of indexes of one object each (block_index.h), behind their lengths; each has
// its own hash. An object counts as known if it has the name, the size and the version that the
// list gives now; objects without a version are never in the file. A file that ends in the middle
// of an entry, or is damaged, is used up to there. It may be deleted at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "muster/base/file_system.h"
#include "muster/data/blocks/block_format.h"
#include "muster/data/blocks/block_index.h"
#include "muster/store/store.h"

namespace muster::data {

// What the index needs to know of one object.
struct ObjectPart {
  std::vector<Extent> extents;
  std::vector<Hash128> hashes;  // of each
  std::string about;
  std::vector<std::string> notes;  // of each, or of none
};

// Only one process at a time may have the file open: the caller's lock ensures it. Safe for
// concurrent use within the process.
class PartialIndex {
 public:
  // Reads what is there; a file that cannot be read or written to counts as empty. `format` is the
  // name of the format; `files` must outlive this.
  PartialIndex(FileSystem& files, std::string path, std::string format);

  // What is known of this object; null: nothing.
  std::shared_ptr<const ObjectPart> find(const store::Object& object) const;
  // Writes to the file, without a sync: what a crash of the machine damages is indexed again. After
  // an error nothing more is written.
  void add(const store::Object& object, const ObjectPart& part);
  // Deletes the file: the index is complete.
  void remove();

 private:
  struct Known {
    uint64_t size = 0;
    std::string version;
    std::shared_ptr<const ObjectPart> part;
  };

  // Returns how many bytes of the file are whole entries.
  size_t load(std::string_view bytes);

  FileSystem& files_;
  const std::string path_;
  const std::string format_;
  std::unordered_map<std::string, Known> known_;  // by printable name; constant after construction
  std::mutex mutex_;
  std::unique_ptr<WritableFile> file_;  // guarded by mutex_; null: not written to
};

}  // namespace muster::data
