// Data that is streamed: an index, a format, and the store that the objects are in.
//
// Blocks are fetched while they are used (block_cache.h), so the data may be far larger than the
// memory. Samples are not checked before they are read: read_all() may wait, and may fail.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "muster/base/file_system.h"
#include "muster/base/result.h"
#include "muster/data/blocks/block_cache.h"
#include "muster/data/blocks/block_format.h"
#include "muster/data/blocks/block_index.h"
#include "muster/data/blocks/disk_cache.h"
#include "muster/data/dataset.h"
#include "muster/data/schema.h"
#include "muster/store/store.h"

namespace muster::data {

// How data is streamed. None of this changes a batch.
struct StreamOptions {
  FetchOptions fetch;
  std::string cache;  // directory for blocks on disk; empty: none
  uint64_t cache_bytes = DiskCache::kUnlimited;
};

class BlockDataset final : public Dataset {
 public:
  // Reads the first block, to learn the schema from it. Errors: kJob and kData of the format; kData
  // for an index without samples; kIo if the block cannot be read. `fs` is where the cache is; it
  // must outlive the data set.
  static Result<std::unique_ptr<BlockDataset>> open(std::shared_ptr<const BlockIndex> index,
                                                    std::unique_ptr<BlockFormat> format,
                                                    std::shared_ptr<store::Store> store,
                                                    const StreamOptions& options, FileSystem& fs,
                                                    const KeepWaiting& keep_waiting = {});

  const Schema& schema() const override { return schema_; }
  uint64_t size() const override { return index_->samples(); }
  void read(uint64_t index, std::byte* input, std::byte* target) const override;
  // Block by block: each is looked up and decoded once, however many of the samples are in it.
  Status read_all(std::span<const uint64_t> samples, std::byte* inputs, std::byte* targets,
                  const KeepWaiting& keep_waiting) const override;
  Status read_or_find_damage(std::span<const uint64_t> samples, std::byte* inputs,
                             std::byte* targets, const KeepWaiting& keep_waiting,
                             std::optional<Damage>& damage) const override;
  Fetcher* fetcher() const override { return cache_.get(); }
  std::optional<FetchReport> fetched() const override;

  std::shared_ptr<const BlockIndex> blocks() const override { return index_; }

  const std::shared_ptr<const BlockIndex>& index() const { return index_; }
  BlockCache& cache() const { return *cache_; }
  const DiskCache* disk() const { return disk_.get(); }  // null: none

 protected:
  void add_contents(Hasher& hasher) const override;

 private:
  BlockDataset(std::shared_ptr<const BlockIndex> index, std::unique_ptr<BlockFormat> format,
               std::shared_ptr<store::Store> store, std::unique_ptr<DiskCache> disk,
               const FetchOptions& options);

  const std::shared_ptr<const BlockIndex> index_;
  const std::unique_ptr<BlockFormat> format_;
  const std::shared_ptr<store::Store> store_;
  const std::unique_ptr<DiskCache> disk_;
  const std::unique_ptr<BlockCache> cache_;
  Schema schema_;
};

}  // namespace muster::data
