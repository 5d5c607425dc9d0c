// The format csv (formats.h) by ranges of lines. A line end inside quotes ends no record, so
// cutting has to parse; every file has its own header, or none has one.
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "muster/base/text.h"
#include "muster/config/source.h"
#include "muster/data/blocks/block_formats.h"
#include "muster/data/blocks/lines.h"
#include "muster/data/blocks/object_window.h"
#include "muster/data/blocks/record_block.h"
#include "muster/data/csv_scanner.h"
#include "muster/data/csv_table.h"
#include "muster/data/formats.h"

namespace muster::data {
namespace {

using Fields = std::vector<std::string_view>;

// What is read of a file to learn its columns, if its first line is no longer.
constexpr size_t kHeader = 64 << 10;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Calls visit(begin, end, fields) for each record of an object until it returns false or an error.
//
// The scanner is given one window after the other. Whether the last record of a window is complete
// shows only if its line end is there; otherwise the next window begins with that record, longer if
// it was the only one.
template <typename Visit>
Status for_each_record(ObjectWindow& window, char separator, Visit visit) {
  Fields fields;
  size_t least = 1;
  uint64_t lines = 0;  // before `at`
  for (uint64_t at = 0; at < window.size();) {
    MUSTER_TRY(const auto bytes, window.from(at, least));
    const std::string_view text = text_of(bytes);
    const bool last = text.size() == window.size() - at;
    CsvScanner scanner(text, separator, lines == 0 ? "the text," : "the text from there on,");
    size_t done = 0;
    while (true) {
      auto more = scanner.next(fields);
      if (!more.ok() && (last || text.size() - done > kMostLine)) {
        return std::move(more).error().context("from byte {} on", with_commas(at));
      }
      const bool complete =
          more.ok() && (last || scanner.position() < text.size() || text.ends_with('\n'));
      if (!complete) break;
      const size_t end = scanner.position();
      if (!*more) {
        done = end;
        break;
      }
      MUSTER_TRY(const bool go_on, visit(at + done, at + end, fields));
      if (!go_on) return {};
      done = end;
      if (done == text.size()) break;
    }
    if (done == 0) {
      if (text.size() > kMostLine) {
        return Error(ErrorKind::kData, "the record at byte {} is longer than {}", with_commas(at),
                     human_bytes(static_cast<double>(kMostLine)));
      }
      least = 2 * text.size();
      continue;
    }
    least = 1;
    at += done;
    ++lines;
  }
  return {};
}

class CsvBlock final : public DecodedBlock {
 public:
  CsvBlock(std::vector<float> inputs, std::vector<double> targets, Schema schema)
      : inputs_(std::move(inputs)), targets_(std::move(targets)), schema_(std::move(schema)) {}

  Status read(uint32_t i, std::byte* input, std::byte* target) const override {
    const size_t columns = schema_.input_elements();
    std::copy_n(inputs_.data() + i * columns, columns, reinterpret_cast<float*>(input));
    if (std::isnan(targets_[i])) {
      put_no_label(schema_.target == DType::kInt64, target);
    } else if (schema_.target == DType::kInt64) {
      *reinterpret_cast<int64_t*>(target) = static_cast<int64_t>(targets_[i]);
    } else {
      *reinterpret_cast<float*>(target) = static_cast<float>(targets_[i]);
    }
    return {};
  }

  uint64_t memory() const override {
    return inputs_.capacity() * sizeof(float) + targets_.capacity() * sizeof(double);
  }
  bool needs_bytes() const override { return false; }

 private:
  const std::vector<float> inputs_;
  const std::vector<double> targets_;
  const Schema schema_;
};

class CsvFormat final : public BlockFormat {
 public:
  CsvFormat(config::SourceOptions options, Scaling scaling)
      : options_(std::move(options)), scaling_(std::move(scaling)) {}

  Result<std::vector<Extent>> cut(const ObjectReader& object, uint64_t block_bytes) const override {
    ObjectWindow window(object);
    MUSTER_RETURN_IF_ERROR(refuse_gzip(window));
    Cutter cutter(block_bytes);
    bool header = options_.header;
    auto status = for_each_record(window, options_.separator[0],
                                  [&](uint64_t begin, uint64_t end, const Fields&) {
                                    if (!header) cutter.add(begin, end);
                                    header = false;
                                    return Result<bool>(true);
                                  });
    if (!status.ok()) return std::move(status).error().context("'{}'", object.name);
    return std::move(cutter).finish();
  }

  // {"columns": 3, "label": 2, "names": ["a", "b", "c"]}
  Result<std::string> about(const ObjectReader& object) const override {
    ObjectWindow window(object, kHeader);
    MUSTER_RETURN_IF_ERROR(refuse_gzip(window));
    CsvTable table(fmt::format("'{}'", object.name), options_, scaling_);
    MUSTER_RETURN_IF_ERROR(for_each_record(
        window, options_.separator[0], [&](uint64_t, uint64_t, const Fields& fields) {
          auto status = table.start(fields);
          return status.ok() ? Result<bool>(false) : Result<bool>(std::move(status).error());
        }));
    const CsvColumns& columns = table.columns();
    if (columns.count == 0) return Error(ErrorKind::kData, "'{}' is empty", object.name);
    const nlohmann::json json = {
        {"columns", columns.count}, {"label", columns.label}, {"names", columns.names}};
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

  Status set_about(std::string_view about) override {
    const auto json = nlohmann::json::parse(about, nullptr, false);
    if (json.is_object() && json.contains("columns") && json["columns"].is_number_unsigned() &&
        json.contains("label") && json["label"].is_number_unsigned() && json.contains("names") &&
        json["names"].is_array()) {
      columns_ = {json["columns"].get<size_t>(), json["label"].get<size_t>(), {}};
      for (const auto& name : json["names"]) {
        columns_.names.push_back(name.is_string() ? name.get<std::string>() : std::string());
      }
      const bool fits = config::has_labels(options_)
                            ? columns_.count >= 2 && columns_.label < columns_.count
                            : columns_.count >= 1 && columns_.label == columns_.count;
      if (fits) return {};
    }
    return Error(ErrorKind::kData,
                 "the index does not say which columns the data has; make it "
                 "again");
  }

  Result<Schema> schema_of(std::span<const std::byte> block, uint32_t count) const override {
    MUSTER_TRY(const CsvTable table, read(block, count));
    return table.schema();
  }

  Result<std::unique_ptr<DecodedBlock>> decode(std::span<const std::byte> block, uint32_t count,
                                               const Schema& schema) const override {
    MUSTER_TRY(CsvTable table, read(block, count));
    return std::unique_ptr<DecodedBlock>(
        std::make_unique<CsvBlock>(table.take_inputs(), table.take_targets(), schema));
  }

  void add_to(const Schema& /*schema*/, Hasher& hasher) const override {
    scaling_.add_to(hasher);
    const double numbers[] = {static_cast<double>(columns_.count),
                              static_cast<double>(columns_.label)};
    hasher.add(numbers, sizeof(numbers));
    hasher.add(options_.separator.data(), options_.separator.size());
  }

 private:
  // Its header, and quotes, make a gzipped file of several blocks too much trouble for what it is.
  static Status refuse_gzip(ObjectWindow& window) {
    MUSTER_TRY(const auto start, window.from(0, kGzipStart));
    if (!is_gzipped(start)) return {};
    return Error(ErrorKind::kData,
                 "'{}' is gzipped, and CSV that is read by blocks must not be; unpack it",
                 window.name());
  }

  Result<CsvTable> read(std::span<const std::byte> block, uint32_t count) const {
    MUSTER_CHECK(columns_.count > 0, "set_about() comes before blocks are read");
    CsvTable table("the block,", options_, scaling_, columns_);
    MUSTER_RETURN_IF_ERROR(table.read(text_of(block)));
    MUSTER_RETURN_IF_ERROR(check_count(table.rows(), count));
    return table;
  }

  const config::SourceOptions options_;
  const Scaling scaling_;
  CsvColumns columns_;  // none: set_about() was not called
};

}  // namespace

Result<std::unique_ptr<BlockFormat>> make_csv_blocks(const config::SourceOptions& options) {
  MUSTER_TRY(Scaling scaling, CsvTable::check_options(options));
  if (options.target == "class" && options.classes < 1) {
    return Error(
        ErrorKind::kJob,
        "CSV data that is read by blocks needs `classes`, the number of classes: it is not "
        "searched for the largest label");
  }
  return std::unique_ptr<BlockFormat>(std::make_unique<CsvFormat>(options, std::move(scaling)));
}

}  // namespace muster::data
