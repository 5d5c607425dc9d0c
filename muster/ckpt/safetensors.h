// The safetensors format: a JSON header that names the tensors, then their bytes.
//
//   8 bytes    length of the header, little-endian
//   header     {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...,
//               "__metadata__": {"any": "text"}}, padded with spaces to a multiple of 8
//   the rest   the tensors' bytes, little-endian, row by row, without holes
//
// What is written here is, byte for byte, what Python's library writes for the same tensors. What
// is read is checked to the last byte: a file that Python's library refuses is refused here too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/file_system.h"
#include "muster/base/hash.h"
#include "muster/base/result.h"

namespace muster::ckpt {

// Spelled as in the file. In the order of the format's own library, which decides the order of
// tensors in a file: wide ones first, so that each is aligned to its element.
enum class DType {
  BOOL,
  U8,
  I8,
  F8_E5M2,
  F8_E4M3,
  I16,
  U16,
  F16,
  BF16,
  I32,
  U32,
  F32,
  C64,
  F64,
  I64,
  U64
};

std::string_view dtype_name(DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);
size_t dtype_size(DType dtype);

// Bytes of a tensor, or nothing if that does not fit 63 bits or a dimension is negative.
std::optional<uint64_t> tensor_bytes(DType dtype, std::span<const int64_t> shape);

// A tensor whose bytes belong to somebody else, who must outlive this.
struct TensorView {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
};

struct FileDigest {
  uint64_t size = 0;
  Hash128 hash;
  bool operator==(const FileDigest&) const = default;
};

// Creates `path` with these tensors, in the order of the format's library whatever their order
// here, and syncs it; the name is durable once the caller has synced the directory. An error leaves
// a broken file behind: write aside and rename what others may read.
//
// `progress` is called whenever the disk has taken a part: a file may be large and the disk slow,
// and whoever waits for it cannot tell that from one that hangs.
Result<FileDigest> write_safetensors(FileSystem& fs, const std::string& path,
                                     std::span<const TensorView> tensors,
                                     const std::map<std::string, std::string>& metadata = {},
                                     const std::function<void()>& progress = {});

// A file in memory. Movable; the views stay valid while it, or what it was moved to, lives.
class SafetensorsFile {
 public:
  // No larger header is believed: the limit of the format's library.
  static constexpr uint64_t kLargestHeader = 100'000'000;

  static Result<SafetensorsFile> open(FileSystem& fs, const std::string& path);
  // `name` stands for the file in errors.
  static Result<SafetensorsFile> parse(std::string bytes, const std::string& name);

  // In the order of their bytes. Aligned to their elements if the file comes from this library or
  // Python's; files from elsewhere promise nothing, so copy rather than cast.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  // Nothing if there is none of this name.
  const TensorView* find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  SafetensorsFile() = default;
  // On the heap, because moving a short std::string would move its bytes from under the views.
  std::unique_ptr<const std::string> bytes_;
  std::vector<TensorView> tensors_;
  std::map<std::string, size_t, std::less<>> by_name_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace muster::ckpt
