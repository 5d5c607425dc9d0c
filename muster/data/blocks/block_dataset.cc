#include "muster/data/blocks/block_dataset.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "muster/base/check.h"

namespace muster::data {

BlockDataset::BlockDataset(std::shared_ptr<const BlockIndex> index,
                           std::unique_ptr<BlockFormat> format, std::shared_ptr<store::Store> store,
                           std::unique_ptr<DiskCache> disk, const FetchOptions& options)
    : index_(std::move(index)),
      format_(std::move(format)),
      store_(std::move(store)),
      disk_(std::move(disk)),
      cache_(std::make_unique<BlockCache>(*index_, *store_, disk_.get(), options)) {}

Result<std::unique_ptr<BlockDataset>> BlockDataset::open(std::shared_ptr<const BlockIndex> index,
                                                         std::unique_ptr<BlockFormat> format,
                                                         std::shared_ptr<store::Store> store,
                                                         const StreamOptions& options,
                                                         FileSystem& fs,
                                                         const KeepWaiting& keep_waiting) {
  if (index->blocks.empty()) return Error(ErrorKind::kData, "the data has no samples");
  std::unique_ptr<DiskCache> disk;
  if (!options.cache.empty()) {
    disk = DiskCache::open(fs, options.cache, options.cache_bytes);
  }
  std::unique_ptr<BlockDataset> data(new BlockDataset(
      std::move(index), std::move(format), std::move(store), std::move(disk), options.fetch));
  BlockCache::Reading reading(*data->cache_, {0});
  MUSTER_TRY(const auto first, reading.get(0, keep_waiting));
  const uint32_t count = data->index_->blocks[0].count;
  auto schema = data->format_->schema_of(first->bytes()->span(), count);
  if (!schema.ok()) return std::move(schema).error().context("{}", data->index_->describe(0));
  data->schema_ = *std::move(schema);
  // So that the cache knows what decoding takes before it fetches ahead. An error is for those who
  // read samples of the block.
  const auto& decoded = first->decoded(*data->format_, count, data->schema_);
  if (decoded.ok() && first->is_new()) reading.note_decoded(0, **decoded);
  return data;
}

void BlockDataset::read(uint64_t index, std::byte* input, std::byte* target) const {
  const auto status = read_all({&index, 1}, input, target, {});
  MUSTER_CHECK(status.ok(), status.error().message());
}

Status BlockDataset::read_all(std::span<const uint64_t> samples, std::byte* inputs,
                              std::byte* targets, const KeepWaiting& keep_waiting) const {
  std::optional<Damage> damage;
  return read_or_find_damage(samples, inputs, targets, keep_waiting, damage);
}

Status BlockDataset::read_or_find_damage(std::span<const uint64_t> samples, std::byte* inputs,
                                         std::byte* targets, const KeepWaiting& keep_waiting,
                                         std::optional<Damage>& damage) const {
  damage.reset();
  // (block, place in the batch), by block.
  std::vector<std::pair<uint32_t, uint32_t>> wanted(samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    wanted[i] = {static_cast<uint32_t>(index_->block_of(samples[i])), static_cast<uint32_t>(i)};
  }
  std::ranges::sort(wanted);
  std::vector<uint32_t> blocks;
  for (const auto& [block, place] : wanted) {
    if (blocks.empty() || blocks.back() != block) blocks.push_back(block);
  }

  BlockCache::Reading reading(*cache_, blocks);
  const size_t input_bytes = schema_.input_bytes();
  const size_t target_bytes = schema_.target_bytes();
  auto next = wanted.begin();
  const auto failed = [&](uint32_t block, bool damaged, Error error) {
    if (damaged) damage = Damage{.block = block, .what = error.message()};
    return error;
  };
  for (size_t b = 0; b < blocks.size(); ++b) {
    const Block& block = index_->blocks[blocks[b]];
    auto got = reading.get(b, keep_waiting);
    if (!got.ok()) return failed(blocks[b], reading.is_damaged(b), std::move(got).error());
    const auto loaded = *std::move(got);
    const auto& decoded = loaded->decoded(*format_, block.count, schema_);
    if (!decoded.ok()) {
      return failed(blocks[b], decoded.error().kind() == ErrorKind::kData,
                    Error(decoded.error()).context("{}", index_->describe(blocks[b])));
    }
    if (loaded->is_new()) reading.note_decoded(b, **decoded);
    for (; next != wanted.end() && next->first == blocks[b]; ++next) {
      const size_t place = next->second;
      const auto i = static_cast<uint32_t>(samples[place] - block.first);
      auto status =
          (*decoded)->read(i, inputs + place * input_bytes, targets + place * target_bytes);
      if (!status.ok()) {
        const bool damaged = status.error().kind() == ErrorKind::kData;
        return failed(blocks[b], damaged,
                      std::move(status).error().context("sample {}, {} of {}", samples[place], i,
                                                        index_->describe(blocks[b])));
      }
    }
  }
  return {};
}

std::optional<FetchReport> BlockDataset::fetched() const {
  const auto counters = cache_->counters();
  FetchReport report;
  report.blocks = counters.fetched;
  report.bytes = counters.fetched_bytes;
  report.from_disk = counters.from_disk;
  report.waited = counters.waited;
  if (disk_ != nullptr) report.cache_problem = disk_->problem();
  return report;
}

void BlockDataset::add_contents(Hasher& hasher) const {
  const Hash128 hash = index_->hash();
  hasher.add(&hash.high, sizeof(hash.high));
  hasher.add(&hash.low, sizeof(hash.low));
  format_->add_to(schema_, hasher);
}

}  // namespace muster::data
