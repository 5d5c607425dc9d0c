// Helpers for tests of data that is read by blocks: an index made on the spot, a store in memory
// that can fail, and a format whose samples say which ones they are.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "muster/data/blocks/block_format.h"
#include "muster/data/blocks/block_index.h"
#include "muster/store/store.h"

namespace muster::data::testing {

// Blocks of these many samples, `sample_bytes` each, `per_object` blocks to an object (0: all).
inline BlockIndex make_index(const std::vector<uint32_t>& counts, uint64_t sample_bytes = 8,
                             size_t per_object = 0) {
  BlockIndex index;
  index.format = "numbers";
  uint64_t first = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (i == 0 || (per_object > 0 && i % per_object == 0)) {
      index.objects.push_back(
          {.name = "object-" + std::to_string(index.objects.size()), .size = 0, .version = "1"});
    }
    auto& object = index.objects.back();
    const uint64_t length = counts[i] * sample_bytes;
    index.blocks.push_back({.object = static_cast<uint32_t>(index.objects.size() - 1),
                            .offset = object.size,
                            .length = length,
                            .first = first,
                            .count = counts[i],
                            .hash = {}});
    object.size += length;
    first += counts[i];
  }
  return index;
}

// Objects in memory. A test says what happens to a read by setting `before`.
class FakeStore final : public store::Store {
 public:
  // Called before each read, by any thread; an error is what the read gives.
  using Before = std::function<Status(const store::Object& object, uint64_t offset)>;
  // Called after each read with what it gives, to damage it.
  using After =
      std::function<void(const store::Object& object, uint64_t offset, std::span<std::byte> bytes)>;

  explicit FakeStore(std::map<std::string, std::string> objects) : objects_(std::move(objects)) {}

  void set_before(Before before) {
    const std::lock_guard lock(mutex_);
    before_ = std::move(before);
  }
  void set_after(After after) {
    const std::lock_guard lock(mutex_);
    after_ = std::move(after);
  }
  // Of all objects, before it is used.
  void set_version(std::string version) { version_ = std::move(version); }
  uint64_t reads() const { return reads_; }
  uint64_t bytes() const { return bytes_; }

  // An address may end with *.
  Result<std::vector<store::Object>> list(std::string_view address) override {
    std::vector<store::Object> found;
    for (const auto& [name, contents] : objects_) {
      const bool matches = address.ends_with('*')
                               ? name.starts_with(address.substr(0, address.size() - 1))
                               : name == address;
      if (matches) found.push_back({name, contents.size(), version_});
    }
    if (found.empty()) return Error(ErrorKind::kData, "there is no object '{}'", address);
    return found;
  }
  Status read(const store::Object& object, uint64_t offset, std::span<std::byte> into) override {
    Before before;
    After after;
    {
      const std::lock_guard lock(mutex_);
      before = before_;
      after = after_;
    }
    ++reads_;
    if (before) MUSTER_RETURN_IF_ERROR(before(object, offset));
    const auto found = objects_.find(object.name);
    if (found == objects_.end() || found->second.size() < offset + into.size()) {
      return Error(ErrorKind::kData, "there is no object '{}'", object.name);
    }
    std::memcpy(into.data(), found->second.data() + offset, into.size());
    bytes_ += into.size();
    if (after) after(object, offset, into);
    return {};
  }

 private:
  const std::map<std::string, std::string> objects_;
  std::string version_ = "1";
  std::mutex mutex_;
  Before before_;
  After after_;
  std::atomic<uint64_t> reads_ = 0;
  std::atomic<uint64_t> bytes_ = 0;
};

// Samples as NumberedDataset has them (data_testing.h), of 1 x 3 x 4 floats; in a block each is its
// number, as 8 bytes.
class NumbersFormat final : public BlockFormat {
 public:
  explicit NumbersFormat(uint64_t samples) {
    schema_.input_shape = {1, 3, 4};
    schema_.classes = static_cast<int64_t>(samples);
    schema_.padding = {-1};
  }

  // All blocks of the index, in the objects that it says. Sets their hashes.
  static std::map<std::string, std::string> write(BlockIndex& index) {
    std::map<std::string, std::string> objects;
    for (Block& block : index.blocks) {
      std::string& object = objects[index.objects[block.object].name];
      const size_t begin = object.size();
      for (uint64_t i = block.first; i < block.first + block.count; ++i) {
        object.append(reinterpret_cast<const char*>(&i), sizeof(i));
      }
      block.hash = hash128(std::as_bytes(std::span(object)).subspan(begin));
    }
    return objects;
  }

  Result<std::vector<Extent>> cut(const ObjectReader& /*object*/,
                                  uint64_t /*block_bytes*/) const override {
    return Error(ErrorKind::kInternal, "not needed here");
  }
  Result<Schema> schema_of(std::span<const std::byte> block, uint32_t count) const override {
    if (block.size() != count * sizeof(uint64_t)) return Error(ErrorKind::kData, "a wrong length");
    return schema_;
  }
  Result<std::unique_ptr<DecodedBlock>> decode(std::span<const std::byte> bytes, uint32_t count,
                                               const Schema& schema) const override {
    ++decoded;
    if (bytes.size() != count * sizeof(uint64_t)) return Error(ErrorKind::kData, "a wrong length");
    return std::unique_ptr<DecodedBlock>(
        new Numbers(bytes, schema.input_elements(), memory, copies));
  }
  void add_to(const Schema& /*schema*/, Hasher& /*hasher*/) const override {}

  mutable std::atomic<uint64_t> decoded = 0;  // blocks
  // What blocks say of themselves; set before it is used.
  uint64_t memory = 1;
  bool copies = false;  // decoded blocks do not need their bytes

 private:
  class Numbers final : public DecodedBlock {
   public:
    Numbers(std::span<const std::byte> bytes, size_t elements, uint64_t memory, bool copies)
        : bytes_(bytes), elements_(elements), memory_(memory) {
      if (!copies) return;
      copy_.assign(bytes.begin(), bytes.end());
      bytes_ = copy_;
    }
    bool needs_bytes() const override { return copy_.empty(); }
    Status read(uint32_t i, std::byte* input, std::byte* target) const override {
      uint64_t number = 0;
      std::memcpy(&number, bytes_.data() + i * sizeof(number), sizeof(number));
      if (number > uint64_t{1} << 40) {
        return Error(ErrorKind::kData, "the number {} is too large", number);
      }
      auto* to = reinterpret_cast<float*>(input);
      for (size_t j = 0; j < elements_; ++j) {
        to[j] = static_cast<float>(number) + static_cast<float>(j) / 1000;
      }
      std::memcpy(target, &number, sizeof(number));
      return {};
    }
    uint64_t memory() const override { return memory_; }

   private:
    std::span<const std::byte> bytes_;
    std::vector<std::byte> copy_;
    size_t elements_;
    uint64_t memory_;
  };

  Schema schema_;
};

}  // namespace muster::data::testing
