#include "muster/ps/cold/rocks_rows.h"

#include <rocksdb/cache.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>
#include <rocksdb/write_buffer_manager.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "muster/ps/cold_directory.h"

namespace muster::ps {
namespace {

// The key of a row in the database: table and kind, shard, key; big-endian, so that the rows of a
// shard are one after the other.
constexpr size_t kPrefixBytes = 8;
using KeyBytes = std::array<char, kPrefixBytes + sizeof(uint64_t)>;

template <typename T>
void store_big_endian(char* to, T value) {
  static_assert(std::endian::native == std::endian::little);
  for (size_t i = sizeof(T); i-- > 0; value = static_cast<T>(value >> 8)) {
    to[i] = static_cast<char>(value & 0xFF);
  }
}

KeyBytes key_bytes(ColdPart part, uint64_t key) {
  KeyBytes bytes{};
  store_big_endian(bytes.data(), part.table * 2 + (part.candidates ? 1 : 0));
  store_big_endian(bytes.data() + 4, part.shard);
  store_big_endian(bytes.data() + kPrefixBytes, key);
  return bytes;
}

uint64_t key_of(const rocksdb::Slice& bytes) {
  uint64_t key = 0;
  for (size_t i = kPrefixBytes; i < bytes.size(); ++i) {
    key = key << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return key;
}

rocksdb::Slice slice(const KeyBytes& bytes) { return {bytes.data(), bytes.size()}; }
rocksdb::Slice slice(std::string_view bytes) { return {bytes.data(), bytes.size()}; }

// Memory for rows that are not written yet is taken from the cache's.
// Those that the process may have, but for its connections.
int files_to_open() {
  constexpr rlim_t kOthers = 512;
  constexpr rlim_t kFewest = 64;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return static_cast<int>(kFewest);
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
  (void)::getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t most = std::min<rlim_t>(limit.rlim_cur, 1 << 20);
  return static_cast<int>(most > kOthers + kFewest ? most - kOthers : kFewest);
}

rocksdb::Options rocks_options(const std::shared_ptr<rocksdb::Cache>& cache) {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.error_if_exists = true;
  options.max_open_files = files_to_open();
  options.compression = rocksdb::kNoCompression;  // floats would not become smaller
  options.write_buffer_size = std::clamp<size_t>(cache->GetCapacity() / 8, 64 << 10, 64 << 20);
  options.max_write_buffer_number = 4;
  options.target_file_size_base = std::max<size_t>(options.write_buffer_size, 1 << 20);
  options.max_bytes_for_level_base = 4 * options.target_file_size_base;
  options.level_compaction_dynamic_level_bytes = true;
  options.max_background_jobs = 2;
  // A server that waits for the disk is taken for dead: rather more files for a while.
  options.level0_slowdown_writes_trigger = 64;
  options.level0_stop_writes_trigger = 256;
  options.soft_pending_compaction_bytes_limit = 0;
  options.hard_pending_compaction_bytes_limit = 0;
  options.avoid_flush_during_shutdown = true;
  options.memtable_prefix_bloom_size_ratio = 0.1;
  options.memtable_whole_key_filtering = true;
  options.write_buffer_manager =
      std::make_shared<rocksdb::WriteBufferManager>(cache->GetCapacity() / 2, cache);
  options.keep_log_file_num = 1;
  options.info_log_level = rocksdb::WARN_LEVEL;
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = cache;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  table.format_version = 5;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

class RocksRows final : public ColdRows {
 public:
  RocksRows(ColdDirectory directory, std::shared_ptr<rocksdb::Cache> cache,
            std::unique_ptr<rocksdb::DB> db)
      : directory_(std::move(directory)), cache_(std::move(cache)), db_(std::move(db)) {
    write_.disableWAL = true;
  }
  ~RocksRows() override {
    rocksdb::CancelAllBackgroundWork(db_.get(), false);
    db_.reset();
  }

  Status put(ColdPart part, std::span<const ColdRow> rows) override;
  Status find(ColdPart part, std::span<const uint64_t> keys, const Found& found) override;
  Status remove(ColdPart part, std::span<const uint64_t> keys) override;
  Status scan(ColdPart part, const Visit& visit) override;
  Status clear(ColdPart part) override;
  ColdUse use() const override;

 private:
  Status checked(const rocksdb::Status& status, std::string_view what) const;

  const ColdDirectory directory_;
  const std::shared_ptr<rocksdb::Cache> cache_;
  std::unique_ptr<rocksdb::DB> db_;
  rocksdb::WriteOptions write_;
};

Error disk_error(const std::string& path, std::string_view what, const rocksdb::Status& status) {
  return Error(ErrorKind::kIo,
               "rows on disk cannot be {} in '{}': {}; if the disk is full or damaged, set "
               "tables.disk to a directory on another one",
               what, path, status.ToString());
}

Status RocksRows::checked(const rocksdb::Status& status, std::string_view what) const {
  if (status.ok()) return {};
  return disk_error(directory_.path(), what, status);
}

Status RocksRows::put(ColdPart part, std::span<const ColdRow> rows) {
  rocksdb::WriteBatch batch;
  for (const auto& row : rows) {
    MUSTER_RETURN_IF_ERROR(
        checked(batch.Put(slice(key_bytes(part, row.key)), slice(row.bytes)), "written"));
  }
  return checked(db_->Write(write_, &batch), "written");
}

Status RocksRows::find(ColdPart part, std::span<const uint64_t> keys, const Found& found) {
  std::vector<KeyBytes> bytes(keys.size());
  std::vector<rocksdb::Slice> slices(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    bytes[i] = key_bytes(part, keys[i]);
    slices[i] = slice(bytes[i]);
  }
  std::vector<rocksdb::PinnableSlice> values(keys.size());
  std::vector<rocksdb::Status> statuses(keys.size());
  db_->MultiGet(rocksdb::ReadOptions(), db_->DefaultColumnFamily(), keys.size(), slices.data(),
                values.data(), statuses.data());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (statuses[i].IsNotFound()) continue;
    MUSTER_RETURN_IF_ERROR(checked(statuses[i], "read"));
    found(i, {values[i].data(), values[i].size()});
  }
  return {};
}

Status RocksRows::remove(ColdPart part, std::span<const uint64_t> keys) {
  rocksdb::WriteBatch batch;
  for (const uint64_t key : keys) {
    MUSTER_RETURN_IF_ERROR(checked(batch.Delete(slice(key_bytes(part, key))), "removed"));
  }
  return checked(db_->Write(write_, &batch), "removed");
}

Status RocksRows::scan(ColdPart part, const Visit& visit) {
  rocksdb::ReadOptions options;
  options.fill_cache = false;
  options.readahead_size = 1 << 20;
  const KeyBytes first = key_bytes(part, 0);
  const std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator(options));
  for (at->Seek(slice(first)); at->Valid(); at->Next()) {
    if (std::memcmp(at->key().data(), first.data(), kPrefixBytes) != 0) break;
    visit({key_of(at->key()), {at->value().data(), at->value().size()}});
  }
  return checked(at->status(), "read");
}

Status RocksRows::clear(ColdPart part) {
  // The largest key is a row's too: its range ends before it.
  const KeyBytes first = key_bytes(part, 0);
  const KeyBytes last = key_bytes(part, ~uint64_t{0});
  auto* const family = db_->DefaultColumnFamily();
  MUSTER_RETURN_IF_ERROR(
      checked(db_->DeleteRange(write_, family, slice(first), slice(last)), "removed"));
  return checked(db_->Delete(write_, slice(last)), "removed");
}

ColdUse RocksRows::use() const {
  ColdUse use;
  uint64_t readers = 0;
  db_->GetIntProperty(rocksdb::DB::Properties::kTotalSstFilesSize, &use.disk);
  db_->GetIntProperty(rocksdb::DB::Properties::kEstimateTableReadersMem, &readers);
  use.memory = readers + cache_->GetUsage();
  return use;
}

}  // namespace

Result<std::unique_ptr<ColdRows>> open_rocks(const RocksOptions& options) {
  MUSTER_TRY(auto directory, ColdDirectory::make(options.parent, options.name));
  auto cache = rocksdb::NewLRUCache(options.memory);
  rocksdb::DB* db = nullptr;
  const std::string path = directory.path() + "/db";
  if (const auto status = rocksdb::DB::Open(rocks_options(cache), path, &db); !status.ok()) {
    return disk_error(directory.path(), "kept", status);
  }
  return std::unique_ptr<ColdRows>(std::make_unique<RocksRows>(
      std::move(directory), std::move(cache), std::unique_ptr<rocksdb::DB>(db)));
}

}  // namespace muster::ps
