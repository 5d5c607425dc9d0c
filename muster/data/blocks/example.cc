// The messages, of tensorflow/core/example:
//   Example  { Features features = 1; }
//   Features { map<string, Feature> feature = 1; }       an entry: { key = 1, value = 2 }
//   Feature  { oneof { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3
//   } }
// and each list { repeated value = 1 }, numbers packed or not.
#include "muster/data/blocks/example.h"

#include <bit>
#include <cstring>

#include "muster/data/blocks/wire_reader.h"

namespace muster::data {
namespace {

using Type = WireReader::Type;

Error damaged() { return Error(ErrorKind::kData, "the record is not a tf.Example message"); }

Status add_floats(WireReader& list, Value& value) {
  while (list.next()) {
    if (list.field() != 1) continue;
    if (list.type() == Type::kFixed32) {
      value.numbers.push_back(std::bit_cast<float>(static_cast<uint32_t>(list.number())));
      continue;
    }
    const auto packed = list.bytes();
    if (list.type() != Type::kBytes || packed.size() % 4 != 0) return damaged();
    value.numbers.reserve(value.numbers.size() + packed.size() / 4);
    for (size_t i = 0; i < packed.size(); i += 4) {
      float number = 0;
      std::memcpy(&number, packed.data() + i, 4);
      value.numbers.push_back(number);
    }
  }
  if (list.damaged()) return damaged();
  return {};
}

Status add_integers(WireReader& list, Value& value) {
  while (list.next()) {
    if (list.field() != 1) continue;
    if (list.type() == Type::kVarint) {
      value.numbers.push_back(static_cast<double>(static_cast<int64_t>(list.number())));
      continue;
    }
    auto packed = list.bytes();
    if (list.type() != Type::kBytes) return damaged();
    while (!packed.empty()) {
      uint64_t number = 0;
      if (!WireReader::take_varint(packed, number)) return damaged();
      value.numbers.push_back(static_cast<double>(static_cast<int64_t>(number)));
    }
  }
  if (list.damaged()) return damaged();
  return {};
}

// One string only: a list of images is no sample.
Status add_bytes(WireReader& list, Value& value, std::string_view name) {
  size_t count = 0;
  while (list.next()) {
    if (list.field() != 1) continue;
    if (list.type() != Type::kBytes) return damaged();
    value.bytes = list.bytes();
    ++count;
  }
  if (list.damaged()) return damaged();
  if (count != 1) {
    return Error(ErrorKind::kData, "the feature '{}' has {} byte strings; it must have one", name,
                 count);
  }
  return {};
}

Status read_feature(std::span<const std::byte> message, std::string_view name, Value& value) {
  value = {};
  uint32_t kind = 0;
  WireReader feature(message);
  while (feature.next()) {
    if (feature.field() > 3) continue;
    if (feature.type() != Type::kBytes) return damaged();
    // Of a oneof the last one counts; the same one again is appended.
    if (kind != feature.field()) value = {};
    kind = feature.field();
    WireReader list(feature.bytes());
    value.kind = kind == 1 ? Value::Kind::kBytes : Value::Kind::kNumbers;
    MUSTER_RETURN_IF_ERROR(kind == 1   ? add_bytes(list, value, name)
                           : kind == 2 ? add_floats(list, value)
                                       : add_integers(list, value));
  }
  if (feature.damaged()) return damaged();
  return {};
}

// Calls visit(key, feature) for each; false: damaged.
template <typename Visit>
Status for_each_feature(std::span<const std::byte> message, Visit visit) {
  WireReader example(message);
  while (example.next()) {
    if (example.field() != 1) continue;
    if (example.type() != Type::kBytes) return damaged();
    WireReader features(example.bytes());
    while (features.next()) {
      if (features.field() != 1) continue;
      if (features.type() != Type::kBytes) return damaged();
      WireReader entry(features.bytes());
      std::string_view key;
      std::span<const std::byte> feature;
      while (entry.next()) {
        if (entry.type() != Type::kBytes) continue;
        if (entry.field() == 1) key = entry.text();
        if (entry.field() == 2) feature = entry.bytes();
      }
      if (entry.damaged()) return damaged();
      MUSTER_RETURN_IF_ERROR(visit(key, feature));
    }
    if (features.damaged()) return damaged();
  }
  if (example.damaged()) return damaged();
  return {};
}

}  // namespace

Status Example::get(std::span<const std::string> names, std::span<Value> values) const {
  size_t likely = 0;  // features mostly come in the same order as in the record before
  return for_each_feature(message_,
                          [&](std::string_view key, std::span<const std::byte> feature) -> Status {
                            for (size_t tried = 0; tried < names.size(); ++tried) {
                              const size_t i = (likely + tried) % names.size();
                              if (names[i] != key) continue;
                              likely = i + 1;
                              MUSTER_RETURN_IF_ERROR(read_feature(feature, key, values[i]));
                            }
                            return {};
                          });
}

std::vector<std::string> Example::names() const {
  std::vector<std::string> result;
  const auto ignored = for_each_feature(message_, [&](std::string_view key, auto /*feature*/) {
    if (result.size() < 50) result.emplace_back(key);
    return Status();
  });
  (void)ignored.ok();  // names are for an error that is already known
  return result;
}

}  // namespace muster::data
