// Any bytes as a push to a shard, as several of them, or as a copy of a shard: taken or refused,
// never read beyond.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/hash.h"
#include "muster/ps/bytes.h"
#include "muster/ps/table_data.h"

namespace {

using namespace muster;
using namespace muster::ps;

const std::vector<TableOptions>& tables() {
  static const std::vector<TableOptions> all = [] {
    std::vector<TableOptions> made(2);
    made[0].width = 2;
    made[1].id = 1;
    made[1].width = 3;
    made[1].admission.sights = 2;
    made[1].eviction = {.age = 5, .most = 0, .every = 2};
    return made;
  }();
  return all;
}

void push(TableData& shard, std::string_view bytes) {
  if (shard.check(bytes).ok() && !shard.apply(bytes).ok()) std::abort();
}

// What begins with its length, in two bytes.
bool take_piece(std::string_view& from, std::string_view& piece) {
  uint16_t size = 0;
  if (!take(from, size)) return false;
  piece = from.substr(0, size);
  from.remove_prefix(piece.size());
  return true;
}

void push_all(TableData& shard, std::string_view bytes) {
  std::string_view one;
  while (take_piece(bytes, one)) push(shard, one);
  if (!decode_view(encode_view(shard.order().view(0, 0, true))).ok()) std::abort();
}

void copy(TableData& shard) {
  std::string saved;
  shard.save(saved);
  Slabs slabs;
  TableData again(0, 1, tables(), slabs);
  if (!again.load(saved).ok() || again.hash() != shard.hash()) std::abort();
}

// A copy of a shard without rows, with these in place of its staged pushes and its order of tasks.
std::string copy_with(std::string_view tasks) {
  Slabs slabs;
  std::string bytes;
  TableData(0, 1, tables(), slabs).save(bytes);
  std::string none;
  StagedPushes().save(none);
  TaskOrder().save(none);
  const size_t hashes = sizeof(Hash128) + sizeof(uint64_t);
  const std::string rows_hash = bytes.substr(bytes.size() - hashes, sizeof(Hash128));
  bytes.resize(bytes.size() - hashes - none.size());
  bytes += tasks;
  bytes += rows_hash;
  append(bytes, hash64(bytes.data(), bytes.size()));
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  Slabs slabs;
  TableData shard(0, 1, tables(), slabs);
  push(shard, bytes);
  if (shard.load(bytes).ok()) copy(shard);

  TableData pushed(0, 1, tables(), slabs);
  push_all(pushed, bytes);
  copy(pushed);

  std::string_view pushes = bytes;
  std::string_view tasks;
  if (!take_piece(pushes, tasks)) return 0;
  TableData loaded(0, 1, tables(), slabs);
  if (!loaded.load(copy_with(tasks)).ok()) return 0;
  push_all(loaded, pushes);
  copy(loaded);
  return 0;
}
