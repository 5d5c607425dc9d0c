// Data sets and how they are opened.
//
// A data set is a list of samples with one schema. Data that fits in memory is checked completely
// when it is opened (the files are whole, labels lie in range, numbers are numbers), so that
// reading a sample cannot fail. Data that does not is streamed (blocks/block_dataset.h): reading
// may wait and may fail. Formats live in a Registry that the program passes in; a program adds its
// own beside the built-in ones (docs/extend.md shows how).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "muster/base/hash.h"
#include "muster/base/result.h"
#include "muster/config/job.h"
#include "muster/data/schema.h"

namespace muster::data {

class BlockFormat;
struct BlockIndex;
struct BlockSetup;
class Fetcher;

// Called now and then by a reader that waits for data; false ends the wait, with an error of kind
// kInterrupted. Empty: it waits as long as it takes.
using KeepWaiting = std::function<bool()>;

// What was fetched of streamed data since it was opened.
struct FetchReport {
  uint64_t blocks = 0;        // from the store
  uint64_t bytes = 0;         // of these
  uint64_t from_disk = 0;     // blocks that the cache on disk had
  uint64_t waited = 0;        // blocks that a reader had to wait for
  std::string cache_problem;  // why the cache on disk keeps nothing more; else empty
};

// A block of streamed data that cannot be used: its bytes do not have the hash that the index has
// for them, or they cannot be decoded. A store that is away and an object that was changed are not
// damage.
struct Damage {
  uint64_t block = 0;  // of Dataset::blocks()
  std::string what;    // names block, object and place in it
};

// Immutable once opened; safe for concurrent use.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const Schema& schema() const = 0;
  // At least 1, at most 2^40.
  virtual uint64_t size() const = 0;
  // Writes sample `index` (below size()) to the given places: schema().input_bytes() and
  // target_bytes() long, aligned for their types. Cannot fail: a data set that is streamed ends the
  // program where read_all() returns an error.
  virtual void read(uint64_t index, std::byte* input, std::byte* target) const = 0;
  // Writes these samples one after the other. Data in memory reads them one by one. Data that is
  // streamed may have to wait, and fails (kData, kIo) with an error that names the object.
  virtual Status read_all(std::span<const uint64_t> samples, std::byte* inputs, std::byte* targets,
                          const KeepWaiting& keep_waiting) const;
  // The same; if it fails because a block is damaged, `damage` says which one: of several the
  // first, in the order of the data. Data without blocks never does.
  virtual Status read_or_find_damage(std::span<const uint64_t> samples, std::byte* inputs,
                                     std::byte* targets, const KeepWaiting& keep_waiting,
                                     std::optional<Damage>& damage) const;
  // What fetches data that is streamed; null for data in memory.
  virtual Fetcher* fetcher() const { return nullptr; }
  // Nothing for data in memory.
  virtual std::optional<FetchReport> fetched() const { return std::nullopt; }
  // The index of data that is read by blocks; null for other data.
  virtual std::shared_ptr<const BlockIndex> blocks() const { return nullptr; }
  // Equal for data sets whose samples are equal and come from the same format, wherever their files
  // are and however these are compressed: a hash of schema, size and contents. Of data that is read
  // by blocks only if it is divided into the same blocks too: not if the same samples are in other
  // files, or are compressed, or data.block differs.
  // Ends the program where try_hash() gives an error.
  Hash128 hash() const;
  // Data that is read where it is may have to be read for it, which fails with an error that names
  // the file.
  Result<Hash128> try_hash() const;

 protected:
  // Adds everything that the samples follow from, and nothing else. By default that is all samples,
  // as read() gives them. A format that stores them in a smaller form adds that form instead: it is
  // hashed whenever a worker starts. Data that is streamed adds its index.
  virtual void add_contents(Hasher& hasher) const;
  // What try_hash() calls. A format overrides it instead if reading its contents may fail.
  virtual Status try_add_contents(Hasher& hasher) const;
};

using DatasetFactory =
    std::function<Result<std::unique_ptr<Dataset>>(const config::SourceOptions&)>;

// BlockFormatFactory of blocks/block_format.h.
using BlockFactory =
    std::function<Result<std::unique_ptr<BlockFormat>>(const config::SourceOptions&)>;

// Formats by name. Not safe for concurrent use while formats are added; open() is.
class Registry {
 public:
  // Those of config/source.h.
  static Registry builtin();

  // The name must be new. It may be one that is read by blocks too.
  void add(std::string format, DatasetFactory factory);
  // A format that is read by blocks. The name must be new, or that of a format of whole files:
  // config::is_read_by_blocks then says which one is meant.
  void add_blocks(std::string format, BlockFactory factory);
  std::vector<std::string> formats() const;
  // Errors: kJob for options that make no sense, kData for wrong contents, kIo when a file cannot
  // be read. They name the file; the caller puts in front which source it was (data.train, ...).
  // `setup`: for data that is read by blocks (blocks/open_blocks.h); without it, an index is made
  // and not saved.
  Result<std::unique_ptr<Dataset>> open(const config::SourceOptions& options) const;
  Result<std::unique_ptr<Dataset>> open(const config::SourceOptions& options,
                                        const BlockSetup& setup) const;
  // The format of data that is read by blocks; null if it is not, or has no such format. Errors: of
  // its options.
  Result<std::unique_ptr<BlockFormat>> block_format(const config::SourceOptions& options) const;

 private:
  std::map<std::string, DatasetFactory> factories_;
  std::map<std::string, BlockFactory> block_factories_;
};

// Whether a model for `train` can be evaluated on `test`: the same shapes, types and vocabulary,
// and no class that was not trained. The error says what differs.
Status check_compatible(const Schema& train, const Schema& test);

}  // namespace muster::data
