// Any bytes as a push to a shard, or as a copy of one: taken or refused, never read beyond.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "muster/ps/table_data.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::ps;
  static const std::vector<TableOptions> tables = [] {
    std::vector<TableOptions> made(2);
    made[0].width = 2;
    made[1].id = 1;
    made[1].width = 3;
    made[1].admission.sights = 2;
    made[1].eviction.age = 5;
    return made;
  }();
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  Slabs slabs;
  TableData shard(0, 1, tables, slabs);
  if (shard.check(bytes).ok() && !shard.apply(bytes).ok()) std::abort();
  if (!shard.load(bytes).ok()) return 0;
  std::string saved;
  shard.save(saved);
  TableData again(0, 1, tables, slabs);
  if (!again.load(saved).ok() || again.hash() != shard.hash()) std::abort();
  return 0;
}
