#include "muster/data/table_writer.h"

#include <algorithm>

#include "muster/base/check.h"
#include "muster/data/blocks/column_plugin.h"

namespace muster::data {

Result<TableFile> TableFile::open(WritableFile& file, const TableForm& form, size_t group_bytes) {
  const size_t row_bytes = form.row_bytes();
  MUSTER_CHECK(row_bytes > 0, "a table has columns");
  MUSTER_TRY(const auto* plugin, load_column_plugin("parquet"));
  MUSTER_TRY(auto writer, plugin->write_table(file, form));
  const size_t rows = std::max<size_t>(group_bytes / row_bytes, 1);
  return TableFile(std::move(writer), row_bytes, rows * row_bytes);
}

Status TableFile::append(std::span<const std::byte> rows) {
  while (!rows.empty()) {
    const auto some = rows.first(std::min(rows.size(), group_bytes_ - group_.size()));
    group_.insert(group_.end(), some.begin(), some.end());
    rows = rows.subspan(some.size());
    if (group_.size() == group_bytes_) MUSTER_RETURN_IF_ERROR(write_group());
  }
  return {};
}

Status TableFile::finish() {
  MUSTER_CHECK(group_.size() % row_bytes_ == 0, "the last row is whole");
  if (!group_.empty()) MUSTER_RETURN_IF_ERROR(write_group());
  return writer_->finish();
}

Status TableFile::write_group() {
  MUSTER_RETURN_IF_ERROR(writer_->write_group(group_));
  group_.clear();
  return {};
}

}  // namespace muster::data
