#include "muster/ps/table_data.h"

#include <cmath>
#include <cstring>

#include "muster/ps/bytes.h"

namespace muster::ps {
namespace {

struct SavedRow {
  uint64_t key;
  uint32_t used;
  uint32_t sights;
};

uint64_t key_at(std::string_view push, size_t i) {
  uint64_t key = 0;
  std::memcpy(&key, push.data() + sizeof(PushHeader) + i * sizeof(key), sizeof(key));
  return key;
}

Error damaged() { return Error(ErrorKind::kIo, "the saved rows of a shard are damaged"); }

}  // namespace

std::string push_bytes(uint32_t table, int64_t step, double lr, std::span<const uint64_t> keys,
                       std::span<const float> gradients) {
  std::string push;
  push.reserve(sizeof(PushHeader) + keys.size_bytes() + gradients.size_bytes());
  append(push, PushHeader{table, static_cast<uint32_t>(keys.size()), step, lr});
  push.append(reinterpret_cast<const char*>(keys.data()), keys.size_bytes());
  push.append(reinterpret_cast<const char*>(gradients.data()), gradients.size_bytes());
  return push;
}

TableData::TableData(ShardNumber shard, ShardNumber shards, std::span<const TableOptions> tables,
                     Slabs& slabs)
    : shard_(shard), shards_(shards) {
  tables_.reserve(tables.size());
  for (const auto& options : tables) tables_.emplace_back(options, slabs);
}

Status TableData::check_header(std::string_view push, PushHeader& header) const {
  const auto wrong = [](std::string_view what) {
    return Error(ErrorKind::kIo, "a push is malformed: {}", what);
  };
  std::string_view rest = push;
  if (!take(rest, header)) return wrong("it is shorter than its header");
  if (header.table >= tables_.size()) return wrong("there is no such table");
  const size_t width = tables_[header.table].options().width;
  if (rest.size() != header.count * (sizeof(uint64_t) + width * sizeof(float))) {
    return wrong("its length is not that of its rows");
  }
  if (header.step < 0 || header.step >= int64_t{1} << 32) return wrong("its step");
  if (!std::isfinite(header.lr)) return wrong("its learning rate");
  return {};
}

Status TableData::check(std::string_view push) const {
  PushHeader header;
  MUSTER_RETURN_IF_ERROR(check_header(push, header));
  for (size_t i = 0; i < header.count; ++i) {
    const uint64_t key = key_at(push, i);
    if (i > 0 && key <= key_at(push, i - 1)) {
      return Error(ErrorKind::kIo, "a push is malformed: its keys do not ascend");
    }
    if (shard_of(key, shards_) != shard_) {
      return Error(ErrorKind::kIo, "a push is malformed: key {} is not of shard {}", key, shard_);
    }
  }
  return {};
}

Result<TableData::Parsed> TableData::parse(std::string_view push) {
  Parsed parsed;
  MUSTER_RETURN_IF_ERROR(check_header(push, parsed.header));
  const size_t count = parsed.header.count;
  const char* const keys = push.data() + sizeof(PushHeader);
  const char* const gradients = keys + count * sizeof(uint64_t);
  // The header has 24 bytes, so this is so if the whole lies well.
  if (reinterpret_cast<uintptr_t>(push.data()) % alignof(uint64_t) == 0) {
    parsed.keys = {reinterpret_cast<const uint64_t*>(keys), count};
    parsed.gradients = reinterpret_cast<const float*>(gradients);
    return parsed;
  }
  keys_.resize(count);
  gradients_.resize(count * tables_[parsed.header.table].options().width);
  std::memcpy(keys_.data(), keys, count * sizeof(uint64_t));
  std::memcpy(gradients_.data(), gradients, gradients_.size() * sizeof(float));
  parsed.keys = keys_;
  parsed.gradients = gradients_.data();
  return parsed;
}

Status TableData::apply(std::string_view push) {
  MUSTER_TRY(const auto parsed, parse(push));
  return tables_[parsed.header.table].update(parsed.keys, parsed.gradients, parsed.header.step,
                                             parsed.header.lr);
}

void TableData::clear() {
  for (auto& table : tables_) table.clear();
}

Hash128 TableData::hash() {
  Hasher hasher;
  for (auto& table : tables_) {
    const Hash128 one = table.hash();
    hasher.add(&one, sizeof(one));
  }
  return hasher.finish();
}

// For each table: how many rows, candidates and tombstones; each row with its values, each
// candidate, each tombstone. Then the hash of it all, as it must be when it is loaded.
void TableData::save(std::string& to) {
  for (auto& table : tables_) {
    const auto& options = table.options();
    const size_t values = options.width + options.optimizer.state(options.width);
    append(to, uint64_t{table.rows()});
    append(to, uint64_t{table.candidates()});
    append(to, uint64_t{table.tombstones().size()});
    table.for_each_row([&](const Row& row) {
      append(to, SavedRow{row.key, row.used, row.sights});
      to.append(reinterpret_cast<const char*>(row.values()), values * sizeof(float));
    });
    table.for_each_candidate(
        [&](const Row& row) { append(to, SavedRow{row.key, row.used, row.sights}); });
    for (const auto& tombstone : table.tombstones()) {
      append(to, SavedRow{tombstone.key, tombstone.step, 0});
    }
  }
  append(to, hash());
}

Status TableData::load_table(TableShard& table, std::string_view& from) {
  const auto& options = table.options();
  uint64_t rows = 0;
  uint64_t candidates = 0;
  uint64_t tombstones = 0;
  if (!take(from, rows) || !take(from, candidates) || !take(from, tombstones)) return damaged();
  values_.resize(options.width + options.optimizer.state(options.width));
  const size_t bytes = values_.size() * sizeof(float);
  const auto can_be = [&](const SavedRow& row) {
    return row.sights <= UINT16_MAX && shard_of(row.key, shards_) == shard_;
  };
  SavedRow saved{};
  for (uint64_t i = 0; i < rows; ++i) {
    if (!take(from, saved) || from.size() < bytes || !can_be(saved)) return damaged();
    std::memcpy(values_.data(), from.data(), bytes);
    from.remove_prefix(bytes);
    MUSTER_RETURN_IF_ERROR(
        table.put(saved.key, saved.used, static_cast<uint16_t>(saved.sights), values_));
  }
  for (uint64_t i = 0; i < candidates; ++i) {
    if (!take(from, saved) || !can_be(saved)) return damaged();
    MUSTER_RETURN_IF_ERROR(
        table.put(saved.key, saved.used, static_cast<uint16_t>(saved.sights), {}));
  }
  for (uint64_t i = 0; i < tombstones; ++i) {
    if (!take(from, saved)) return damaged();
    table.put(Tombstone{saved.key, saved.used});
  }
  return {};
}

Status TableData::load(std::string_view from) {
  clear();
  const auto load_all = [&]() -> Status {
    for (auto& table : tables_) MUSTER_RETURN_IF_ERROR(load_table(table, from));
    Hash128 saved;
    if (!take(from, saved) || !from.empty() || saved != hash()) return damaged();
    return {};
  };
  auto loaded = load_all();
  if (!loaded.ok()) clear();
  return loaded;
}

}  // namespace muster::ps
