// Reads event files back, for tests: written from the format's description, not from the writer.
// Anything that is not as it should be is reported, not tolerated.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muster::track {

struct DecodedEvent {
  double wall = 0;
  int64_t step = 0;
  std::string file_version;
  std::vector<std::pair<std::string, float>> scalars;
  std::optional<uint64_t> session_status;
};

class EventDecoder {
 public:
  // Nothing if anything is wrong; `problem()` then says what.
  std::optional<std::vector<DecodedEvent>> decode_file(std::string_view file) {
    std::vector<DecodedEvent> events;
    while (!file.empty()) {
      if (file.size() < 16) return fail("a torn record");
      const auto length = fixed<uint64_t>(file.substr(0, 8));
      if (fixed<uint32_t>(file.substr(8, 4)) != masked(file.substr(0, 8))) {
        return fail("the checksum of a length");
      }
      if (length > file.size() - 16) return fail("a torn record");
      const auto data = file.substr(12, length);
      if (fixed<uint32_t>(file.substr(12 + length, 4)) != masked(data)) {
        return fail("the checksum of the data");
      }
      events.emplace_back();
      if (!decode_event(data, events.back())) return fail("an event");
      file.remove_prefix(16 + length);
    }
    return events;
  }
  const std::string& problem() const { return problem_; }

 private:
  std::nullopt_t fail(std::string what) {
    problem_ = std::move(what);
    return std::nullopt;
  }

  // Bit by bit, straight from the definition.
  static uint32_t masked(std::string_view data) {
    uint32_t crc = 0xffffffff;
    for (const char c : data) {
      crc ^= static_cast<unsigned char>(c);
      for (int i = 0; i < 8; ++i) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
    }
    crc = ~crc;
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8;
  }

  template <typename T>
  static T fixed(std::string_view bytes) {
    T value = 0;
    for (size_t i = sizeof(T); i-- > 0;) {
      value = static_cast<T>(value << 8) | static_cast<unsigned char>(bytes[i]);
    }
    return value;
  }

  static bool take_varint(std::string_view& in, uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64 && !in.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(in.front());
      in.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  struct Field {
    uint64_t number = 0;
    uint64_t type = 0;
    uint64_t value = 0;      // types 0, 1 and 5
    std::string_view bytes;  // type 2
  };

  static bool take_field(std::string_view& in, Field& field) {
    uint64_t key = 0;
    if (!take_varint(in, key)) return false;
    field.number = key >> 3;
    field.type = key & 7;
    size_t size = 0;
    if (field.type == 0) return take_varint(in, field.value);
    if (field.type == 1) {
      size = 8;
    } else if (field.type == 5) {
      size = 4;
    } else if (field.type == 2) {
      uint64_t length = 0;
      if (!take_varint(in, length) || length > in.size()) return false;
      size = length;
    } else {
      return false;
    }
    if (in.size() < size) return false;
    field.bytes = in.substr(0, size);
    if (field.type == 1) field.value = fixed<uint64_t>(field.bytes);
    if (field.type == 5) field.value = fixed<uint32_t>(field.bytes);
    in.remove_prefix(size);
    return true;
  }

  static bool decode_event(std::string_view in, DecodedEvent& event) {
    while (!in.empty()) {
      Field field;
      if (!take_field(in, field)) return false;
      if (field.number == 1 && field.type == 1) {
        event.wall = std::bit_cast<double>(field.value);
      } else if (field.number == 2 && field.type == 0) {
        event.step = static_cast<int64_t>(field.value);
      } else if (field.number == 3 && field.type == 2) {
        event.file_version = field.bytes;
      } else if (field.number == 5 && field.type == 2) {
        if (!decode_summary(field.bytes, event)) return false;
      } else if (field.number == 7 && field.type == 2) {
        Field status;
        if (!take_field(field.bytes, status) || status.number != 1) return false;
        event.session_status = status.value;
      } else {
        return false;
      }
    }
    return true;
  }

  static bool decode_summary(std::string_view in, DecodedEvent& event) {
    while (!in.empty()) {
      Field value;
      if (!take_field(in, value) || value.number != 1 || value.type != 2) return false;
      Field tag;
      Field number;
      if (!take_field(value.bytes, tag) || tag.number != 1 || tag.type != 2) return false;
      if (!take_field(value.bytes, number) || number.number != 2 || number.type != 5) return false;
      if (!value.bytes.empty()) return false;
      event.scalars.emplace_back(tag.bytes,
                                 std::bit_cast<float>(static_cast<uint32_t>(number.value)));
    }
    return true;
  }

  std::string problem_;
};

}  // namespace muster::track
