// LMDB with Caffe's Datum messages. The whole file is mapped; a reading transaction, open as long
// as the data set, keeps the pages where they are, so that samples are read without a call into
// LMDB.
#include <sys/stat.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lmdb.h>

#include "muster/base/check.h"
#include "muster/base/text.h"
#include "muster/data/blocks/block_formats.h"
#include "muster/data/blocks/datum.h"
#include "muster/data/blocks/decoding_dataset.h"
#include "muster/data/blocks/record.h"
#include "muster/data/formats.h"

namespace muster::data {
namespace {

using Bytes = std::span<const std::byte>;

Bytes bytes_of(const MDB_val& value) {
  return {static_cast<const std::byte*>(value.mv_data), value.mv_size};
}

// The environment and the transaction that its pages are read under.
class Environment {
 public:
  explicit Environment(std::string path) : path_(std::move(path)) {}
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    if (transaction_ != nullptr) mdb_txn_abort(transaction_);
    if (environment_ != nullptr) mdb_env_close(environment_);
  }

  Status open() {
    struct stat info{};
    const bool file = ::stat(path_.c_str(), &info) == 0 && !S_ISDIR(info.st_mode);
    MUSTER_RETURN_IF_ERROR(check(mdb_env_create(&environment_)));
    // Nobody writes, so no locks: they would need a writable directory. No read-ahead: samples are
    // read in random order.
    MUSTER_RETURN_IF_ERROR(check(
        mdb_env_open(environment_, path_.c_str(),
                     MDB_RDONLY | MDB_NOLOCK | MDB_NORDAHEAD | (file ? MDB_NOSUBDIR : 0U), 0)));
    MUSTER_RETURN_IF_ERROR(check_length());
    return check(mdb_txn_begin(environment_, nullptr, MDB_RDONLY, &transaction_));
  }

  // All entries, in the order of their keys.
  Status list(std::vector<std::pair<Bytes, Bytes>>& entries) {
    MDB_dbi database = 0;
    MUSTER_RETURN_IF_ERROR(check(mdb_dbi_open(transaction_, nullptr, 0, &database)));
    MDB_cursor* cursor = nullptr;
    MUSTER_RETURN_IF_ERROR(check(mdb_cursor_open(transaction_, database, &cursor)));
    MDB_val key{};
    MDB_val value{};
    int code = mdb_cursor_get(cursor, &key, &value, MDB_FIRST);
    for (; code == MDB_SUCCESS; code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) {
      entries.emplace_back(bytes_of(key), bytes_of(value));
    }
    mdb_cursor_close(cursor);
    return code == MDB_NOTFOUND ? Status() : check(code);
  }

 private:
  // A process that reads a mapped page behind the end of its file is killed (SIGBUS). LMDB may
  // leave free pages at the end unwritten, which is rare: `mdb_copy -c` leaves them out.
  Status check_length() const {
    MDB_envinfo pages{};
    MDB_stat sizes{};
    mdb_filehandle_t file = -1;
    struct stat info{};
    MUSTER_RETURN_IF_ERROR(check(mdb_env_info(environment_, &pages)));
    MUSTER_RETURN_IF_ERROR(check(mdb_env_stat(environment_, &sizes)));
    MUSTER_RETURN_IF_ERROR(check(mdb_env_get_fd(environment_, &file)));
    if (::fstat(file, &info) != 0) return check(errno);
    const auto length = static_cast<uint64_t>(info.st_size);
    const uint64_t least = (uint64_t{pages.me_last_pgno} + 1) * sizes.ms_psize;
    if (length >= least) return {};
    return Error(ErrorKind::kData,
                 "the LMDB environment '{}' has {} bytes, and its pages take {}: it was cut off; "
                 "copy it again (`mdb_copy -c FROM TO` does, from where it is whole)",
                 path_, with_commas(length), with_commas(least));
  }

  Status check(int code) const {
    if (code == MDB_SUCCESS) return {};
    // Below zero are LMDB's own errors, all about the contents; others are errno's.
    return Error(code < 0 ? ErrorKind::kData : ErrorKind::kIo,
                 "cannot read the LMDB environment '{}': {}", path_, mdb_strerror(code));
  }

  const std::string path_;
  MDB_env* environment_ = nullptr;
  MDB_txn* transaction_ = nullptr;
};

class LmdbDataset final : public DecodingDataset {
 public:
  LmdbDataset(std::string path, std::unique_ptr<Environment> environment,
              std::vector<std::pair<Bytes, Bytes>> entries, Recipe recipe, Schema schema,
              Slice chosen)
      : path_(std::move(path)),
        environment_(std::move(environment)),
        entries_(std::move(entries)),
        recipe_(std::move(recipe)),
        schema_(std::move(schema)),
        chosen_(chosen) {}

  const Schema& schema() const override { return schema_; }
  uint64_t size() const override { return chosen_.count; }

  Status try_read(uint64_t index, std::byte* input, std::byte* target) const override {
    MUSTER_CHECK(index < chosen_.count, "a sample lies within the data");
    auto status = read_value(entries_[chosen_.first + index].second, input, target);
    if (!status.ok()) {
      return std::move(status).error().context("'{}', entry {}", path_, chosen_.first + index);
    }
    return {};
  }

 private:
  Status read_value(Bytes value, std::byte* input, std::byte* target) const {
    MUSTER_TRY(const Datum datum, read_datum(value));
    if (recipe_.has_labels()) {
      MUSTER_RETURN_IF_ERROR(recipe_.put_class(static_cast<double>(datum.label), target));
    } else {
      recipe_.put_no_label(target);
    }
    auto* to = reinterpret_cast<float*>(input);
    if (datum.encoded) return recipe_.put_image(datum.data, schema_, to);
    const std::vector<int64_t> shape = {datum.channels, datum.height, datum.width};
    if (shape != schema_.input_shape) {
      return Error(ErrorKind::kData,
                   "its Datum has {} x {} x {} elements, the first one another "
                   "shape",
                   datum.channels, datum.height, datum.width);
    }
    if (datum.floats.empty()) return recipe_.put_pixels(datum.data, schema_, to);
    return recipe_.put_numbers(datum.floats, schema_, to);
  }

  void add_contents(Hasher& hasher) const override {
    recipe_.add_to(schema_, hasher);
    uint64_t total = 0;
    for (uint64_t i = chosen_.first; i < chosen_.first + chosen_.count; ++i) {
      const auto& [key, value] = entries_[i];
      const uint64_t sizes[] = {key.size(), value.size()};
      hasher.add(sizes, sizeof(sizes));
      hasher.add(key);
      total += value.size();
    }
    const HashedPieces hashed(total);
    for (uint64_t i = chosen_.first; i < chosen_.first + chosen_.count; ++i) {
      if (hashed.contains(i)) hasher.add(entries_[i].second);
    }
  }

  const std::string path_;
  const std::unique_ptr<Environment> environment_;  // what the entries point into
  const std::vector<std::pair<Bytes, Bytes>> entries_;
  const Recipe recipe_;
  const Schema schema_;
  const Slice chosen_;
};

}  // namespace

Result<std::unique_ptr<Dataset>> open_lmdb(const config::SourceOptions& options) {
  if (options.path.empty()) {
    return Error(ErrorKind::kJob, "the format lmdb needs `path`, the environment's directory");
  }
  config::ArgReader args(options.args, "the format lmdb");
  MUSTER_TRY(Recipe recipe, Recipe::make(options, args, {.input = {"data"}}));
  MUSTER_RETURN_IF_ERROR(args.finish());
  if (options.target != "class") {
    return Error(ErrorKind::kJob, "a Datum has a class; `target: {}` cannot be read from it",
                 options.target);
  }
  auto environment = std::make_unique<Environment>(options.path);
  MUSTER_RETURN_IF_ERROR(environment->open());
  std::vector<std::pair<Bytes, Bytes>> entries;
  MUSTER_RETURN_IF_ERROR(environment->list(entries));
  MUSTER_TRY(const Slice chosen, select_samples(options, entries.size(), options.path));
  auto first = read_datum(entries.front().second);
  if (!first.ok()) return std::move(first).error().context("'{}', entry 0", options.path);
  std::vector<int64_t> shape = {first->channels, first->height, first->width};
  if (first->encoded) {
    auto found = recipe.image_shape(first->data);
    if (!found.ok()) return std::move(found).error().context("'{}', entry 0", options.path);
    shape = *std::move(found);
  }
  MUSTER_TRY(Schema schema, recipe.schema_with(std::move(shape), first->floats.empty()));
  return std::unique_ptr<Dataset>(
      std::make_unique<LmdbDataset>(options.path, std::move(environment), std::move(entries),
                                    std::move(recipe), std::move(schema), chosen));
}

}  // namespace muster::data
