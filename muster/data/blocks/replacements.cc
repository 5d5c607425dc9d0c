#include "muster/data/blocks/replacements.h"

#include <algorithm>
#include <array>
#include <string>

#include "muster/base/hash.h"
#include "muster/base/random.h"
#include "muster/base/text.h"

namespace muster::data {
namespace {

// What the key is for; those of strata.cc are 1 to 5. Part of the format of a run: never renumber.
constexpr uint64_t kSubstitute = 6;

uint64_t draw(uint64_t seed, uint64_t block, uint64_t below) {
  const std::array<uint64_t, 6> name = {
      seed, static_cast<uint64_t>(Purpose::kOrder), kSubstitute, block, 0, 0};
  const unsigned __int128 bits = hash64(name.data(), sizeof(name));
  return static_cast<uint64_t>((bits * below) >> 64);
}

// Too many are damaged. The last ones are those that were found last.
Error too_many(const BlockIndex& index, std::span<const uint64_t> damaged) {
  constexpr size_t kNamed = 4;
  std::vector<std::string> names;
  for (size_t i = damaged.size() - std::min(kNamed, damaged.size()); i < damaged.size(); ++i) {
    names.push_back(index.describe(damaged[i]));
  }
  const uint64_t blocks = index.blocks.size();
  return Error(ErrorKind::kData,
               "{} of {} damaged, among them {}; data.on_damage replace replaces at most {}: "
               "restore the data, or index it again",
               with_commas(damaged.size()),
               blocks == 1 ? "1 block is" : with_commas(blocks) + " blocks are", join_words(names),
               with_commas(Replacements::most_of(blocks)));
}

}  // namespace

uint64_t Replacements::most_of(uint64_t blocks) {
  return blocks < 2 ? 0 : std::min(kMost, (blocks + 9) / 10);
}

Result<std::shared_ptr<const Replacements>> Replacements::make(const BlockIndex& index,
                                                               uint64_t seed,
                                                               std::span<const uint64_t> damaged) {
  const uint64_t blocks = index.blocks.size();
  for (const uint64_t block : damaged) {
    if (block < blocks) continue;
    return Error(ErrorKind::kCheckpoint,
                 "the training state says that block {} of data.train is damaged, but there are "
                 "only {} blocks: the data has changed",
                 block, blocks);
  }
  if (damaged.size() > most_of(blocks)) return too_many(index, damaged);

  const std::shared_ptr<Replacements> made(new Replacements());
  made->damaged_.assign(damaged.begin(), damaged.end());
  std::vector<uint64_t> sorted = made->damaged_;
  std::ranges::sort(sorted);
  const auto repeated = std::ranges::unique(sorted);
  sorted.erase(repeated.begin(), repeated.end());
  for (const uint64_t block : sorted) {
    uint64_t other = draw(seed, block, blocks);
    while (std::ranges::binary_search(sorted, other)) other = (other + 1) % blocks;
    const Block& from = index.blocks[block];
    const Block& to = index.blocks[other];
    made->entries_.push_back({.first = from.first,
                              .end = from.first + from.count,
                              .other_first = to.first,
                              .other_count = to.count,
                              .block = static_cast<uint32_t>(block),
                              .other = static_cast<uint32_t>(other)});
  }
  return std::shared_ptr<const Replacements>(made);
}

uint32_t Replacements::instead_of(uint32_t block) const {
  const auto found = std::ranges::lower_bound(entries_, block, {}, &Entry::block);
  return found != entries_.end() && found->block == block ? found->other : block;
}

uint64_t Replacements::apply(std::span<uint64_t> samples) const {
  uint64_t replaced = 0;
  for (uint64_t& sample : samples) {
    // The first that ends after the sample.
    const auto found = std::ranges::upper_bound(entries_, sample, {}, &Entry::end);
    if (found == entries_.end() || sample < found->first) continue;
    sample = found->other_first + (sample - found->first) % found->other_count;
    ++replaced;
  }
  return replaced;
}

}  // namespace muster::data
