// TFRecord: for each record its length (8 bytes, little-endian), the masked CRC-32C of these 8
// bytes (4), the record, its masked CRC-32C (4). A gzipped file is one block: it cannot be entered
// in the middle.
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/crc32c.h"
#include "muster/base/text.h"
#include "muster/data/blocks/block_formats.h"
#include "muster/data/blocks/example.h"
#include "muster/data/blocks/object_window.h"
#include "muster/data/blocks/record.h"
#include "muster/data/blocks/record_block.h"

namespace muster::data {
namespace {

using Bytes = std::span<const std::byte>;

constexpr uint64_t kHead = 12;
constexpr uint64_t kAround = 16;  // what a record has besides its contents
// A longer record is taken for damage whose checksum is right by chance.
constexpr uint64_t kMostRecord = uint64_t{1} << 31;

uint32_t load32(Bytes bytes) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

// Whether the checksum of a record's length is right.
bool is_head(Bytes bytes) {
  return bytes.size() >= kHead && masked_crc32c(bytes.first(8)) == load32(bytes.subspan(8));
}

// A block that is not gzipped may begin with the same bytes: as the length of its first record,
// they are 559,903, or that and a multiple of 2^24.
bool is_packed(Bytes bytes) { return is_gzipped(bytes) && !is_head(bytes); }

// The length of the record that these 12 bytes are the head of.
Result<uint64_t> record_length(Bytes head, uint64_t offset) {
  uint64_t length = 0;
  std::memcpy(&length, head.data(), sizeof(length));
  if (!is_head(head) || length > kMostRecord) {
    return Error(ErrorKind::kData,
                 "the length of the record at byte {} does not match its checksum: the file is "
                 "damaged, or not TFRecord; fetch it again",
                 with_commas(offset));
  }
  return length;
}

Error cut_short(uint64_t offset) {
  return Error(ErrorKind::kData, "the record at byte {} is cut short; fetch the file again",
               with_commas(offset));
}

// All records of `bytes`, with their checksums checked.
Result<std::vector<Bytes>> split_records(Bytes bytes) {
  std::vector<Bytes> records;
  for (uint64_t at = 0; at < bytes.size();) {
    if (bytes.size() - at < kAround) return cut_short(at);
    MUSTER_TRY(const uint64_t length, record_length(bytes.subspan(at, kHead), at));
    if (bytes.size() - at - kAround < length) return cut_short(at);
    const Bytes record = bytes.subspan(at + kHead, length);
    if (masked_crc32c(record) != load32(bytes.subspan(at + kHead + length, 4))) {
      return Error(ErrorKind::kData,
                   "the record at byte {} does not match its checksum; fetch the file again",
                   with_commas(at));
    }
    records.push_back(record);
    at += kAround + length;
  }
  return records;
}

class TfRecordFormat final : public BlockFormat {
 public:
  explicit TfRecordFormat(Recipe recipe) : recipe_(std::move(recipe)) {}

  Result<std::vector<Extent>> cut(const ObjectReader& object, uint64_t block_bytes) const override {
    auto extents = cut_records(object, block_bytes);
    if (!extents.ok()) return std::move(extents).error().context("'{}'", object.name);
    return extents;
  }

  Result<Schema> schema_of(Bytes block, uint32_t count) const override {
    MUSTER_TRY(const Unpacked unpacked, unpack(block));
    MUSTER_RETURN_IF_ERROR(check_count(unpacked.records.size(), count));
    auto schema = recipe_.schema_of(Example(unpacked.records.front()));
    if (!schema.ok()) return std::move(schema).error().context("sample 0 of the block");
    return schema;
  }

  Result<std::unique_ptr<DecodedBlock>> decode(Bytes block, uint32_t count,
                                               const Schema& schema) const override {
    MUSTER_TRY(Unpacked unpacked, unpack(block));
    MUSTER_RETURN_IF_ERROR(check_count(unpacked.records.size(), count));
    const auto make_record = [](Bytes bytes) { return Example(bytes); };
    return std::unique_ptr<DecodedBlock>(std::make_unique<RecordBlock<decltype(make_record)>>(
        std::move(unpacked.records), std::move(unpacked.owned), recipe_, schema, make_record));
  }

  void add_to(const Schema& schema, Hasher& hasher) const override {
    recipe_.add_to(schema, hasher);
  }

 private:
  struct Unpacked {
    std::vector<std::byte> owned;  // what the records lie in, unless that is the block itself
    std::vector<Bytes> records;
  };

  static Result<Unpacked> unpack(Bytes block) {
    Unpacked result;
    Bytes plain = block;
    if (is_packed(block)) {
      MUSTER_TRY(result.owned, gunzip(block, kMostUnpacked));
      plain = result.owned;
    }
    MUSTER_TRY(result.records, split_records(plain));
    return result;
  }

  static Result<std::vector<Extent>> cut_records(const ObjectReader& object, uint64_t block_bytes) {
    if (object.size == 0) return std::vector<Extent>();
    ObjectWindow window(object);
    MUSTER_TRY(const Bytes start, window.from(0, kHead));
    if (is_packed(start)) {
      MUSTER_TRY(const auto all, read_object(object));
      MUSTER_TRY(const Unpacked unpacked, unpack(all));
      if (unpacked.records.empty()) return std::vector<Extent>();
      return std::vector<Extent>{{.offset = 0,
                                  .length = object.size,
                                  .count = static_cast<uint32_t>(unpacked.records.size())}};
    }
    Cutter cutter(block_bytes);
    for (uint64_t at = 0; at < object.size;) {
      if (object.size - at < kAround) return cut_short(at);
      MUSTER_TRY(const Bytes head, window.at(at, kHead));
      MUSTER_TRY(const uint64_t length, record_length(head, at));
      if (object.size - at - kAround < length) return cut_short(at);
      cutter.add(at, at + kAround + length);
      at += kAround + length;
    }
    return std::move(cutter).finish();
  }

  const Recipe recipe_;
};

}  // namespace

Result<std::unique_ptr<BlockFormat>> make_tfrecord(const config::SourceOptions& options) {
  config::ArgReader args(options.args, "the format tfrecord");
  MUSTER_TRY(Recipe recipe,
             Recipe::make(options, args,
                          {.input = {}, .label = "label", .field = "feature", .lists = true}));
  MUSTER_RETURN_IF_ERROR(args.finish());
  return std::unique_ptr<BlockFormat>(std::make_unique<TfRecordFormat>(std::move(recipe)));
}

}  // namespace muster::data
