// Records of ids; see formats.h for what is read, libsvm_lines.h for how.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/check.h"
#include "muster/data/formats.h"
#include "muster/data/libsvm_lines.h"

namespace muster::data {
namespace {

// Id: uint32_t where the ids allow it, which is half of the memory.
template <typename Id>
class LibsvmDataset final : public Dataset {
 public:
  LibsvmDataset(std::vector<Id> ids, std::vector<float> values, std::vector<uint64_t> starts,
                std::vector<uint8_t> clicked, Schema schema, Slice chosen)
      : ids_(std::move(ids)),
        values_(std::move(values)),
        starts_(std::move(starts)),
        clicked_(std::move(clicked)),
        schema_(std::move(schema)),
        chosen_(chosen) {}

  const Schema& schema() const override { return schema_; }
  uint64_t size() const override { return chosen_.count; }

  void read(uint64_t index, std::byte* input, std::byte* target) const override {
    MUSTER_CHECK(index < chosen_.count, "a sample lies within the data");
    const uint64_t row = chosen_.first + index;
    const uint64_t begin = starts_[row];
    const uint64_t end = starts_[row + 1];
    const auto columns = static_cast<size_t>(schema_.id_columns());
    auto* to = reinterpret_cast<int64_t*>(input);
    if (schema_.has_values) {
      put_values(std::span(values_).subspan(begin, end - begin), {to + columns, columns});
    }
    int64_t* last = to + columns;
    for (uint64_t i = begin; i < end; ++i) *to++ = static_cast<int64_t>(ids_[i]);
    std::fill(to, last, -1);
    *reinterpret_cast<int64_t*>(target) = clicked_[row];
  }

 private:
  // The rows without what fills their columns, and as int64: how ids are stored depends on others.
  void add_contents(Hasher& hasher) const override {
    std::vector<int64_t> row;
    for (uint64_t i = chosen_.first; i < chosen_.first + chosen_.count; ++i) {
      row = {clicked_[i], static_cast<int64_t>(starts_[i + 1] - starts_[i])};
      for (uint64_t at = starts_[i]; at < starts_[i + 1]; ++at) {
        row.push_back(static_cast<int64_t>(ids_[at]));
      }
      if (schema_.has_values) {
        for (uint64_t at = starts_[i]; at < starts_[i + 1]; ++at) {
          row.push_back(value_bits(values_[at]));
        }
      }
      hasher.add(row.data(), row.size() * sizeof(row[0]));
    }
  }

  const std::vector<Id> ids_;
  const std::vector<float> values_;  // of each id, if the schema has values
  const std::vector<uint64_t> starts_;
  const std::vector<uint8_t> clicked_;
  const Schema schema_;
  const Slice chosen_;
};

template <typename Id>
std::unique_ptr<Dataset> make(std::vector<Id> ids, LibsvmLines& lines, Slice chosen) {
  Schema schema = lines.schema();
  return std::make_unique<LibsvmDataset<Id>>(std::move(ids), lines.take_values(),
                                             lines.take_starts(), lines.take_clicked(),
                                             std::move(schema), chosen);
}

}  // namespace

Result<std::unique_ptr<Dataset>> read_libsvm(ByteReader reader,
                                             const config::SourceOptions& options) {
  MUSTER_TRY(const LibsvmOptions args, LibsvmLines::options_of(options));
  MUSTER_TRY(const std::string text, reader.read_all());
  LibsvmLines lines(fmt::format("'{}'", reader.name()), args);
  MUSTER_RETURN_IF_ERROR(lines.read(text));
  MUSTER_TRY(const Slice chosen, select_samples(options, lines.rows(), reader.name()));
  if (lines.largest() <= std::numeric_limits<uint32_t>::max()) {
    std::vector<uint32_t> ids(lines.ids().size());
    std::ranges::transform(lines.ids(), ids.begin(),
                           [](int64_t id) { return static_cast<uint32_t>(id); });
    return make(std::move(ids), lines, chosen);
  }
  return make(lines.take_ids(), lines, chosen);
}

Result<std::unique_ptr<Dataset>> open_libsvm(const config::SourceOptions& options) {
  if (options.path.empty()) {
    return Error(ErrorKind::kJob, "the format libsvm needs the file `path`");
  }
  MUSTER_TRY(auto reader, ByteReader::open(options.path));
  return read_libsvm(std::move(reader), options);
}

}  // namespace muster::data
