#include "muster/pt2/program.h"

#include <algorithm>
#include <array>

#include "muster/base/check.h"
#include "muster/pt2/read_program.h"

namespace muster::pt2 {
namespace {

struct DTypeRow {
  DType dtype;
  size_t size;
  std::string_view name;
};

constexpr std::array<DTypeRow, 10> kDTypes = {{
    {DType::kUint8, 1, "uint8"},
    {DType::kInt8, 1, "int8"},
    {DType::kInt16, 2, "int16"},
    {DType::kInt32, 4, "int32"},
    {DType::kInt64, 8, "int64"},
    {DType::kFloat16, 2, "float16"},
    {DType::kFloat32, 4, "float32"},
    {DType::kFloat64, 8, "float64"},
    {DType::kBool, 1, "bool"},
    {DType::kBFloat16, 2, "bfloat16"},
}};

const DTypeRow& row_of(DType dtype) {
  const auto* found = std::ranges::find(kDTypes, dtype, &DTypeRow::dtype);
  MUSTER_CHECK(found != kDTypes.end(), "only these are read");
  return *found;
}

}  // namespace

size_t dtype_size(DType dtype) { return row_of(dtype).size; }
std::string_view dtype_name(DType dtype) { return row_of(dtype).name; }

std::string Place::text() const {
  if (file.empty()) return "an unknown line";
  if (code.empty()) return fmt::format("{}, line {}", file, line);
  return fmt::format("{}, line {}: `{}`", file, line, code);
}

const Argument* Node::find(std::string_view name) const {
  const auto found = std::ranges::find(inputs, name, &NamedArgument::name);
  return found == inputs.end() ? nullptr : &found->value;
}

int64_t Weight::elements() const {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

bool Weight::is_contiguous() const {
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] != 1 && strides[i] != stride) return elements() == 0;
    stride *= sizes[i];
  }
  return true;
}

bool Weight::is_same(const Weight& other) const {
  return !data.empty() && entry == other.entry && data.data() == other.data.data() &&
         dtype == other.dtype && sizes == other.sizes && strides == other.strides;
}

Result<File> File::open(const std::string& path) {
  MUSTER_TRY(auto mapped, MappedFile::open(path));
  MUSTER_TRY(auto file, parse(mapped.bytes(), path));
  file.mapped_ = std::make_unique<MappedFile>(std::move(mapped));
  return file;
}

Result<File> File::parse(std::span<const std::byte> bytes, const std::string& name) {
  File file;
  file.bytes_ = bytes;
  MUSTER_TRY(file.entries_, read_zip(bytes, name));
  MUSTER_TRY(file.program_, internal::read_program(file.entries_, name));
  return file;
}

Hash128 File::hash() const { return hash128(bytes_); }

}  // namespace muster::pt2
