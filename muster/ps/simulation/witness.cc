#include "muster/ps/simulation/witness.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace muster::ps::simulation {
namespace {

std::string saved(const TaskOrder& order) {
  std::string bytes;
  order.save(bytes);
  return bytes;
}

}  // namespace

std::string Witness::told(ShardNumber shard, const ShardCopy& copy) {
  auto& seen = seen_[shard];
  const auto [known, fresh] = seen.chains.emplace(copy.place(), copy.chain());
  seen.place = std::max(seen.place, copy.place());
  if (fresh || known->second == copy.chain()) return {};
  return fmt::format("shard {} has two histories of {} pushes", shard, copy.place());
}

std::string Witness::read(ShardNumber shard, const ShardCopy& copy, uint64_t least) {
  if (copy.place() >= least) return told(shard, copy);
  return fmt::format("shard {} was read at place {}, but {} had been answered or read", shard,
                     copy.place(), least);
}

std::string Witness::check_end(ShardNumber shard, std::span<RecordedData* const> copies,
                               RecordedData& alone) const {
  if (copies.empty()) return fmt::format("nobody has shard {}", shard);
  const auto& order = copies[0]->order();
  const Hash128 hash = copies[0]->hash();
  for (auto* const copy : copies) {
    if (copy->order() != order) return fmt::format("copies of shard {} differ", shard);
    if (copy->hash() != hash) return fmt::format("rows of shard {} differ", shard);
    if (saved(copy->tasks()) != saved(copies[0]->tasks())) {
      return fmt::format("the order of tasks differs in copies of shard {}", shard);
    }
  }
  std::map<int, uint64_t> last;  // by client
  std::set<int64_t> there;
  for (const int64_t id : order) {
    const auto& one = push(id);
    if (!there.insert(id).second) return fmt::format("push {} was applied twice", id);
    const uint64_t before = last[one.client]++;
    if (one.nth != before + 1) {
      return fmt::format("push {} of client {} to shard {} comes after {} others", one.nth,
                         one.client, shard, before);
    }
    (void)alone.apply(*one.bytes);
  }
  if (alone.hash() != hash || saved(alone.tasks()) != saved(copies[0]->tasks())) {
    return fmt::format("shard {} is not what its order gives", shard);
  }
  for (int64_t id = 0; id < next_push(); ++id) {
    if (push(id).shard == shard && push(id).answered && !there.contains(id)) {
      return fmt::format("push {} was answered and is lost", id);
    }
  }
  return {};
}

}  // namespace muster::ps::simulation
