#include "muster/ckpt/safetensors.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/fault_injection_testing.h"

namespace muster::ckpt {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// What Python wrote:
//   safetensors.numpy.save({
//     "conv1.weight": np.array([[1.5, -2], [0, 3.25]], np.float32),
//     "bn.num_batches_tracked": np.array(7, np.int64),
//     "flags": np.array([True, False, True]),
//     "empty": np.zeros((0, 3), np.float16)}, metadata={"format": "pt"})
std::string written_by_python() {
  using namespace std::string_literals;
  return "(\x01\0\0\0\0\0\0"s
         R"({"__metadata__":{"format":"pt"},)"
         R"("bn.num_batches_tracked":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
         R"("conv1.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[8,24]},)"
         R"("empty":{"dtype":"F16","shape":[0,3],"data_offsets":[24,24]},)"
         R"("flags":{"dtype":"BOOL","shape":[3],"data_offsets":[24,27]}}   )"
         "\x07\0\0\0\0\0\0\0"
         "\0\0\xc0\x3f\0\0\0\xc0\0\0\0\0\0\0\x50\x40"
         "\x01\0\x01"s;
}

template <typename T>
TensorView view(std::string name, DType dtype, std::vector<int64_t> shape,
                const std::vector<T>& values) {
  return {std::move(name), dtype, std::move(shape), std::as_bytes(std::span(values))};
}

std::string file_with(const std::string& header, const std::string& data = "") {
  const uint64_t size = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &size, 8);
  return bytes + header + data;
}

std::string error_of(std::string bytes) {
  const auto file = SafetensorsFile::parse(std::move(bytes), "w.safetensors");
  if (file.ok()) return "no error";
  EXPECT_EQ(file.error().kind(), ErrorKind::kCheckpoint);
  EXPECT_THAT(file.error().message(), HasSubstr("w.safetensors"));
  return file.error().message();
}

TEST(Safetensors, ReadsWhatPythonWrote) {
  auto parsed = SafetensorsFile::parse(written_by_python(), "python.safetensors");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message();
  const SafetensorsFile file = std::move(*parsed);  // views survive a move
  EXPECT_THAT(file.metadata(), ElementsAre(testing::Pair("format", "pt")));
  ASSERT_EQ(file.tensors().size(), 4u);

  const TensorView* weight = file.find("conv1.weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->dtype, DType::F32);
  EXPECT_THAT(weight->shape, ElementsAre(2, 2));
  float values[4];
  ASSERT_EQ(weight->data.size(), sizeof(values));
  std::memcpy(values, weight->data.data(), sizeof(values));
  EXPECT_THAT(values, ElementsAre(1.5f, -2.0f, 0.0f, 3.25f));

  EXPECT_EQ(file.find("bn.num_batches_tracked")->data.size(), 8u);
  EXPECT_TRUE(file.find("bn.num_batches_tracked")->shape.empty());
  EXPECT_TRUE(file.find("empty")->data.empty());
  EXPECT_EQ(file.find("conv2.weight"), nullptr);
}

TEST(Safetensors, WritesByteForByteWhatPythonWrites) {
  const std::vector<float> weight = {1.5f, -2.0f, 0.0f, 3.25f};
  const std::vector<int64_t> batches = {7};
  const std::vector<uint8_t> flags = {1, 0, 1};
  const std::vector<uint16_t> empty;
  const std::vector<TensorView> tensors = {view("flags", DType::BOOL, {3}, flags),
                                           view("conv1.weight", DType::F32, {2, 2}, weight),
                                           view("empty", DType::F16, {0, 3}, empty),
                                           view("bn.num_batches_tracked", DType::I64, {}, batches)};
  FaultInjectionFileSystem fs;
  const auto digest = write_safetensors(fs, "w", tensors, {{"format", "pt"}});
  ASSERT_TRUE(digest.ok()) << digest.error().message();
  const std::string bytes = *fs.read("w");
  EXPECT_EQ(bytes, written_by_python());
  EXPECT_EQ(digest->size, bytes.size());
  EXPECT_EQ(digest->hash, hash128(std::as_bytes(std::span(bytes))));
}

// The strings are Python's output for the same names.
TEST(Safetensors, EscapesNamesAsPythonDoes) {
  const std::vector<uint8_t> zero = {0};
  FaultInjectionFileSystem fs;
  ASSERT_TRUE(write_safetensors(fs, "w",
                                std::vector{view("a\"\n\x01\x7f\u00e9\\/", DType::U8, {1}, zero)},
                                {{"b", "1"}})
                  .ok());
  EXPECT_EQ(fs.read("w")->substr(8),
            std::string(R"({"__metadata__":{"b":"1"},"a\"\n\u0001)"
                        "\x7f\u00e9"
                        R"(\\/":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}  )") +
                '\0');
  ASSERT_TRUE(write_safetensors(fs, "none", {}).ok());
  EXPECT_EQ(*fs.read("none"), file_with("{}      "));
}

TEST(Safetensors, EveryTypeComesBackAligned) {
  const std::vector<uint64_t> storage(4, 0x0123456789abcdef);
  std::vector<TensorView> tensors;
  for (int i = 0; i <= static_cast<int>(DType::U64); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
    tensors.push_back({std::string(dtype_name(dtype)),
                       dtype,
                       {3},
                       std::as_bytes(std::span(storage)).first(3 * dtype_size(dtype))});
  }
  FaultInjectionFileSystem fs;
  ASSERT_TRUE(write_safetensors(fs, "w", tensors).ok());
  const auto file = SafetensorsFile::open(fs, "w");
  ASSERT_TRUE(file.ok()) << file.error().message();
  for (const auto& tensor : tensors) {
    const TensorView* read = file->find(tensor.name);
    ASSERT_NE(read, nullptr) << tensor.name;
    EXPECT_EQ(read->dtype, tensor.dtype);
    EXPECT_EQ(std::memcmp(read->data.data(), tensor.data.data(), tensor.data.size()), 0);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(read->data.data()) % dtype_size(tensor.dtype), 0u);
  }
}

TEST(Safetensors, RefusesToWriteWhatCouldNotBeRead) {
  const std::vector<float> two = {1, 2};
  FaultInjectionFileSystem fs;
  const auto write = [&](std::vector<TensorView> tensors) {
    const auto written = write_safetensors(fs, "w", tensors);
    return written.ok() ? std::string("no error") : written.error().message();
  };
  EXPECT_THAT(write({view("a", DType::F32, {3}, two)}), HasSubstr("has 8 bytes"));
  EXPECT_THAT(write({view("a", DType::F32, {-2}, two)}), HasSubstr("cannot be saved"));
  EXPECT_THAT(write({view("a", DType::F32, {2}, two), view("a", DType::F64, {1}, two)}),
              HasSubstr("two tensors are called 'a'"));
  EXPECT_THAT(write({view("__metadata__", DType::F32, {2}, two)}), HasSubstr("rename the layer"));
  EXPECT_THAT(write({view("\xff", DType::F32, {2}, two)}), HasSubstr("not UTF-8"));
  EXPECT_FALSE(fs.exists("w")) << "nothing is created before all is checked";
}

TEST(Safetensors, TellsWhatIsWrongWithAFile) {
  const auto entry = [](const std::string& dtype, const std::string& shape,
                        const std::string& offsets) {
    return R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" +
           offsets + "}}";
  };
  const std::string eight(8, 'x');
  EXPECT_EQ(error_of(file_with(entry("F32", "[2]", "[0,8]"), eight)), "no error");
  EXPECT_EQ(error_of(file_with(entry("F32", "[2]", "[0,8]") + "   ", eight)), "no error");

  EXPECT_THAT(error_of("1234567"), HasSubstr("only 7 bytes"));
  EXPECT_THAT(error_of(std::string(8, '\xff')), HasSubstr("its header would be"));
  EXPECT_THAT(error_of(file_with("{}").substr(0, 9)), HasSubstr("its header would be 2 bytes"));
  EXPECT_THAT(error_of(file_with("")), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(error_of(file_with(" {}")), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(error_of(file_with("[]")), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(error_of(file_with("{\"a\":")), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(file_with("{}{}")), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(file_with("{\"\xff\":{}}")), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(file_with(R"({"a":{}})")), HasSubstr("lacks dtype"));
  EXPECT_THAT(error_of(file_with(R"({"a":[]})")), HasSubstr("a list where it does not belong"));
  EXPECT_THAT(error_of(file_with(R"({"a":{"more":1}})")), HasSubstr("unknown field 'more'"));
  EXPECT_THAT(error_of(file_with(R"({"__metadata__":{"a":1}})")), HasSubstr("a number where"));
  EXPECT_THAT(error_of(file_with(R"({"__metadata__":{"a":"","a":""}})")), HasSubstr("twice"));

  const std::string sound = entry("U8", "[8]", "[0,8]");
  EXPECT_THAT(error_of(file_with(sound.substr(0, sound.size() - 1) + "," + sound.substr(1), eight)),
              HasSubstr("'a' is there twice"));
  EXPECT_THAT(error_of(file_with(entry("F33", "[2]", "[0,8]"), eight)),
              HasSubstr("unknown dtype 'F33'"));
  EXPECT_THAT(error_of(file_with(entry("F32", "[3]", "[0,8]"), eight)),
              HasSubstr("shape [3] has 8 bytes"));
  EXPECT_THAT(error_of(file_with(entry("F32", "[-2]", "[0,8]"), eight)),
              HasSubstr("a negative number"));
  EXPECT_THAT(error_of(file_with(entry("F32", "[2.0]", "[0,8]"), eight)),
              HasSubstr("not a 64-bit integer"));
  EXPECT_THAT(error_of(file_with(entry("F32", "[[2]]", "[0,8]"), eight)),
              HasSubstr("a list where"));
  EXPECT_THAT(error_of(file_with(entry("F32", "[2]", "[8,0]"), eight)),
              HasSubstr("takes bytes 8 to 0"));
  EXPECT_THAT(error_of(file_with(entry("F32", "[2]", "[0,8,9]"), eight)),
              HasSubstr("more than two"));
  EXPECT_THAT(error_of(file_with(entry("F32", "[2]", "[0]"), eight)), HasSubstr("1 of the two"));
  EXPECT_THAT(error_of(file_with(entry("F32", "[2]", "[0,8]"), "short")),
              HasSubstr("to end within 5"));
  EXPECT_THAT(error_of(file_with(entry("F32", "[2]", "[0,8]"), eight + "!")),
              HasSubstr("1 bytes at its end"));
  // 2^61 elements of 8 bytes are 2^64 bytes, which would wrap to 0.
  EXPECT_THAT(error_of(file_with(entry("F64", "[2305843009213693952]", "[0,0]"))),
              HasSubstr("has 0 bytes"));
  EXPECT_THAT(error_of(file_with(entry("U8", "[18446744073709551615]", "[0,0]"))),
              HasSubstr("has a dimension of 18446744073709551615"));
}

TEST(Safetensors, RefusesHolesAndOverlaps) {
  const auto two = [](const std::string& b_offsets) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
           R"("b":{"dtype":"U8","shape":[4],"data_offsets":)" +
           b_offsets + "}}";
  };
  EXPECT_EQ(error_of(file_with(two("[4,8]"), std::string(8, 'x'))), "no error");
  EXPECT_THAT(error_of(file_with(two("[5,9]"), std::string(9, 'x'))),
              AllOf(HasSubstr("tensor 'b'"), HasSubstr("expected to begin at 4")));
  EXPECT_THAT(error_of(file_with(two("[3,7]"), std::string(7, 'x'))),
              HasSubstr("expected to begin at 4"));
}

TEST(Safetensors, DeepNestingDoesNotOverflowTheStack) {
  EXPECT_THAT(error_of(file_with("{\"a\":" + std::string(1 << 20, '['))),
              HasSubstr("a list where"));
}

}  // namespace
}  // namespace muster::ckpt
