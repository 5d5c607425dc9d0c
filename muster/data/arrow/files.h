// The parts of the plugin (blocks/column_plugin.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "muster/data/blocks/column_plugin.h"

namespace muster::data {

std::unique_ptr<ColumnFiles> make_parquet_files(std::vector<std::string> names);
std::unique_ptr<ColumnFiles> make_arrow_files(std::vector<std::string> names);
Result<std::unique_ptr<SampleWriter>> make_parquet_writer(WritableFile& file,
                                                          const SampleForm& form);
Result<std::unique_ptr<TableWriter>> make_parquet_table(WritableFile& file, const TableForm& form);

}  // namespace muster::data
