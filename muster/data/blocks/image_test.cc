#include "muster/data/blocks/image.h"

#include <cstring>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/hash.h"
#include "muster/data/blocks/formats_testing.h"
#include "muster/data/blocks/record.h"

namespace muster::data {
namespace {

using ::testing::HasSubstr;
using testing::testdata;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

Image decode(const std::string& name, size_t channels = 3) {
  auto image = decode_image(bytes_of(testdata("images/" + name)), channels);
  EXPECT_TRUE(image.ok()) << name << ": " << image.error().message();
  return *std::move(image);
}

std::string pixels(const Image& image) {
  return fmt::format("{} x {} x {} ", image.height, image.width, image.channels) +
         hash128(std::as_bytes(std::span(image.pixels.get(), image.size()))).hex();
}

std::string failure(const std::string& file, uint64_t most_pixels = kMostPixels) {
  auto image = decode_image(bytes_of(file), 3, most_pixels);
  return image.ok() ? "" : image.error().message();
}

TEST(ImageTest, DecodesToTheBitWhatPillowDecodes) {
  for (const std::string name : {"photo", "progressive", "grey", "cmyk", "tall"}) {
    EXPECT_EQ(pixels(decode(name + ".jpg")), pixels(decode(name + "-decoded.png"))) << name;
  }
}

TEST(ImageTest, ResizesToTheBitAsPillowDoes) {
  for (const std::string name : {"photo", "progressive", "grey", "cmyk", "tall"}) {
    EXPECT_EQ(pixels(fit_image(decode(name + ".jpg"), 32, 32, 32)),
              pixels(decode(name + "-fit32.png")))
        << name;
  }
  EXPECT_EQ(pixels(fit_image(decode("photo.jpg"), 100, 100, 0)), pixels(decode("photo-fit100.png")))
      << "enlarged";
}

// A change of library, of its settings or of the resizing shows here: it would change what every
// job on images trains on.
TEST(ImageTest, HasTheSamePixelsAsEver) {
  EXPECT_EQ(pixels(decode("photo.jpg")), "50 x 75 x 3 9594c2e879fc084f9486e39e365e12ed");
  EXPECT_EQ(pixels(fit_image(decode("photo.jpg"), 24, 40, 45)),
            "24 x 40 x 3 a739f836ebf16b1dfbbf236c6a408b22");
}

TEST(ImageTest, TheHashOfTheDecoderIsThatOfLibjpegTurbo21) {
  EXPECT_EQ(decoder_hash().hex(), "2dbc507e8ac29cd772b854294fcfc788");
}

TEST(ImageTest, TheHashOfDataWithImagesHasThatOfTheDecoder) {
  config::SourceOptions options;
  options.classes = 2;
  const auto hash = [&](std::string_view yaml, std::vector<int64_t> shape) {
    options.args = *config::parse_value(yaml, "test");
    config::ArgReader args(options.args, "test");
    const auto recipe = Recipe::make(options, args, {.input = {"x"}});
    Hasher hasher;
    recipe->add_to(*recipe->schema_with(std::move(shape), /*pixels=*/true), hasher);
    return hasher.finish();
  };
  EXPECT_NE(hash("{}", {3, 8, 8}), hash("{}", {192}));
  EXPECT_EQ(hash("{}", {100}), hash("{}", {192}));
  EXPECT_EQ(hash("{ shape: [3, 8, 8] }", {3, 8, 8}), hash("{ shape: [3, 8, 8] }", {192}))
      << "raw pixels are not decoded";
}

TEST(ImageTest, ReadsEveryKindOfPng) {
  const std::string photo = pixels(decode("photo.png"));
  EXPECT_EQ(pixels(decode("alpha.png")), photo) << "transparency is ignored";
  EXPECT_EQ(decode("palette.png").size(), decode("photo.png").size());
  const Image grey = decode("grey.png", 1);
  const Image grey3 = decode("grey.png", 3);
  for (size_t i = 0; i < grey.size(); ++i) ASSERT_EQ(grey3.pixels[3 * i + 1], grey.pixels[i]);
  EXPECT_EQ(pixels(decode("photo.png", 1)), pixels(grey)) << "the weights of convert('L')";
}

TEST(ImageTest, ReadsGreyJpegs) {
  EXPECT_EQ(decode("grey.jpg", 1).channels, 1U);
  EXPECT_EQ(decode("photo.jpg", 1).channels, 1U);
  EXPECT_EQ(decode("cmyk.jpg", 1).channels, 1U);
}

TEST(ImageTest, AnImageOfTheRightSizeStaysAsItIs) {
  const Image image = decode("photo.png");
  EXPECT_EQ(pixels(fit_image(image, image.height, image.width, 0)), pixels(image));
}

TEST(ImageTest, RefusesImagesThatAreCutShort) {
  for (const std::string name :
       {"photo.jpg", "progressive.jpg", "grey.jpg", "cmyk.jpg", "photo.png", "palette.png"}) {
    const std::string good = testdata("images/" + name);
    for (size_t size = 0; size + 1 < good.size(); size += 7) {
      EXPECT_NE(failure(good.substr(0, size)), "") << name << " " << size;
    }
  }
}

TEST(ImageTest, SaysWhatIsWrong) {
  EXPECT_THAT(failure("GIF89a.."), HasSubstr("neither JPEG nor PNG: it starts with 47 49 46"));
  EXPECT_THAT(failure(""), HasSubstr("empty"));
  const std::string jpeg = testdata("images/photo.jpg");
  EXPECT_THAT(failure(jpeg.substr(0, 1500)), HasSubstr("the JPEG image is damaged: "));
  EXPECT_THAT(failure(jpeg, 1000), HasSubstr("75 x 50 pixels; at most 1,000"));
  std::string png = testdata("images/photo.png");
  png[png.size() / 2] = static_cast<char>(png[png.size() / 2] ^ 1);
  EXPECT_THAT(failure(png), HasSubstr("the PNG image is damaged: "));
}

TEST(ImageTest, WritesPlanes) {
  Image image = Image::make(1, 2, 3);
  for (size_t i = 0; i < 6; ++i) image.pixels[i] = static_cast<uint8_t>(i);
  config::SourceOptions options;
  options.deviation = {2 / 255.0};
  std::vector<float> planes(6);
  write_planes(image, *PixelValues::make(*Scaling::make(options)), planes.data());
  EXPECT_THAT(planes, ::testing::ElementsAre(0, 1.5F, 0.5F, 2, 1, 2.5F));
  options.mean = {0, 1 / 255.0, 2 / 255.0};
  options.deviation = {1 / 255.0, 2 / 255.0, 4 / 255.0};
  write_planes(image, *PixelValues::make(*Scaling::make(options)), planes.data());
  EXPECT_THAT(planes, ::testing::ElementsAre(0, 3, 0, 1.5F, 0, 0.75F));
}

}  // namespace
}  // namespace muster::data
