// Parts of a result that becomes one Parquet file.
//
// The file of a part is its rows (data/table_writer.h), one for each sample, and behind them a hash
// of the rows, of the plan's facts and of which samples they are. So a part that is damaged, cut
// short, or of another plan or other samples is found when parts are joined.
#pragma once

#include <cstddef>
#include <string_view>

#include "muster/base/file_system.h"
#include "muster/base/hash.h"
#include "muster/base/result.h"
#include "muster/data/table_writer.h"
#include "muster/parts/parts_directory.h"

namespace muster::train {

// The file of one part being written. Not safe for concurrent use.
class RowPartWriter {
 public:
  // `file` must outlive it, and is empty.
  RowPartWriter(const parts::PartPlan& plan, size_t part, WritableFile& file);

  // The next rows.
  Status append(std::string_view rows);
  // After the last row. Neither syncs nor closes the file.
  Status finish();

 private:
  WritableFile& file_;
  Hasher hasher_;
};

// Writes the rows of all parts, which must be done, as one Parquet file. Holds one row group in
// memory. `file` is empty; it is neither synced nor closed. Errors: kData, a part is not what it
// should be; those of TableFile and of the disk.
Status join_rows(const parts::PartsDirectory& directory, const parts::PartPlan& plan,
                 const data::TableForm& form, WritableFile& file);

}  // namespace muster::train
