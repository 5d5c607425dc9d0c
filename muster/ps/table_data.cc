#include "muster/ps/table_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <utility>

#include "muster/base/float_mode.h"
#include "muster/ps/bytes.h"

namespace muster::ps {
namespace {

constexpr uint32_t kFormat = 1;       // of saved rows
constexpr size_t kBehindRows = 4096;  // bytes of what a shard has besides, if no step is under way

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

size_t gradients_at(size_t count) { return sizeof(PushHeader) + count * sizeof(uint64_t); }

// Without a branch for each, so that it is vectorised. Infinities and NaN have all bits of the
// exponent.
bool all_finite(std::string_view floats) {
  constexpr uint32_t kExponent = 0x7F800000;
  uint32_t found = 0;
  for (size_t at = 0; at < floats.size(); at += sizeof(uint32_t)) {
    uint32_t bits = 0;
    std::memcpy(&bits, floats.data() + at, sizeof(bits));
    found |= static_cast<uint32_t>((bits & kExponent) == kExponent);
  }
  return found == 0;
}

bool has_keys(PushKind kind) {
  return kind == PushKind::kUpdate || kind == PushKind::kAdd || kind == PushKind::kStage ||
         kind == PushKind::kStageRead;
}

bool has_body(PushKind kind) {
  return kind == PushKind::kLoad || kind == PushKind::kApply || kind == PushKind::kOrder;
}

bool take_placed(std::string_view from, PlacedPushes& pushes) {
  return take(from, pushes.first) && take(from, pushes.pushes) && take(from, pushes.oldest) &&
         take_all(from, pushes.placed) && from.empty();
}

bool can_be_applied(const PlacedPushes& pushes) {
  return pushes.first >= 0 && pushes.first < kMostNumber && pushes.pushes >= 1 &&
         std::ranges::all_of(
             pushes.placed,
             [&](const auto& placed) {
               const bool compensates = placed.compensation != 0;
               return std::isfinite(placed.weight) && std::isfinite(placed.compensation) &&
                      !(compensates && pushes.pushes > 1);
             });
}

Error damaged() { return Error(ErrorKind::kIo, "the saved rows of a shard are damaged"); }

}  // namespace

size_t floats_of(PushKind kind, size_t width) {
  return kind == PushKind::kStageRead ? 2 * width : width;
}

std::string push_bytes(PushHeader header, std::span<const uint64_t> keys,
                       std::span<const float> gradients) {
  std::string push;
  push.reserve(sizeof(PushHeader) + keys.size_bytes() + gradients.size_bytes());
  header.count = static_cast<uint32_t>(keys.size());
  append(push, header);
  push.append(reinterpret_cast<const char*>(keys.data()), keys.size_bytes());
  push.append(reinterpret_cast<const char*>(gradients.data()), gradients.size_bytes());
  return push;
}

Bytes push_bytes(PushHeader header, std::span<const uint64_t> keys,
                 std::span<const float> gradients, size_t floats,
                 std::span<const uint32_t> places) {
  header.count = static_cast<uint32_t>(places.size());
  const size_t row_bytes = floats * sizeof(float);
  const size_t bytes = sizeof(header) + places.size() * (sizeof(uint64_t) + row_bytes);
  return Bytes::filled<char>(bytes, [&](char* to) {
    std::memcpy(to, &header, sizeof(header));
    to += sizeof(header);
    for (const uint32_t place : places) {
      std::memcpy(to, &keys[place], sizeof(uint64_t));
      to += sizeof(uint64_t);
    }
    for (const uint32_t place : places) {
      std::memcpy(to, gradients.data() + place * floats, row_bytes);
      to += row_bytes;
    }
  });
}

std::string load_bytes(uint64_t era, std::string_view contents) {
  std::string push;
  append(push, PushHeader{.kind = PushKind::kLoad, .era = era});
  push.append(contents);
  return push;
}

std::string apply_bytes(uint64_t era, const PlacedPushes& pushes) {
  std::string push;
  append(push, PushHeader{.kind = PushKind::kApply, .era = era});
  append(push, pushes.first);
  append(push, pushes.pushes);
  append(push, pushes.oldest);
  append_all(push, pushes.placed);
  return push;
}

std::string order_push(uint64_t era, std::string_view operation) {
  std::string push;
  append(push, PushHeader{.kind = PushKind::kOrder, .era = era});
  push.append(operation);
  return push;
}

TableData::TableData(ShardNumber shard, ShardNumber shards, std::span<const TableOptions> tables,
                     Slabs& slabs, ColdTier* cold)
    : shard_(shard), shards_(shards), options_(tables) {
  tables_.reserve(tables.size());
  for (const auto& options : tables) {
    tables_.emplace_back(options, slabs, cold, shard);
    versions_ = std::max<size_t>(versions_, options.versions);
  }
}

bool TableData::knows(uint32_t table, int64_t version) const {
  if (version > clock_ || version < 0) return false;
  const auto back = static_cast<uint64_t>(clock_ - version);
  return back == 0 || (back <= options_[table].versions && back <= old_.updates());
}

void TableData::read(uint32_t table, std::span<const uint64_t> keys, int64_t version,
                     float* weights) {
  tables_[table].read(keys, weights);
  if (version == clock_) return;
  old_.read(table, keys, static_cast<size_t>(clock_ - version), options_[table].width, weights);
}

Status TableData::check_header(std::string_view push, PushHeader& header) const {
  const auto wrong = [](std::string_view what) {
    return Error(ErrorKind::kIo, "a push is malformed: {}", what);
  };
  std::string_view rest = push;
  if (!take(rest, header)) return wrong("it is shorter than its header");
  if (header.kind > PushKind::kStageRead) return wrong("it is of no kind that there is");
  if (!has_keys(header.kind) && header.count > 0) return wrong("it has keys");
  if (header.lane >= StepSums::kMostLanes) return wrong("there are too many lanes");
  if (header.table >= tables_.size()) return wrong("there is no such table");
  const size_t floats = floats_of(header.kind, tables_[header.table].options().width);
  if (has_body(header.kind)) return {};
  if (rest.size() != header.count * (sizeof(uint64_t) + floats * sizeof(float))) {
    return wrong("its length is not that of its rows");
  }
  if (header.step < 0 || header.step >= int64_t{1} << 32) return wrong("its step");
  if (!std::isfinite(header.lr)) return wrong("its learning rate");
  return {};
}

Status TableData::check(std::string_view push) const {
  PushHeader header;
  MUSTER_RETURN_IF_ERROR(check_header(push, header));
  if (header.kind == PushKind::kLoad) {
    const bool without_effect = header.era > 0 && header.era <= era_;
    return without_effect ? Status() : check_load(push.substr(sizeof(PushHeader)));
  }
  // A worker's load was answered before it adds anything.
  if (header.kind != PushKind::kUpdate && header.era > era_) {
    return Error(ErrorKind::kIo, "a push is malformed: it is of era {}, and the shard in {}",
                 header.era, era_);
  }
  if (header.kind == PushKind::kOrder) {
    if (shard_ != kOrderShard) {
      return Error(ErrorKind::kIo, "a push is malformed: shard {} has no order", shard_);
    }
    return order_.check(push.substr(sizeof(PushHeader)));
  }
  if (header.kind == PushKind::kApply) {
    PlacedPushes pushes;
    const bool sound =
        take_placed(push.substr(sizeof(PushHeader)), pushes) && can_be_applied(pushes);
    if (!sound) return Error(ErrorKind::kIo, "a push is malformed: its places");
    return {};
  }
  for (size_t i = 0; i < header.count; ++i) {
    const uint64_t key = key_at(push, i);
    if (i > 0 && key <= key_at(push, i - 1)) {
      return Error(ErrorKind::kIo, "a push is malformed: its keys do not ascend");
    }
    if (shard_of(key, shards_) != shard_) {
      return Error(ErrorKind::kIo, "a push is malformed: key {} is not of shard {}", key, shard_);
    }
  }
  if (!all_finite(push.substr(gradients_at(header.count)))) {
    return Error(ErrorKind::kIo, "a push is malformed: a gradient is not finite");
  }
  return {};
}

// By doing it aside: it is rare.
Status TableData::check_load(std::string_view contents) const {
  if (contents.empty()) return {};
  Slabs aside;
  return TableData(shard_, shards_, options_, aside).load(contents);
}

Result<TableData::Parsed> TableData::parse(std::string_view push) {
  Parsed parsed;
  MUSTER_RETURN_IF_ERROR(check_header(push, parsed.header));
  const size_t count = parsed.header.count;
  const char* const keys = push.data() + sizeof(PushHeader);
  const char* const gradients = push.data() + gradients_at(count);
  // The header has 40 bytes, so this is so if the whole lies well.
  if (reinterpret_cast<uintptr_t>(push.data()) % alignof(uint64_t) == 0) {
    parsed.keys = {reinterpret_cast<const uint64_t*>(keys), count};
    parsed.gradients = reinterpret_cast<const float*>(gradients);
    return parsed;
  }
  if (count == 0) return parsed;
  keys_.resize(count);
  const size_t width = tables_[parsed.header.table].options().width;
  gradients_.resize(count * floats_of(parsed.header.kind, width));
  std::memcpy(keys_.data(), keys, count * sizeof(uint64_t));
  std::memcpy(gradients_.data(), gradients, gradients_.size() * sizeof(float));
  parsed.keys = keys_;
  parsed.gradients = gradients_.data();
  return parsed;
}

Status TableData::apply(std::string_view push) {
  // Servers and workers must have the same bits.
  const FlushSubnormals flush;
  MUSTER_TRY(const auto parsed, parse(push));
  const PushHeader& header = parsed.header;
  if (header.kind == PushKind::kLoad) {
    return begin_era(header.era, push.substr(sizeof(PushHeader)));
  }
  if (header.kind != PushKind::kUpdate) {
    if (header.era < era_) return {};
    if (header.era > era_) {
      return Error(ErrorKind::kInternal, "a worker is in era {} before a shard, which is in {}",
                   header.era, era_);
    }
    const auto body = push.substr(sizeof(PushHeader));
    switch (header.kind) {
      case PushKind::kCommit:
        return commit(header.step);
      case PushKind::kApply:
        return apply_placed(body);
      case PushKind::kOrder:
        order_.apply(body);
        return {};
      case PushKind::kStage:
      case PushKind::kStageRead:
        stage(parsed);
        return {};
      default:
        add(parsed);
        return {};
    }
  }
  return tables_[parsed.header.table].update(parsed.keys, parsed.gradients, parsed.header.step,
                                             parsed.header.lr);
}

void TableData::fetch(std::string_view push, RowFetcher& fetcher) {
  const auto parsed = parse(push);
  if (!parsed.ok()) return;
  const PushKind kind = parsed->header.kind;
  if (kind != PushKind::kAdd && kind != PushKind::kStage && kind != PushKind::kStageRead) return;
  tables_[parsed->header.table].fetch(parsed->keys, true, fetcher);
}

// Era 0 is that of somebody who is alone.
Status TableData::begin_era(uint64_t era, std::string_view contents) {
  if (era > 0 && era <= era_) return {};
  clear();
  if (!contents.empty()) MUSTER_RETURN_IF_ERROR(load(contents));
  era_ = era;
  return {};
}

void TableData::stage(const Parsed& push) {
  const PushHeader& header = push.header;
  const size_t width = tables_[header.table].options().width;
  const size_t floats = floats_of(header.kind, width);
  StagedRows rows{.table = header.table,
                  .lr = header.lr,
                  .keys = {push.keys.begin(), push.keys.end()},
                  .gradients = {},
                  .read = {}};
  rows.gradients.reserve(rows.keys.size() * width);
  if (floats > width) rows.read.reserve(rows.keys.size() * width);
  for (size_t i = 0; i < rows.keys.size(); ++i) {
    const float* const row = push.gradients + i * floats;
    rows.gradients.insert(rows.gradients.end(), row, row + width);
    if (floats > width) rows.read.insert(rows.read.end(), row + width, row + floats);
  }
  staged_.stage(static_cast<uint64_t>(header.step), std::move(rows));
}

void TableData::add(const Parsed& push) {
  const PushHeader& header = push.header;
  if (header.step < clock_) return;  // it was there, or the step would not be committed
  auto& sums = sums_[header.step];
  if (sums.empty()) {
    for (const auto& table : tables_) sums.emplace_back(table.options().width);
  }
  sums[header.table].add(header.lane, header.lr, push.keys, push.gradients);
}

// Any other one was committed before, or is of somebody who does not know that all went back to an
// earlier step.
Status TableData::commit(int64_t step) {
  if (step != clock_) return {};
  if (const auto found = sums_.find(step); found != sums_.end()) {
    auto& sums = found->second;
    for (size_t i = 0; i < sums.size(); ++i) {
      if (sums[i].empty()) continue;
      sums[i].finish(keys_, gradients_);
      MUSTER_RETURN_IF_ERROR(
          update(static_cast<uint32_t>(i), keys_, gradients_.data(), sums[i].lr()));
    }
    sums_.erase(found);
  }
  tick();
  return {};
}

Status TableData::update(uint32_t table, std::span<const uint64_t> keys, const float* gradients,
                         double lr) {
  const auto& options = options_[table];
  if (options.versions > 0) {
    std::vector<float> before(keys.size() * options.width);
    tables_[table].read(keys, before.data());
    old_.keep(table, keys, std::move(before));
  }
  return tables_[table].update(keys, gradients, clock_, lr);
}

void TableData::tick() {
  ++clock_;
  for (uint32_t i = 0; i < tables_.size(); ++i) {
    const Eviction& rule = options_[i].eviction;
    if (rule.any() && (clock_ + shard_) % rule.every == 0) evict(i);
  }
  if (versions_ > 0) old_.end_update(versions_);
}

// What was read before the update that this is part of is still known.
void TableData::evict(uint32_t table) {
  const auto& options = options_[table];
  if (options.versions == 0) {
    tables_[table].evict(clock_);
    return;
  }
  // By key: the order in which rows go depends on where they are.
  std::map<uint64_t, std::vector<float>> gone;
  tables_[table].evict(clock_, [&](uint64_t key, const float* weights) {
    gone.emplace(key, std::vector<float>(weights, weights + options.width));
  });
  std::vector<uint64_t> keys;
  std::vector<float> before;
  for (const auto& [key, weights] : gone) {
    keys.push_back(key);
    before.insert(before.end(), weights.begin(), weights.end());
  }
  old_.keep_evicted(table, keys, before);
}

// Everybody who knows of them tells them, so most have been here before.
Status TableData::apply_placed(std::string_view body) {
  PlacedPushes pushes;
  if (!take_placed(body, pushes)) return damaged();
  int64_t place = pushes.first;
  for (const auto& placed : pushes.placed) {
    if (place++ != staged_.places()) continue;
    if (!staged_.place(placed.ticket, placed.weight, placed.compensation, pushes.pushes)) continue;
    MUSTER_RETURN_IF_ERROR(apply_update());
  }
  // What is missing between may be of tickets before the oldest.
  if (place == staged_.places()) staged_.forget_before(pushes.oldest);
  return {};
}

Status TableData::apply_update() {
  for (uint32_t i = 0; i < tables_.size(); ++i) {
    double lr = 0;
    if (!staged_.read_update(i, keys_, gradients_, lr)) continue;
    if (const float compensation = staged_.read_weights(i, keys_, read_); compensation != 0) {
      values_.resize(read_.size());
      tables_[i].read(keys_, values_.data());
      compensate(compensation, values_, read_, gradients_);
    }
    MUSTER_RETURN_IF_ERROR(update(i, keys_, gradients_.data(), lr));
  }
  staged_.end_update();
  tick();
  return {};
}

void TableData::clear() {
  for (auto& table : tables_) table.clear();
  staged_ = {};
  order_ = {};
  old_ = {};
  clock_ = 0;
  era_ = 0;
  sums_.clear();
}

Hash128 TableData::hash() {
  std::vector<Hash128> hashes;
  for (auto& table : tables_) hashes.push_back(table.hash());
  return hash_with(hashes);
}

Hash128 TableData::hash_with(std::span<const Hash128> tables) const {
  Hasher hasher;
  for (const Hash128& one : tables) hasher.add(&one, sizeof(one));
  hasher.add(&clock_, sizeof(clock_));
  return hasher.finish();
}

// The version of the format. For each table: its width and optimizer, how many rows, candidates and
// tombstones, and after which step these are; each row with its values, each candidate, each
// tombstone. Then the clock, the sums of steps, staged pushes, the order of tasks and old rows; at
// the end the hash of rows and clock, as it must be when it is loaded, and that of everything
// before.
void TableData::save(std::string& to) {
  const size_t begin = to.size();
  const auto hashes = save_tables(to);
  save_sums(to);
  staged_.save(to);
  order_.save(to);
  old_.save(to);
  append(to, hash_with(hashes));
  append(to, hash64(to.data() + begin, to.size() - begin));
}

void TableData::save_rows(std::string& to) {
  const size_t begin = to.size();
  const auto hashes = save_tables(to);
  append(to, clock_);
  append(to, uint64_t{0});  // whoever loads it begins an era
  append(to, uint64_t{0});  // no sums
  staged_.save_places(to);
  order_.save(to);
  old_.save(to);
  append(to, hash_with(hashes));
  append(to, hash64(to.data() + begin, to.size() - begin));
}

// Rows are read once: they are hashed while they are in the cache.
std::vector<Hash128> TableData::save_tables(std::string& to) {
  std::vector<Hash128> hashes;
  append(to, kFormat);
  for (auto& table : tables_) {
    const auto& options = table.options();
    const size_t values = options.width + options.optimizer.state(options.width);
    append(to, options.width);
    append(to, static_cast<uint32_t>(options.optimizer.rule));
    append(to, uint64_t{table.rows()});
    append(to, uint64_t{table.candidates()});
    append(to, uint64_t{table.tombstones().size()});
    append(to, uint64_t{table.tombstones_after()});
    // So that a shard of many megabytes does not move while it grows.
    const size_t others = table.candidates() + table.tombstones().size();
    to.reserve(to.size() + table.rows() * (sizeof(SavedRow) + values * sizeof(float)) +
               others * sizeof(SavedRow) + kBehindRows);
    ContentsHash hash;
    table.for_each_row([&](Row& row) {
      append(to, SavedRow{row.key, row.used, row.sights});
      to.append(reinterpret_cast<const char*>(row.values()), values * sizeof(float));
      hash.add(row, table.row_bytes());
    });
    table.for_each_candidate([&](Row& row) {
      append(to, SavedRow{row.key, row.used, row.sights});
      hash.add(row, table.candidate_bytes());
    });
    for (const auto& tombstone : table.tombstones()) {
      append(to, SavedRow{tombstone.key, tombstone.step, 0});
      hash.add(tombstone);
    }
    hash.add_tombstones_after(table.tombstones_after());
    hashes.push_back(hash.value());
  }
  return hashes;
}

void TableData::save_sums(std::string& to) {
  append(to, clock_);
  append(to, era_);
  append(to, uint64_t{sums_.size()});
  for (auto& [step, sums] : sums_) {
    append(to, step);
    for (auto& one : sums) one.save(to);
  }
}

Status TableData::load_sums(std::string_view& from) {
  uint64_t steps = 0;
  if (!take(from, clock_) || !take(from, era_) || !take(from, steps)) return damaged();
  if (clock_ < 0 || clock_ > UINT32_MAX) return damaged();  // Row::used
  for (uint64_t i = 0; i < steps; ++i) {
    int64_t step = 0;
    if (!take(from, step) || step < clock_ || sums_.contains(step)) return damaged();
    auto& sums = sums_[step];
    for (const auto& table : tables_) {
      MUSTER_RETURN_IF_ERROR(sums.emplace_back(table.options().width).load(from));
    }
  }
  return {};
}

Status TableData::load_tasks(std::string_view& from) {
  const auto fits = [&](const StagedRows& rows) {
    const auto is_here = [&](uint64_t key) { return shard_of(key, shards_) == shard_; };
    const auto is_finite = [](float value) { return std::isfinite(value); };
    return rows.table < tables_.size() && std::isfinite(rows.lr) &&
           rows.gradients.size() == rows.keys.size() * tables_[rows.table].options().width &&
           (rows.read.empty() || rows.read.size() == rows.gradients.size()) &&
           std::ranges::is_sorted(rows.keys, std::less_equal()) &&
           std::ranges::all_of(rows.keys, is_here) &&
           std::ranges::all_of(rows.gradients, is_finite) &&
           std::ranges::all_of(rows.read, is_finite);
  };
  MUSTER_RETURN_IF_ERROR(staged_.load(from, fits));
  return order_.load(from);
}

Status TableData::load_old(std::string_view& from) {
  std::vector<size_t> widths;
  for (const auto& options : options_) widths.push_back(options.width);
  MUSTER_RETURN_IF_ERROR(old_.load(from, widths));
  const auto known = std::min<uint64_t>(versions_, static_cast<uint64_t>(clock_));
  if (old_.updates() == known) return {};
  return Error(ErrorKind::kCheckpoint,
               "the rows of {} steps back were saved, and those of {} are needed: set "
               "tables.staleness as it was",
               old_.updates(), known);
}

Status TableData::load_table(TableShard& table, std::string_view& from, ContentsHash& hash) {
  const auto& options = table.options();
  uint64_t rows = 0;
  uint64_t candidates = 0;
  uint64_t tombstones = 0;
  uint64_t after = 0;
  uint32_t width = 0;
  uint32_t rule = 0;
  if (!take(from, width) || !take(from, rule)) return damaged();
  if (width != options.width || rule != static_cast<uint32_t>(options.optimizer.rule)) {
    return Error(ErrorKind::kCheckpoint,
                 "table '{}' was saved with other rows: set tables.width and tables.optimizer as "
                 "they were",
                 options.name);
  }
  if (!take(from, rows) || !take(from, candidates) || !take(from, tombstones) ||
      !take(from, after) || after >= UINT32_MAX) {
    return damaged();
  }
  values_.resize(options.width + options.optimizer.state(options.width));
  const size_t bytes = values_.size() * sizeof(float);
  const auto can_be = [&](const SavedRow& row) {
    return row.sights <= UINT16_MAX && shard_of(row.key, shards_) == shard_;
  };
  SavedRow saved{};
  table.reserve(std::min<uint64_t>(rows, from.size() / (sizeof(saved) + bytes)));
  // Where the index has a key is nowhere near where it has the one before.
  constexpr size_t kAhead = 8;  // rows
  const size_t ahead = kAhead * (sizeof(saved) + bytes);
  for (uint64_t i = 0; i < rows; ++i) {
    if (ahead + sizeof(saved) <= from.size()) {
      SavedRow next{};
      std::memcpy(&next, from.data() + ahead, sizeof(next));
      table.fetch_ahead(next.key);
    }
    if (!take(from, saved) || from.size() < bytes || !can_be(saved)) return damaged();
    std::memcpy(values_.data(), from.data(), bytes);
    from.remove_prefix(bytes);
    MUSTER_RETURN_IF_ERROR(
        table.put(saved.key, saved.used, static_cast<uint16_t>(saved.sights), values_, &hash));
  }
  for (uint64_t i = 0; i < candidates; ++i) {
    if (!take(from, saved) || !can_be(saved)) return damaged();
    MUSTER_RETURN_IF_ERROR(
        table.put(saved.key, saved.used, static_cast<uint16_t>(saved.sights), {}, &hash));
  }
  table.set_tombstones_after(static_cast<uint32_t>(after));
  for (uint64_t i = 0; i < tombstones; ++i) {
    if (!take(from, saved) || !can_be(saved)) return damaged();
    const Tombstone tombstone{saved.key, saved.used};
    if (!table.put(tombstone)) return damaged();
    hash.add(tombstone);
  }
  hash.add_tombstones_after(table.tombstones_after());
  return {};
}

Status TableData::load(std::string_view from) {
  clear();
  const auto load_all = [&]() -> Status {
    uint64_t checksum = 0;
    if (from.size() < sizeof(checksum)) return damaged();
    const auto contents = from.substr(0, from.size() - sizeof(checksum));
    from.remove_prefix(contents.size());
    if (!take(from, checksum) || checksum != hash64(contents.data(), contents.size())) {
      return damaged();
    }
    from = contents;
    uint32_t format = 0;
    if (!take(from, format)) return damaged();
    if (format != kFormat) {
      return Error(
          ErrorKind::kCheckpoint,
          "the rows were saved in format {}, and this program reads {}: use the version of "
          "Muster that saved them",
          format, kFormat);
    }
    std::vector<Hash128> hashes;
    for (auto& table : tables_) {
      ContentsHash hash;
      MUSTER_RETURN_IF_ERROR(load_table(table, from, hash));
      hashes.push_back(hash.value());
    }
    MUSTER_RETURN_IF_ERROR(load_sums(from));
    MUSTER_RETURN_IF_ERROR(load_tasks(from));
    MUSTER_RETURN_IF_ERROR(load_old(from));
    Hash128 saved;
    if (!take(from, saved) || !from.empty() || saved != hash_with(hashes)) return damaged();
    return {};
  };
  auto loaded = load_all();
  if (!loaded.ok()) clear();
  return loaded;
}

}  // namespace muster::ps
