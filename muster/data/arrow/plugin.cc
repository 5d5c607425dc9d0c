// libmuster_arrow.so: what it exports.
#include "muster/data/arrow/files.h"

namespace muster::data {
namespace {

class ArrowPlugin final : public ColumnPlugin {
 public:
  std::unique_ptr<ColumnFiles> parquet(std::vector<std::string> names) const override {
    return make_parquet_files(std::move(names));
  }
  std::unique_ptr<ColumnFiles> arrow(std::vector<std::string> names) const override {
    return make_arrow_files(std::move(names));
  }
  Result<std::unique_ptr<SampleWriter>> write_parquet(WritableFile& file,
                                                      const SampleForm& form) const override {
    return make_parquet_writer(file, form);
  }
  Result<std::unique_ptr<TableWriter>> write_table(WritableFile& file,
                                                   const TableForm& form) const override {
    return make_parquet_table(file, form);
  }
};

}  // namespace
}  // namespace muster::data

extern "C" {

// NOLINTBEGIN(misc-use-internal-linkage): found by dlsym
__attribute__((visibility("default"))) uint64_t muster_column_plugin_version() {
  return muster::data::kColumnPluginVersion;
}

__attribute__((visibility("default"))) const muster::data::ColumnPlugin* muster_column_plugin() {
  static const muster::data::ArrowPlugin plugin;
  return &plugin;
}
// NOLINTEND(misc-use-internal-linkage)
}
