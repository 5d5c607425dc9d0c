// The other side of blocks/tfrecord.cc and blocks/example.cc, where the formats are described.
#include <cstring>
#include <string>
#include <vector>

#include "muster/base/crc32c.h"
#include "muster/data/pack/sample_writer.h"

namespace muster::data {
namespace {

using Bytes = std::span<const std::byte>;

constexpr uint32_t kByteStrings = 1;  // which list of a Feature
constexpr uint32_t kFloats = 2;
constexpr uint32_t kIntegers = 3;

size_t varint_size(uint64_t value) {
  size_t size = 1;
  while (value >= 0x80) {
    value >>= 7;
    ++size;
  }
  return size;
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

// A field whose contents are bytes or a message: a tag of one byte, their length, they themselves.
size_t field_size(size_t contents) { return 1 + varint_size(contents) + contents; }

void put_head(std::string& out, uint32_t field, size_t contents) {
  put_varint(out, field << 3 | 2);
  put_varint(out, contents);
}

void put(std::string& out, Bytes bytes) {
  out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

template <typename T>
void put_raw(std::string& out, T value) {
  put(out, std::as_bytes(std::span(&value, 1)));
}

// One entry of the map in Features: a name, and a Feature with one list, whose values are packed,
// or which is one byte string.
struct Entry {
  std::string_view name;
  uint32_t list = 0;
  Bytes value;

  // Inside out: the list, the Feature, the entry.
  size_t list_size() const { return field_size(value.size()); }
  size_t feature_size() const { return field_size(list_size()); }
  size_t size() const { return field_size(name.size()) + field_size(feature_size()); }

  void append_to(std::string& out) const {
    put_head(out, 1, name.size());
    out.append(name);
    put_head(out, 2, feature_size());
    put_head(out, list, list_size());
    put_head(out, 1, value.size());
    put(out, value);
  }
};

class TfRecordWriter final : public SampleWriter {
 public:
  TfRecordWriter(WritableFile& file, const SampleForm& form) : file_(file), form_(form) {}

  Status write_block(Bytes samples) override {
    out_.clear();
    for (; !samples.empty(); samples = samples.subspan(form_.bytes())) {
      add_record(samples.first(form_.input_bytes()),
                 samples.subspan(form_.input_bytes(), form_.target_bytes()));
    }
    return file_.append(out_);
  }

  Status finish() override { return {}; }

 private:
  void add_record(Bytes input, Bytes target) {
    std::string label;
    if (form_.has_classes && !target.empty()) {
      int64_t number = 0;
      std::memcpy(&number, target.data(), sizeof(number));
      put_varint(label, static_cast<uint64_t>(number));
      target = std::as_bytes(std::span(label));
    }
    std::vector<Entry> entries;
    std::string integers;
    add_input(input, integers, entries);
    if (form_.input != SampleForm::Input::kTokens) {
      entries.push_back(
          {.name = kPackedLabel, .list = form_.has_classes ? kIntegers : kFloats, .value = target});
    }
    write_record(entries);
  }

  // `integers` holds what the entries refer to.
  void add_input(Bytes input, std::string& integers, std::vector<Entry>& entries) const {
    switch (form_.input) {
      case SampleForm::Input::kNumbers:
        entries.push_back({.name = kPackedInput, .list = kFloats, .value = input});
        return;
      case SampleForm::Input::kPixels:
        entries.push_back({.name = kPackedInput, .list = kByteStrings, .value = input});
        return;
      case SampleForm::Input::kTokens:
        for (size_t at = 0; at < input.size(); at += sizeof(int32_t)) {
          int32_t token = 0;
          std::memcpy(&token, input.data() + at, sizeof(token));
          put_varint(integers, static_cast<uint64_t>(token));
        }
        entries.push_back(
            {.name = kPackedInput, .list = kIntegers, .value = std::as_bytes(std::span(integers))});
        return;
      case SampleForm::Input::kIds:
      case SampleForm::Input::kIdsWithValues:
        const StoredIds ids(input, form_);
        for (size_t i = 0; i < ids.count(); ++i) {
          put_varint(integers, static_cast<uint64_t>(ids.id(i)));
        }
        entries.push_back(
            {.name = kPackedInput, .list = kIntegers, .value = std::as_bytes(std::span(integers))});
        if (form_.input == SampleForm::Input::kIdsWithValues) {
          entries.push_back({.name = kPackedValues, .list = kFloats, .value = ids.values()});
        }
        return;
    }
  }

  void write_record(std::span<const Entry> entries) {
    size_t features = 0;
    for (const Entry& entry : entries) features += field_size(entry.size());

    const uint64_t length = field_size(features);
    put_raw(out_, length);
    put_raw(out_, masked_crc32c(std::as_bytes(std::span(&length, 1))));
    const size_t begin = out_.size();
    put_head(out_, 1, features);
    for (const Entry& entry : entries) {
      put_head(out_, 1, entry.size());
      entry.append_to(out_);
    }
    put_raw(out_, masked_crc32c(std::as_bytes(std::span(out_)).subspan(begin)));
  }

  WritableFile& file_;
  const SampleForm form_;
  std::string out_;  // one block
};

}  // namespace

std::unique_ptr<SampleWriter> write_tfrecord(WritableFile& file, const SampleForm& form) {
  return std::make_unique<TfRecordWriter>(file, form);
}

}  // namespace muster::data
