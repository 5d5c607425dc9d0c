// message Datum { int32 channels = 1; int32 height = 2; int32 width = 3; bytes data = 4;
//                 int32 label = 5; repeated float float_data = 6; bool encoded = 7; }
#include "muster/data/blocks/datum.h"

#include <bit>
#include <cstring>

#include "muster/data/blocks/wire_reader.h"

namespace muster::data {
namespace {

Error damaged() { return Error(ErrorKind::kData, "the value is not a Datum message"); }

using Type = WireReader::Type;

bool add_floats(const WireReader& field, std::vector<float>& floats) {
  if (field.type() == Type::kFixed32) {
    floats.push_back(std::bit_cast<float>(static_cast<uint32_t>(field.number())));
    return true;
  }
  const auto packed = field.bytes();
  if (field.type() != Type::kBytes || packed.size() % 4 != 0) return false;
  const size_t before = floats.size();
  floats.resize(before + packed.size() / 4);
  if (!packed.empty()) std::memcpy(floats.data() + before, packed.data(), packed.size());
  return true;
}

}  // namespace

Result<Datum> read_datum(std::span<const std::byte> message) {
  Datum datum;
  WireReader reader(message);
  while (reader.next()) {
    const uint32_t field = reader.field();
    const bool number = field <= 3 || field == 5 || field == 7;
    if (number && reader.type() != Type::kVarint) return damaged();
    const auto value = static_cast<int64_t>(reader.number());
    if (field == 1) datum.channels = value;
    if (field == 2) datum.height = value;
    if (field == 3) datum.width = value;
    if (field == 5) datum.label = value;
    if (field == 7) datum.encoded = value != 0;
    if (field == 4) {
      if (reader.type() != Type::kBytes) return damaged();
      datum.data = reader.bytes();
    }
    if (field == 6 && !add_floats(reader, datum.floats)) return damaged();
  }
  if (reader.damaged()) return damaged();
  if (datum.encoded) return datum;
  constexpr int64_t kMost = 1 << 20;
  for (const int64_t side : {datum.channels, datum.height, datum.width}) {
    if (side < 1 || side > kMost) return damaged();
  }
  const auto elements = static_cast<uint64_t>(datum.channels * datum.height * datum.width);
  const size_t found = datum.floats.empty() ? datum.data.size() : datum.floats.size();
  if (found != elements) {
    return Error(ErrorKind::kData, "the Datum has {} x {} x {} elements, but holds {}",
                 datum.channels, datum.height, datum.width, found);
  }
  return datum;
}

}  // namespace muster::data
