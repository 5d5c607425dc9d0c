// Tables of numbers; see formats.h for what is read, csv_table.h for how.
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/check.h"
#include "muster/data/csv_table.h"
#include "muster/data/formats.h"

namespace muster::data {
namespace {

class CsvDataset final : public Dataset {
 public:
  CsvDataset(std::vector<float> inputs, std::vector<double> targets, Schema schema, Slice chosen)
      : inputs_(std::move(inputs)),
        targets_(std::move(targets)),
        schema_(std::move(schema)),
        chosen_(chosen) {}

  const Schema& schema() const override { return schema_; }
  uint64_t size() const override { return chosen_.count; }

  void read(uint64_t index, std::byte* input, std::byte* target) const override {
    MUSTER_CHECK(index < chosen_.count, "a sample lies within the data");
    const uint64_t row = chosen_.first + index;
    std::memcpy(input, inputs_.data() + row * schema_.input_elements(), schema_.input_bytes());
    if (std::isnan(targets_[row])) {
      put_no_label(schema_.target == DType::kInt64, target);
    } else if (schema_.target == DType::kInt64) {
      *reinterpret_cast<int64_t*>(target) = static_cast<int64_t>(targets_[row]);
    } else {
      *reinterpret_cast<float*>(target) = static_cast<float>(targets_[row]);
    }
  }

 private:
  void add_contents(Hasher& hasher) const override {
    const size_t columns = schema_.input_elements();
    hasher.add(inputs_.data() + chosen_.first * columns, chosen_.count * schema_.input_bytes());
    hasher.add(targets_.data() + chosen_.first, chosen_.count * sizeof(targets_[0]));
  }

  const std::vector<float> inputs_;
  const std::vector<double> targets_;
  const Schema schema_;
  const Slice chosen_;
};

}  // namespace

Result<std::unique_ptr<Dataset>> read_csv(ByteReader reader, const config::SourceOptions& options) {
  MUSTER_TRY(Scaling scaling, CsvTable::check_options(options));
  MUSTER_TRY(const std::string text, reader.read_all());
  CsvTable table(fmt::format("'{}'", reader.name()), options, std::move(scaling));
  MUSTER_RETURN_IF_ERROR(table.read(text));
  MUSTER_TRY(const Slice chosen, select_samples(options, table.rows(), reader.name()));
  Schema schema = table.schema();
  return std::unique_ptr<Dataset>(std::make_unique<CsvDataset>(
      table.take_inputs(), table.take_targets(), std::move(schema), chosen));
}

Result<std::unique_ptr<Dataset>> open_csv(const config::SourceOptions& options) {
  if (options.path.empty()) return Error(ErrorKind::kJob, "the format csv needs the file `path`");
  MUSTER_TRY(auto reader, ByteReader::open(options.path));
  return read_csv(std::move(reader), options);
}

}  // namespace muster::data
