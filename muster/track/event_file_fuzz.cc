// Any tags, values and steps: what the writer writes, a decoder reads back.
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "muster/base/check.h"
#include "muster/base/clock.h"
#include "muster/base/fault_injection_testing.h"
#include "muster/track/event_decoder_testing.h"
#include "muster/track/event_file.h"

namespace {

using muster::track::EventDecoder;
using muster::track::EventFileWriter;
using muster::track::Scalar;

// Takes values off the front of the input; zeros when it runs out.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  template <typename T>
  T take() {
    T value{};
    const size_t n = std::min(size_, sizeof(T));
    std::memcpy(&value, data_, n);
    data_ += n;
    size_ -= n;
    return value;
  }
  std::string take_text() {
    const size_t n = std::min<size_t>(size_, take<uint8_t>());
    const size_t have = std::min(n, size_);
    std::string text(reinterpret_cast<const char*>(data_), have);
    data_ += have;
    size_ -= have;
    return text;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

struct Written {
  bool restart = false;
  int64_t step = 0;
  std::vector<std::pair<std::string, float>> scalars;
};

void check_same(const Written& written, const muster::track::DecodedEvent& read) {
  if (written.restart) {
    MUSTER_CHECK(read.session_status == 1 && read.scalars.empty(), "a session start");
    return;
  }
  MUSTER_CHECK(read.step == written.step, "the step");
  MUSTER_CHECK(read.scalars.size() == written.scalars.size(), "how many scalars");
  for (size_t i = 0; i < read.scalars.size(); ++i) {
    const auto& [tag, value] = written.scalars[i];
    const auto& [read_tag, read_value] = read.scalars[i];
    MUSTER_CHECK(std::bit_cast<uint32_t>(value) == std::bit_cast<uint32_t>(read_value), "the bits");
    // A tag that is UTF-8 comes back as it is; one that is not comes back as UTF-8.
    MUSTER_CHECK(read_tag == muster::track::replace_invalid_utf8(tag), "the tag");
    MUSTER_CHECK(read_tag == muster::track::replace_invalid_utf8(read_tag), "a stable tag");
    MUSTER_CHECK(read_tag.size() >= tag.size(), "nothing of the tag is dropped");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  muster::FaultInjectionFileSystem fs;
  muster::FakeClock clock;
  auto writer = EventFileWriter::create(fs, "", clock);
  MUSTER_CHECK(writer.ok(), "created");
  std::vector<Written> all;
  while (!input.empty()) {
    Written event;
    const auto count = input.take<uint8_t>();
    event.step = input.take<int64_t>();
    event.restart = count == 255;
    if (event.restart) {
      MUSTER_CHECK(writer->resume_after(event.step).ok(), "written");
    } else {
      for (int i = 0; i < count % 8; ++i) {
        std::string tag = input.take_text();
        event.scalars.emplace_back(std::move(tag), input.take<float>());
      }
      std::vector<Scalar> scalars;
      for (const auto& [tag, value] : event.scalars) scalars.push_back({tag, value});
      MUSTER_CHECK(writer->add(event.step, scalars).ok(), "written");
    }
    all.push_back(std::move(event));
  }

  EventDecoder decoder;
  const auto events = decoder.decode_file(fs.contents(writer->path()));
  MUSTER_CHECK(events.has_value(), decoder.problem());
  MUSTER_CHECK(events->size() == all.size() + 1, "how many events");
  MUSTER_CHECK(events->front().file_version == "brain.Event:2", "the version comes first");
  for (size_t i = 0; i < all.size(); ++i) check_same(all[i], (*events)[i + 1]);
  return 0;
}
