#include "muster/ckpt/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <tuple>
#include <utility>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "muster/ckpt/safetensors_header.h"

namespace muster::ckpt {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensors are copied to and from the file as they are in memory");

// What a file is written in, and synced in: the one takes a slow disk seconds, the other less than
// anybody's patience.
constexpr size_t kPart = 16 << 20;
constexpr uint64_t kSyncEvery = 64 << 20;

struct DTypeRow {
  DType dtype;
  std::string_view name;
  size_t size;
};

constexpr std::array<DTypeRow, 16> kDTypes = {{
    {DType::BOOL, "BOOL", 1},
    {DType::U8, "U8", 1},
    {DType::I8, "I8", 1},
    {DType::F8_E5M2, "F8_E5M2", 1},
    {DType::F8_E4M3, "F8_E4M3", 1},
    {DType::I16, "I16", 2},
    {DType::U16, "U16", 2},
    {DType::F16, "F16", 2},
    {DType::BF16, "BF16", 2},
    {DType::I32, "I32", 4},
    {DType::U32, "U32", 4},
    {DType::F32, "F32", 4},
    {DType::C64, "C64", 8},
    {DType::F64, "F64", 8},
    {DType::I64, "I64", 8},
    {DType::U64, "U64", 8},
}};

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Error bad_file(const std::string& name, std::string_view problem) {
  return Error(ErrorKind::kCheckpoint,
               "'{}' is not a sound safetensors file: {}; use another copy of it or an earlier "
               "checkpoint",
               name, problem);
}

// A name or metadata text as JSON, quotes included, or nothing if it is not UTF-8.
std::optional<std::string> quoted(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

Status check_tensor(const TensorView& tensor) {
  const auto size = tensor_bytes(tensor.dtype, tensor.shape);
  if (!size || *size != tensor.data.size()) {
    return Error(ErrorKind::kInternal,
                 "tensor '{}' of type {} and shape {} cannot be saved: it has {} bytes",
                 tensor.name, dtype_name(tensor.dtype), shape_text(tensor.shape),
                 tensor.data.size());
  }
  if (tensor.name == "__metadata__") {
    return Error(ErrorKind::kJob,
                 "a tensor cannot be saved as '__metadata__': the format keeps that name for "
                 "itself; rename the layer");
  }
  return {};
}

// The format's own order: wide types first, then by name.
std::vector<const TensorView*> in_file_order(std::span<const TensorView> tensors) {
  std::vector<const TensorView*> sorted;
  sorted.reserve(tensors.size());
  for (const auto& tensor : tensors) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(), [](const TensorView* a, const TensorView* b) {
    return a->dtype != b->dtype ? a->dtype > b->dtype : a->name < b->name;
  });
  return sorted;
}

Result<std::string> encode_header(std::span<const TensorView* const> tensors,
                                  const std::map<std::string, std::string>& metadata) {
  std::string json = "{";
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      const auto quoted_key = quoted(key);
      const auto quoted_value = quoted(value);
      if (!quoted_key || !quoted_value) {
        return Error(ErrorKind::kInternal, "checkpoint metadata must be UTF-8 text");
      }
      if (json.back() != '{') json += ',';
      json += *quoted_key + ':' + *quoted_value;
    }
    json += '}';
  }
  uint64_t offset = 0;
  for (const TensorView* tensor : tensors) {
    const auto name = quoted(tensor->name);
    if (!name) {
      return Error(ErrorKind::kJob,
                   "a tensor's name is not UTF-8, so it cannot be saved; rename the layer");
    }
    if (json.size() > 1) json += ',';
    const uint64_t end = offset + tensor->data.size();
    json += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", *name,
                        dtype_name(tensor->dtype), fmt::join(tensor->shape, ","), offset, end);
    offset = end;
  }
  json += '}';
  json.append((8 - json.size() % 8) % 8, ' ');
  if (json.size() > SafetensorsFile::kLargestHeader) {
    return Error(ErrorKind::kCheckpoint,
                 "the names of {} tensors do not fit the safetensors header of at most 100 MB",
                 tensors.size());
  }
  return json;
}

}  // namespace

std::string_view dtype_name(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].name; }
size_t dtype_size(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].size; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const auto& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

std::optional<uint64_t> tensor_bytes(DType dtype, std::span<const int64_t> shape) {
  int64_t bytes = static_cast<int64_t>(dtype_size(dtype));
  for (const int64_t dimension : shape) {
    if (dimension < 0 || __builtin_mul_overflow(bytes, dimension, &bytes)) return std::nullopt;
  }
  return static_cast<uint64_t>(bytes);
}

Result<FileDigest> write_safetensors(FileSystem& fs, const std::string& path,
                                     std::span<const TensorView> tensors,
                                     const std::map<std::string, std::string>& metadata,
                                     const std::function<void()>& progress) {
  const auto sorted = in_file_order(tensors);
  std::vector<std::string_view> names;
  for (const TensorView* tensor : sorted) {
    MUSTER_RETURN_IF_ERROR(check_tensor(*tensor));
    names.push_back(tensor->name);
  }
  std::sort(names.begin(), names.end());
  if (const auto twin = std::adjacent_find(names.begin(), names.end()); twin != names.end()) {
    return Error(ErrorKind::kJob, "two tensors are called '{}'; rename one of the layers", *twin);
  }
  MUSTER_TRY(const std::string header, encode_header(sorted, metadata));
  char length[8];
  const uint64_t header_size = header.size();
  std::memcpy(length, &header_size, sizeof(length));

  MUSTER_TRY(auto file, fs.create(path));
  Hasher hasher;
  FileDigest digest;
  const auto append_part = [&](std::span<const std::byte> bytes) -> Status {
    hasher.add(bytes);
    MUSTER_RETURN_IF_ERROR(file->append(bytes));
    // Now and then down to the disk, so that the sync at the end does not have it all before it.
    const uint64_t before = std::exchange(digest.size, digest.size + bytes.size());
    if (before / kSyncEvery != digest.size / kSyncEvery) MUSTER_RETURN_IF_ERROR(file->sync());
    if (progress) progress();
    return {};
  };
  const auto append = [&](std::span<const std::byte> bytes) -> Status {
    for (; bytes.size() > kPart; bytes = bytes.subspan(kPart)) {
      MUSTER_RETURN_IF_ERROR(append_part(bytes.first(kPart)));
    }
    return append_part(bytes);
  };
  MUSTER_RETURN_IF_ERROR(append(std::as_bytes(std::span(length))));
  MUSTER_RETURN_IF_ERROR(append(std::as_bytes(std::span(header))));
  for (const TensorView* tensor : sorted) MUSTER_RETURN_IF_ERROR(append(tensor->data));
  MUSTER_RETURN_IF_ERROR(file->sync());
  if (progress) progress();
  MUSTER_RETURN_IF_ERROR(file->close());
  digest.hash = hasher.finish();
  return digest;
}

Result<SafetensorsFile> SafetensorsFile::open(FileSystem& fs, const std::string& path) {
  MUSTER_TRY(std::string bytes, fs.read(path));
  return parse(std::move(bytes), path);
}

Result<SafetensorsFile> SafetensorsFile::parse(std::string bytes, const std::string& name) {
  SafetensorsFile file;
  file.bytes_ = std::make_unique<const std::string>(std::move(bytes));
  const std::string& all = *file.bytes_;
  uint64_t header_size = 0;
  if (all.size() < sizeof(header_size)) {
    return bad_file(name, fmt::format("it has only {} bytes", all.size()));
  }
  std::memcpy(&header_size, all.data(), sizeof(header_size));
  if (header_size > kLargestHeader || header_size > all.size() - sizeof(header_size)) {
    return bad_file(name, fmt::format("its header would be {} bytes long, the file has {}",
                                      header_size, all.size()));
  }

  internal::Header header;
  const std::string problem = internal::parse_header(
      std::string_view(all).substr(sizeof(header_size), header_size), header);
  if (!problem.empty()) return bad_file(name, problem);
  file.metadata_ = std::move(header.metadata);

  const auto data = std::as_bytes(std::span(all)).subspan(sizeof(header_size) + header_size);
  // Empty tensors share their place with a neighbour, so the end decides between equal beginnings.
  std::sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  uint64_t expected = 0;
  for (auto& entry : header.entries) {
    const auto size = tensor_bytes(entry.dtype, entry.shape);
    // Contiguous from 0 means no overlap and no hole, where something could hide.
    if (entry.begin != expected || entry.end < entry.begin || entry.end > data.size()) {
      return bad_file(name, fmt::format("tensor '{}' takes bytes {} to {}, expected to begin at {} "
                                        "and to end within {}",
                                        entry.name, entry.begin, entry.end, expected, data.size()));
    }
    if (!size || *size != entry.end - entry.begin) {
      return bad_file(name, fmt::format("tensor '{}' of type {} and shape {} has {} bytes",
                                        entry.name, dtype_name(entry.dtype),
                                        shape_text(entry.shape), entry.end - entry.begin));
    }
    expected = entry.end;
    file.by_name_.emplace(entry.name, file.tensors_.size());
    file.tensors_.push_back(TensorView{std::move(entry.name), entry.dtype, std::move(entry.shape),
                                       data.subspan(entry.begin, *size)});
  }
  if (expected != data.size()) {
    return bad_file(name,
                    fmt::format("{} bytes at its end belong to no tensor", data.size() - expected));
  }
  return file;
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace muster::ckpt
