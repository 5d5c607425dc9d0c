#include "muster/data/blocks/block_index.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include "muster/base/check.h"
#include "muster/base/text.h"
#include "muster/data/permutation.h"
#include "muster/store/url.h"

namespace muster::data {
namespace {

// The file: magic, version, the strings and tables below, and a hash of all before it. Numbers are
// little-endian. A block's first sample is not in it: it is the sum of the counts before. Version 2
// has notes on blocks behind the table of blocks.
constexpr std::string_view kMagic = "MUSTERIX";
constexpr uint32_t kVersion = 1;
constexpr uint32_t kVersionWithNotes = 2;
constexpr size_t kHashBytes = 16;
constexpr size_t kObjectBytes = 3 * sizeof(uint64_t);  // at least: two lengths and a size
constexpr size_t kBlockBytes = 2 * sizeof(uint32_t) + 4 * sizeof(uint64_t);
static_assert(std::endian::native == std::endian::little);

class Writer {
 public:
  template <typename T>
    requires std::is_unsigned_v<T>
  void number(T value) {
    std::array<char, sizeof(T)> bytes;
    std::memcpy(bytes.data(), &value, sizeof(T));
    out_.append(bytes.data(), bytes.size());
  }
  void text(std::string_view value) {
    number(uint64_t{value.size()});
    out_.append(value);
  }
  void raw(std::string_view value) { out_.append(value); }
  void reserve(size_t bytes) { out_.reserve(bytes); }
  void hash() {
    const Hash128 hash = hash128(std::as_bytes(std::span(out_)));
    number(hash.high);
    number(hash.low);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

// Takes numbers from the front. Once something is missing it stays failed, and gives zeros.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}

  template <typename T>
    requires std::is_unsigned_v<T>
  T number() {
    T value{};
    raw(sizeof(T)).copy(reinterpret_cast<char*>(&value), sizeof(T));
    return value;
  }
  std::string text() { return std::string(raw(number<uint64_t>())); }
  std::string_view raw(uint64_t size) {
    if (size > left_.size()) {
      failed_ = true;
      left_ = {};
      return {};
    }
    const auto bytes = left_.substr(0, size);
    left_.remove_prefix(size);
    return bytes;
  }
  // A count of items of at least `least` bytes each: never more than there can be.
  uint64_t count(size_t least) {
    const auto value = number<uint64_t>();
    if (value <= left_.size() / least) return value;
    failed_ = true;
    return 0;
  }
  bool failed() const { return failed_; }
  size_t left() const { return left_.size(); }

 private:
  std::string_view left_;
  bool failed_ = false;
};

Error damaged(std::string_view how) {
  return Error(ErrorKind::kData, "the index of the data is damaged ({}); delete it and index again",
               how);
}

}  // namespace

uint64_t BlockIndex::bytes() const {
  uint64_t sum = 0;
  for (const Block& block : blocks) sum += block.length;
  return sum;
}

size_t BlockIndex::block_of(uint64_t sample) const {
  const uint64_t all = samples();
  MUSTER_CHECK(sample < all, "a sample of the data");
  // Where it would be if all blocks were alike, then steps that double, then halving: blocks that
  // are nearly alike cost two or three looks instead of twenty.
  const size_t count = blocks.size();
  const auto guess = static_cast<size_t>(static_cast<unsigned __int128>(sample) * count / all);
  size_t low = guess;  // blocks[low].first <= sample, once found
  size_t high = guess + 1;
  for (size_t step = 1; blocks[low].first > sample; step *= 2) {
    high = low;
    low -= std::min(step, low);
  }
  for (size_t step = 1; high < count && blocks[high].first <= sample; step *= 2) {
    low = high;
    high += std::min(step, count - high);
  }
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    (blocks[middle].first <= sample ? low : high) = middle;
  }
  return low;
}

Hash128 BlockIndex::hash() const {
  Hasher hasher;
  const auto number = [&](uint64_t value) { hasher.add(&value, sizeof(value)); };
  const auto text = [&](std::string_view value) {
    number(value.size());
    hasher.add(value.data(), value.size());
  };
  text(format);
  text(about);
  number(blocks.size());
  for (const Block& block : blocks) {
    const bool known = block.hash != Hash128{};
    const std::array<uint64_t, 6> parts = {block.count,
                                           block.length,
                                           block.hash.high,
                                           block.hash.low,
                                           known ? 0 : block.offset + 1,
                                           known ? 0 : uint64_t{block.object} + 1};
    hasher.add(parts.data(), sizeof(parts));
  }
  for (const auto& note : notes) text(note);
  return hasher.finish();
}

std::string BlockIndex::describe(size_t block) const {
  const Block& it = blocks[block];
  return fmt::format("block {} ('{}', {} bytes from {} on)", block,
                     store::printable(objects[it.object].name), with_commas(it.length),
                     with_commas(it.offset));
}

std::string save_index(const BlockIndex& index) {
  Writer out;
  out.reserve(index.blocks.size() * kBlockBytes + 4096);
  out.raw(kMagic);
  out.number(index.notes.empty() ? kVersion : kVersionWithNotes);
  out.text(index.format);
  out.text(index.about);
  out.number(uint64_t{index.objects.size()});
  for (const auto& object : index.objects) {
    out.text(object.name);
    out.number(object.size);
    out.text(object.version);
  }
  out.number(uint64_t{index.blocks.size()});
  for (const Block& block : index.blocks) {
    out.number(block.object);
    out.number(block.count);
    out.number(block.offset);
    out.number(block.length);
    out.number(block.hash.high);
    out.number(block.hash.low);
  }
  for (const auto& note : index.notes) out.text(note);
  out.hash();
  return out.take();
}

Result<BlockIndex> load_index(std::string_view bytes) {
  Reader start(bytes);
  if (start.raw(kMagic.size()) != kMagic) {
    return Error(ErrorKind::kData, "this is not an index of data");
  }
  const auto version = start.number<uint32_t>();
  if (start.failed()) return damaged("it is cut short");
  if (version != kVersion && version != kVersionWithNotes) {
    return Error(
        ErrorKind::kData,
        "the index of the data has version {}, and this program knows versions up to {}; index "
        "again, or use the program that wrote it",
        version, kVersionWithNotes);
  }
  if (start.left() < kHashBytes) return damaged("it is cut short");
  const auto body = bytes.substr(0, bytes.size() - kHashBytes);
  Reader end(bytes.substr(body.size()));
  const auto high = end.number<uint64_t>();
  const auto low = end.number<uint64_t>();
  if (hash128(std::as_bytes(std::span(body))) != Hash128{high, low}) {
    return damaged("its contents do not have its hash");
  }

  Reader in(body.substr(kMagic.size() + sizeof(kVersion)));
  BlockIndex index;
  index.format = in.text();
  index.about = in.text();
  index.objects.resize(in.count(kObjectBytes));
  for (auto& object : index.objects) {
    object.name = in.text();
    object.size = in.number<uint64_t>();
    object.version = in.text();
  }
  const uint64_t count = in.count(kBlockBytes);
  const bool has_notes = version == kVersionWithNotes;
  if (in.failed() || (!has_notes && in.left() != count * kBlockBytes)) {
    return damaged("it has not its length");
  }
  if (count > std::numeric_limits<uint32_t>::max()) return damaged("it has too many blocks");
  index.blocks.resize(count);
  uint64_t first = 0;
  for (Block& block : index.blocks) {
    block.object = in.number<uint32_t>();
    block.count = in.number<uint32_t>();
    block.offset = in.number<uint64_t>();
    block.length = in.number<uint64_t>();
    block.hash.high = in.number<uint64_t>();
    block.hash.low = in.number<uint64_t>();
    block.first = first;
    first += block.count;
    if (block.object >= index.objects.size()) return damaged("a block is in no object");
    const uint64_t size = index.objects[block.object].size;
    if (block.offset > size || block.length > size - block.offset) {
      return damaged("a block ends behind its object");
    }
    if (block.count == 0) return damaged("a block has no samples");
    if (first > Permutation::kMaxSize) return damaged("it has more than 2^40 samples");
  }
  if (has_notes) {
    if (count == 0) return damaged("it has notes and no blocks");
    index.notes.resize(count);
    for (auto& note : index.notes) note = in.text();
    if (in.failed() || in.left() != 0) return damaged("it has not its length");
  }
  return index;
}

}  // namespace muster::data
