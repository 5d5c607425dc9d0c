// A block of records that are side by side in its bytes.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "muster/data/blocks/block_format.h"
#include "muster/data/blocks/record.h"

namespace muster::data {

// `MakeRecord` gives a Record over the bytes of one. What the spans point into must outlive the
// block: `owned`, or the bytes that decode() was given.
template <typename MakeRecord>
class RecordBlock final : public DecodedBlock {
 public:
  RecordBlock(std::vector<std::span<const std::byte>> records, std::vector<std::byte> owned,
              const Recipe& recipe, Schema schema, const MakeRecord& make_record)
      : owned_(std::move(owned)),
        records_(std::move(records)),
        recipe_(recipe),
        schema_(std::move(schema)),
        make_record_(make_record) {}

  Status read(uint32_t i, std::byte* input, std::byte* target) const override {
    const auto record = make_record_(records_[i]);
    auto status = recipe_.read(record, schema_, input, target);
    if (!status.ok()) return std::move(status).error().context("sample {} of the block", i);
    return {};
  }

  uint64_t memory() const override {
    return owned_.capacity() + records_.capacity() * sizeof(std::span<const std::byte>);
  }
  bool needs_bytes() const override { return owned_.empty(); }

 private:
  const std::vector<std::byte> owned_;
  const std::vector<std::span<const std::byte>> records_;
  const Recipe recipe_;
  const Schema schema_;
  const MakeRecord make_record_;
};

// The index and the block do not agree.
inline Status check_count(size_t found, uint32_t expected) {
  if (found == expected && found > 0) return {};
  return Error(ErrorKind::kData,
               "the block has {} samples, but the index says {}: the data was changed; make the "
               "index again",
               found, expected);
}

}  // namespace muster::data
