// IDX: two zero bytes, the element's type, the number of dimensions, then each dimension as a
// 32-bit big-endian number, then the elements, the last dimension running fastest.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "muster/base/check.h"
#include "muster/base/text.h"
#include "muster/data/formats.h"
#include "muster/data/scaling.h"

namespace muster::data {
namespace {

enum class Role { kImages, kLabels };

struct IdxArray {
  std::string name;
  std::vector<uint64_t> dimensions;  // the first is the number of samples
  // Not zeroed first: for MNIST that would cost a tenth of the time to open.
  std::unique_ptr<uint8_t[]> bytes;
  uint64_t size = 0;
};

std::string_view type_name(uint8_t code) {
  switch (code) {
    case 0x08:
      return "unsigned bytes";
    case 0x09:
      return "signed bytes";
    case 0x0B:
      return "16-bit integers";
    case 0x0C:
      return "32-bit integers";
    case 0x0D:
      return "32-bit floats";
    case 0x0E:
      return "64-bit floats";
    default:
      return "";
  }
}

Error too_short(const ByteReader& reader, std::string_view what) {
  return Error(ErrorKind::kData, "'{}' is cut short in {}; fetch it again", reader.name(), what);
}

Status read_exactly(ByteReader& reader, std::span<std::byte> into, std::string_view what) {
  MUSTER_TRY(const size_t got, reader.read(into));
  if (got < into.size()) return too_short(reader, what);
  return {};
}

// Checks the first four bytes and returns the number of dimensions.
Result<size_t> read_magic(ByteReader& reader, Role role) {
  std::array<uint8_t, 4> magic{};
  MUSTER_RETURN_IF_ERROR(
      read_exactly(reader, std::as_writable_bytes(std::span(magic)), "its IDX header"));
  const std::string_view type = type_name(magic[2]);
  if (magic[0] != 0 || magic[1] != 0 || type.empty() || magic[3] == 0) {
    return Error(ErrorKind::kData,
                 "'{}' is not an IDX file: it starts with {:02x} {:02x} {:02x} {:02x}, not with "
                 "00 00 08",
                 reader.name(), magic[0], magic[1], magic[2], magic[3]);
  }
  if (magic[2] != 0x08) {
    return Error(ErrorKind::kData,
                 "'{}' holds {}; only IDX files of unsigned bytes can be read: convert it",
                 reader.name(), type);
  }
  const size_t rank = magic[3];
  if (role == Role::kImages && rank == 1) {
    return Error(ErrorKind::kData,
                 "'{}' holds labels (one dimension), not images; are `images` and `labels` "
                 "swapped?",
                 reader.name());
  }
  if (role == Role::kLabels && rank != 1) {
    return Error(ErrorKind::kData,
                 "'{}' holds images ({} dimensions), not labels; are `images` and `labels` "
                 "swapped?",
                 reader.name(), rank);
  }
  if (rank > 4) {
    return Error(ErrorKind::kData, "'{}' has {} dimensions; images have at most 4 (N, C, H, W)",
                 reader.name(), rank);
  }
  return rank;
}

Result<IdxArray> read_array(ByteReader reader, Role role) {
  MUSTER_TRY(const size_t rank, read_magic(reader, role));
  IdxArray array{.name = reader.name(), .dimensions = {}, .bytes = nullptr, .size = 1};
  for (size_t i = 0; i < rank; ++i) {
    std::array<uint8_t, 4> be{};
    MUSTER_RETURN_IF_ERROR(
        read_exactly(reader, std::as_writable_bytes(std::span(be)), "its IDX header"));
    const uint64_t dimension =
        uint64_t{be[0]} << 24 | uint64_t{be[1]} << 16 | uint64_t{be[2]} << 8 | uint64_t{be[3]};
    if (dimension == 0) {
      return Error(ErrorKind::kData, "'{}' holds {}; use a file that has some", array.name,
                   i == 0 ? "no samples" : "images without pixels");
    }
    array.dimensions.push_back(dimension);
    // What is more than the file can hold ends here, before anything is allocated.
    if (__builtin_mul_overflow(array.size, dimension, &array.size) ||
        array.size > reader.at_most()) {
      return Error(ErrorKind::kData,
                   "'{}' is cut short or not what it says: its header claims more bytes than the "
                   "file can hold; fetch it again",
                   array.name);
    }
  }
  array.bytes = std::make_unique_for_overwrite<uint8_t[]>(array.size);
  const auto into = std::as_writable_bytes(std::span(array.bytes.get(), array.size));
  MUSTER_TRY(const size_t got, reader.read(into));
  if (got < array.size) {
    return Error(ErrorKind::kData,
                 "'{}' is cut short: its header promises {} bytes and {} are there; fetch it again",
                 array.name, with_commas(array.size), with_commas(got));
  }
  // Reading on also makes a gzipped file prove its checksum.
  std::byte beyond{};
  MUSTER_TRY(const size_t more, reader.read(std::span(&beyond, 1)));
  if (more != 0) {
    return Error(ErrorKind::kData,
                 "'{}' goes on after the {} bytes that its header promises; fetch it again",
                 array.name, with_commas(array.size));
  }
  return array;
}

// How many classes there are, all labels being below that.
Result<int64_t> count_classes(const IdxArray& labels, int64_t wanted) {
  const std::span values(labels.bytes.get(), labels.size);
  const uint8_t largest = *std::max_element(values.begin(), values.end());
  if (wanted < 0) return Error(ErrorKind::kJob, "`classes` must not be negative");
  // From the whole file, not from the part of it in use: parts must agree.
  if (wanted == 0) return int64_t{largest} + 1;
  if (largest >= wanted) {
    const auto bad =
        std::find_if(values.begin(), values.end(), [&](uint8_t label) { return label >= wanted; });
    return Error(ErrorKind::kData,
                 "'{}': sample {} (the first is 0) has the label {}, but labels go from 0 to {}; "
                 "correct the file, or set `classes: {}`",
                 labels.name, bad - values.begin(), *bad, wanted - 1, int64_t{largest} + 1);
  }
  return wanted;
}

class IdxDataset final : public Dataset {
 public:
  IdxDataset(IdxArray images, IdxArray labels, Schema schema, Slice chosen, PixelValues values)
      : images_(std::move(images)),
        labels_(std::move(labels)),
        schema_(std::move(schema)),
        chosen_(chosen),
        pixels_(schema_.input_elements()),
        values_(std::move(values)) {}

  const Schema& schema() const override { return schema_; }
  uint64_t size() const override { return chosen_.count; }

  void read(uint64_t index, std::byte* input, std::byte* target) const override {
    MUSTER_CHECK(index < chosen_.count, "a sample lies within the data");
    const uint64_t sample = chosen_.first + index;
    const uint8_t* from = images_.bytes.get() + sample * pixels_;
    auto* to = reinterpret_cast<float*>(input);
    values_.put({from, pixels_}, static_cast<size_t>(schema_.input_shape[0]), to);
    *reinterpret_cast<int64_t*>(target) = labels_.bytes[sample];
  }

 private:
  void add_contents(Hasher& hasher) const override {
    values_.add_to(hasher);
    hasher.add(images_.bytes.get() + chosen_.first * pixels_, chosen_.count * pixels_);
    hasher.add(labels_.bytes.get() + chosen_.first, chosen_.count);
  }

  const IdxArray images_;  // kept as bytes: a quarter of the memory, and less to read
  const IdxArray labels_;
  const Schema schema_;
  const Slice chosen_;
  const size_t pixels_;
  const PixelValues values_;
};

std::vector<int64_t> input_shape(const std::vector<uint64_t>& dimensions) {
  std::vector<int64_t> shape(dimensions.begin() + 1, dimensions.end());
  if (shape.size() == 2) shape.insert(shape.begin(), 1);
  return shape;
}

}  // namespace

Result<std::unique_ptr<Dataset>> read_idx(ByteReader images_reader, ByteReader labels_reader,
                                          const config::SourceOptions& options) {
  MUSTER_TRY(const Scaling scaling, Scaling::make(options));
  // Labels first: they are small, and swapped files then show at once.
  MUSTER_TRY(auto labels, read_array(std::move(labels_reader), Role::kLabels));
  MUSTER_TRY(auto images, read_array(std::move(images_reader), Role::kImages));
  if (images.dimensions[0] != labels.size) {
    return Error(
        ErrorKind::kData, "'{}' has {} images, but '{}' has {} labels; they do not belong together",
        images.name, with_commas(images.dimensions[0]), labels.name, with_commas(labels.size));
  }
  MUSTER_TRY(const int64_t classes, count_classes(labels, options.classes));
  MUSTER_TRY(const Slice chosen, select_samples(options, labels.size, images.name));
  MUSTER_TRY(PixelValues values, PixelValues::make(scaling));
  Schema schema{.input = DType::kFloat32,
                .input_shape = input_shape(images.dimensions),
                .target = DType::kInt64,
                .target_shape = {},
                .classes = classes,
                .vocabulary = {},
                .padding = scaling.zeros(),
                .pixels = true};
  MUSTER_RETURN_IF_ERROR(scaling.check_shape(schema.input_shape));
  return std::unique_ptr<Dataset>(std::make_unique<IdxDataset>(
      std::move(images), std::move(labels), std::move(schema), chosen, std::move(values)));
}

Result<std::unique_ptr<Dataset>> open_idx(const config::SourceOptions& options) {
  if (options.images.empty() || options.labels.empty()) {
    return Error(ErrorKind::kJob, "the format idx needs the files `images` and `labels`");
  }
  MUSTER_TRY(auto images, ByteReader::open(options.images));
  MUSTER_TRY(auto labels, ByteReader::open(options.labels));
  return read_idx(std::move(images), std::move(labels), options);
}

}  // namespace muster::data
