#include "muster/track/event_file.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/fault_injection_testing.h"
#include "muster/track/event_decoder_testing.h"

namespace muster::track {
namespace {

using testing::ElementsAre;
using testing::Pair;

std::string hex(std::string_view bytes) {
  std::string text;
  for (const unsigned char c : bytes) text += fmt::format("{:02x}", c);
  return text;
}

// The bytes are what TensorBoard's own RecordWriter and protobuf classes make of the same events.
TEST(EventFile, WritesByteForByteWhatTensorBoardWrites) {
  const double wall = 1772368205.5;
  const Scalar scalars[] = {{"train/loss", 2.25f}, {"lr", 0.5f}};
  EXPECT_EQ(hex(encode_record(encode_file_version(wall))),
            "1800000000000000a37f4b2209000060530c69da411a0d627261696e2e4576656e743a32a0bf633d");
  EXPECT_EQ(hex(encode_record(encode_scalars(wall, 300, scalars))),
            "2c00000000000000f4aecc4509000060530c69da4110ac022a1e0a110a0a"
            "747261696e2f6c6f737315000010400a090a026c72150000003f325bce50");
  EXPECT_EQ(hex(encode_record(encode_session_start(wall, 301))),
            "100000000000000095fbfe1809000060530c69da4110ad023a0208010b908ddd");
}

TEST(EventFile, IsReadBack) {
  FaultInjectionFileSystem fs;
  FakeClock clock{WallTime{std::chrono::seconds(1772368205)}};
  auto writer = EventFileWriter::create(fs, ".", clock);
  ASSERT_TRUE(writer.ok()) << writer.error().message();
  clock.advance(std::chrono::milliseconds(1500));
  const float inf = std::numeric_limits<float>::infinity();
  ASSERT_TRUE(writer->add(1, std::vector<Scalar>{{"a", 1.5f}, {"", -0.0f}, {"b\xff", inf}}).ok());
  ASSERT_TRUE(writer->add(int64_t{1} << 40, {}).ok());
  ASSERT_TRUE(writer->add(-1, std::vector<Scalar>{{std::string_view("a\0b", 3), NAN}}).ok());
  ASSERT_TRUE(writer->resume_after(20).ok());

  EventDecoder decoder;
  const auto events = decoder.decode_file(*fs.read(writer->path()));
  ASSERT_TRUE(events.has_value()) << decoder.problem();
  ASSERT_EQ(events->size(), 5u);
  EXPECT_EQ(events->at(0).file_version, "brain.Event:2");
  EXPECT_EQ(events->at(0).wall, 1772368205);
  EXPECT_EQ(events->at(1).wall, 1772368206.5);
  EXPECT_EQ(events->at(1).step, 1);
  EXPECT_THAT(events->at(1).scalars,
              ElementsAre(Pair("a", 1.5f), Pair("", -0.0f), Pair("b\ufffd", inf)));
  EXPECT_EQ(events->at(2).step, int64_t{1} << 40);
  EXPECT_EQ(events->at(3).step, -1);
  EXPECT_TRUE(std::isnan(events->at(3).scalars.at(0).second));
  EXPECT_EQ(events->at(3).scalars.at(0).first, std::string("a\0b", 3));
  EXPECT_EQ(events->at(4).session_status, 1u);
  EXPECT_EQ(events->at(4).step, 21) << "the first step that is void";
}

TEST(EventFile, TheDecoderNoticesAFlippedBit) {
  const Scalar scalar[] = {{"loss", 1}};
  std::string file = encode_record(encode_scalars(0, 1, scalar));
  for (size_t i = 0; i < file.size(); ++i) {
    file[i] ^= 4;
    EXPECT_FALSE(EventDecoder().decode_file(file).has_value()) << "byte " << i;
    file[i] ^= 4;
  }
}

TEST(EventFile, TwoInOneSecondDoNotShareAFile) {
  FaultInjectionFileSystem fs;
  const FakeClock clock{WallTime{std::chrono::seconds(1772368205)}};
  ASSERT_TRUE(EventFileWriter::create(fs, ".", clock).ok());
  ASSERT_TRUE(EventFileWriter::create(fs, ".", clock).ok());
  EXPECT_THAT(*fs.list("."), ElementsAre("events.out.tfevents.1772368205.muster.0",
                                         "events.out.tfevents.1772368205.muster.1"));
}

TEST(EventFile, InvalidUtf8IsReplacedByteByByte) {
  EXPECT_EQ(replace_invalid_utf8("train/loss"), "train/loss");
  EXPECT_EQ(replace_invalid_utf8("\u00e9\u20ac\U0001f600"), "\u00e9\u20ac\U0001f600");
  EXPECT_EQ(replace_invalid_utf8("a\x80z"), "a\ufffdz");
  EXPECT_EQ(replace_invalid_utf8("\xc3"), "\ufffd");                                // cut short
  EXPECT_EQ(replace_invalid_utf8("\xc0\x80"), "\ufffd\ufffd");                      // overlong
  EXPECT_EQ(replace_invalid_utf8("\xe0\x80\x80"), "\ufffd\ufffd\ufffd");            // overlong
  EXPECT_EQ(replace_invalid_utf8("\xed\xa0\x80"), "\ufffd\ufffd\ufffd");            // surrogate
  EXPECT_EQ(replace_invalid_utf8("\xf4\x90\x80\x80"), "\ufffd\ufffd\ufffd\ufffd");  // too large
  EXPECT_EQ(replace_invalid_utf8("\xf4\x8f\xbf\xbf"), "\xf4\x8f\xbf\xbf");          // the last one
}

}  // namespace
}  // namespace muster::track
