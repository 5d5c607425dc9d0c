#include "muster/track/event_file.h"

#include <bit>
#include <chrono>
#include <limits>
#include <span>

#include <fmt/format.h>

#include "muster/base/crc32c.h"
#include "muster/base/text.h"

namespace muster::track {
namespace {

template <typename Unsigned>
void put_fixed(std::string& out, Unsigned value) {
  for (size_t i = 0; i < sizeof(value); ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

// Protobuf's wire types and the field numbers of TensorFlow's event.proto and summary.proto.
enum WireType : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
enum EventField : uint64_t {
  kWallTime = 1,
  kStep = 2,
  kFileVersion = 3,
  kSummary = 5,
  kSessionLog = 7
};
enum SummaryField : uint64_t { kValue = 1 };
enum ValueField : uint64_t { kTag = 1, kSimpleValue = 2 };
enum SessionLogField : uint64_t { kStatus = 1 };
constexpr uint64_t kSessionStart = 1;

void put_key(std::string& out, uint64_t field, WireType type) {
  put_varint(out, field << 3 | type);
}

void put_bytes(std::string& out, uint64_t field, std::string_view bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string event_head(double wall) {
  std::string event;
  put_key(event, kWallTime, kFixed64);
  put_fixed(event, std::bit_cast<uint64_t>(wall));
  return event;
}

void put_step(std::string& event, int64_t step) {
  put_key(event, kStep, kVarint);
  put_varint(event, static_cast<uint64_t>(step));
}

}  // namespace

std::string encode_record(std::string_view data) {
  std::string record;
  record.reserve(data.size() + 16);
  put_fixed(record, static_cast<uint64_t>(data.size()));
  put_fixed(record, masked_crc32c(std::as_bytes(std::span(record))));
  record += data;
  put_fixed(record, masked_crc32c(std::as_bytes(std::span(data))));
  return record;
}

std::string encode_file_version(double wall) {
  std::string event = event_head(wall);
  put_bytes(event, kFileVersion, "brain.Event:2");
  return event;
}

std::string encode_scalars(double wall, int64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  for (const auto& scalar : scalars) {
    std::string value;
    put_bytes(value, kTag, replace_invalid_utf8(scalar.tag));
    put_key(value, kSimpleValue, kFixed32);
    put_fixed(value, std::bit_cast<uint32_t>(scalar.value));
    put_bytes(summary, kValue, value);
  }
  std::string event = event_head(wall);
  put_step(event, step);
  put_bytes(event, kSummary, summary);
  return event;
}

std::string encode_session_start(double wall, int64_t step) {
  std::string session;
  put_key(session, kStatus, kVarint);
  put_varint(session, kSessionStart);
  std::string event = event_head(wall);
  put_step(event, step);
  put_bytes(event, kSessionLog, session);
  return event;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    valid += length > 0 ? text.substr(0, length) : std::string_view("\ufffd");
    text.remove_prefix(length > 0 ? length : 1);
  }
  return valid;
}

Result<EventFileWriter> EventFileWriter::create(FileSystem& fs, const std::string& directory,
                                                const Clock& clock) {
  const auto now = std::chrono::floor<std::chrono::seconds>(clock.wall().time_since_epoch());
  std::string path;
  for (int i = 0; path.empty() || fs.exists(path); ++i) {
    path = fmt::format("{}/events.out.tfevents.{:010}.muster.{}", directory, now.count(), i);
  }
  MUSTER_TRY(auto file, fs.create(path));
  EventFileWriter writer(clock, std::move(path), std::move(file));
  MUSTER_RETURN_IF_ERROR(writer.file_->append(encode_record(encode_file_version(writer.wall()))));
  return writer;
}

double EventFileWriter::wall() const {
  return std::chrono::duration<double>(clock_->wall().time_since_epoch()).count();
}

Status EventFileWriter::add(int64_t step, std::span<const Scalar> scalars) {
  return file_->append(encode_record(encode_scalars(wall(), step, scalars)));
}

Status EventFileWriter::resume_after(int64_t step) {
  // There is nothing beyond the last number there is.
  const int64_t first = step == std::numeric_limits<int64_t>::max() ? step : step + 1;
  return file_->append(encode_record(encode_session_start(wall(), first)));
}

}  // namespace muster::track
