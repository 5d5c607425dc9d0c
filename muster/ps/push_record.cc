#include "muster/ps/push_record.h"

#include <algorithm>

#include "muster/ps/bytes.h"

namespace muster::ps {
namespace {

constexpr uint64_t kMostParts = 1 << 20;  // of one record

// Seven bits in a byte, the lowest first; the last byte has its highest bit clear.
void append_number(std::string& to, uint64_t value) {
  for (; value >= 0x80; value >>= 7) to.push_back(static_cast<char>(value | 0x80));
  to.push_back(static_cast<char>(value));
}

bool take_number(std::string_view& from, uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    uint8_t byte = 0;
    if (!take(from, byte)) return false;
    value |= uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

// Small numbers of either sign become small ones.
uint64_t fold(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
}
int64_t unfold(uint64_t value) {
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

Error damaged() { return Error(ErrorKind::kIo, "the record of pushes is damaged"); }

}  // namespace

int64_t PushRecord::oldest(int64_t otherwise) const {
  int64_t oldest = otherwise;
  bool any = false;
  for (const auto& read : versions) {
    for (const int64_t version : read) {
      oldest = any ? std::min(oldest, version) : version;
      any = true;
    }
  }
  return oldest;
}

// Tasks are taken in their order, so a push has a place near its task; and the shards are at nearly
// the same update. So: task - place, reads, updates - oldest version; then of each read runs of
// (how many shards, how much later than the oldest), which end with a run of none.
void append_record(std::string& to, int64_t place, int64_t updates, const PushRecord& record) {
  const int64_t oldest = record.oldest(updates);
  append_number(to, fold(record.task - place));
  append_number(to, record.versions.size());
  append_number(to, fold(updates - oldest));
  for (const auto& read : record.versions) {
    for (size_t begin = 0; begin < read.size();) {
      size_t end = begin;
      while (end < read.size() && read[end] == read[begin]) ++end;
      append_number(to, end - begin);
      append_number(to, static_cast<uint64_t>(read[begin] - oldest));
      begin = end;
    }
    append_number(to, 0);
  }
}

Result<PushRecord> take_record(std::string_view& from, int64_t place, int64_t updates) {
  PushRecord record;
  uint64_t task = 0;
  uint64_t reads = 0;
  uint64_t age = 0;
  if (!take_number(from, task) || !take_number(from, reads) || !take_number(from, age)) {
    return damaged();
  }
  const auto is_number = [](int64_t value) { return value > -kMostNumber && value < kMostNumber; };
  if (reads > kMostParts || !is_number(unfold(task)) || !is_number(unfold(age))) return damaged();
  record.task = place + unfold(task);
  const int64_t oldest = updates - unfold(age);
  if (record.task < 0 || oldest < 0) return damaged();
  uint64_t parts = 0;
  for (uint64_t i = 0; i < reads; ++i) {
    auto& read = record.versions.emplace_back();
    while (true) {
      uint64_t run = 0;
      uint64_t later = 0;
      if (!take_number(from, run)) return damaged();
      if (run == 0) break;
      parts += run;
      if (run > kMostParts || parts > kMostParts || !take_number(from, later) ||
          later >= static_cast<uint64_t>(kMostNumber)) {
        return damaged();
      }
      read.insert(read.end(), run, oldest + static_cast<int64_t>(later));
    }
  }
  return record;
}

Result<std::vector<PushRecord>> read_records(std::string_view from, int64_t pushes) {
  std::vector<PushRecord> records;
  while (!from.empty()) {
    const auto place = static_cast<int64_t>(records.size());
    MUSTER_TRY(auto record, take_record(from, place, place / pushes));
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace muster::ps
