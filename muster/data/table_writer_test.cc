// Without the plugin that writes Parquet, these tests are skipped.
#include "muster/data/table_writer.h"

#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/fault_injection_testing.h"
#include "muster/data/blocks/column_plugin.h"
#include "muster/data/blocks/formats_testing.h"
#include "muster/data/data_testing.h"

namespace muster::data {
namespace {

using testing::as_bytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Type = TableColumn::Type;

template <typename T>
void add(T value, std::string& row) {
  static_assert(std::is_trivially_copyable_v<T>);
  row.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// What is read back of a file: its columns, and the rows of each row group.
struct Table {
  std::vector<uint32_t> groups;
  std::vector<std::vector<double>> whole;   // by column: those of kInt64
  std::vector<std::vector<float>> numbers;  // by column: those of kFloat32
};

class TableWriterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto plugin = load_column_plugin("parquet");
    if (!plugin.ok()) GTEST_SKIP() << plugin.error().message();
    plugin_ = *plugin;
  }

  // The file of these rows, which are appended in pieces of `piece` bytes.
  std::string write(const TableForm& form, const std::string& rows, size_t piece,
                    size_t group_bytes = TableFile::kGroupBytes) {
    const std::string path = dir_.path("table");
    auto file = files_->create(path).value();
    auto table = TableFile::open(*file, form, group_bytes);
    EXPECT_TRUE(table.ok()) << table.error().message();
    if (!table.ok()) return "";
    for (size_t at = 0; at < rows.size(); at += piece) {
      EXPECT_TRUE(table->append(as_bytes(std::string_view(rows).substr(at, piece))).ok());
    }
    EXPECT_TRUE(table->finish().ok());
    EXPECT_TRUE(file->close().ok());
    return files_->read(path).value();
  }

  // With the reader of jobs.
  Table read(const TableForm& form, const std::string& contents) const {
    std::vector<std::string> names;
    for (const auto& column : form.columns) names.push_back(column.name);
    const auto files = plugin_->parquet(names);
    const auto object = testing::object_of(contents);
    const auto extents = files->cut(object);
    const auto notes = files->notes(object);
    Table table;
    table.whole.resize(names.size());
    table.numbers.resize(names.size());
    EXPECT_TRUE(extents.ok() && notes.ok());
    if (!extents.ok() || !notes.ok()) return table;
    for (size_t group = 0; group < extents->size(); ++group) {
      const Extent& extent = (*extents)[group];
      table.groups.push_back(extent.count);
      const std::string block = (*notes)[group] + contents.substr(extent.offset, extent.length);
      const auto columns = files->read(as_bytes(block), extent.count, "");
      EXPECT_TRUE(columns.ok()) << columns.error().message();
      if (!columns.ok()) return table;
      for (size_t i = 0; i < columns->size(); ++i) {
        const Column& column = (*columns)[i];
        EXPECT_EQ(column.ends.size(), extent.count);
        EXPECT_EQ(column.ends.front(), form.columns[i].values());
        table.whole[i].insert(table.whole[i].end(), column.numbers.begin(), column.numbers.end());
        table.numbers[i].insert(table.numbers[i].end(), column.floats.begin(), column.floats.end());
      }
    }
    return table;
  }

  const testing::TempDir dir_;
  const std::unique_ptr<FileSystem> files_ = posix_file_system();
  const ColumnPlugin* plugin_ = nullptr;
};

TEST_F(TableWriterTest, ReadsBackWhatWasWritten) {
  const TableForm form{{{"sample", Type::kInt64}, {"p", Type::kFloat32}, {"label", Type::kInt64}}};
  ASSERT_EQ(form.row_bytes(), 20U);
  std::string rows;
  for (int64_t i = 0; i < 5; ++i) {
    add(i, rows);
    add(static_cast<float>(i) / 3, rows);
    add(int64_t{-1} - i, rows);
  }
  const std::string file = write(form, rows, rows.size());
  ASSERT_TRUE(file.starts_with("PAR1") && file.ends_with("PAR1"));
  const Table table = read(form, file);
  EXPECT_THAT(table.groups, ElementsAre(5U));
  EXPECT_THAT(table.whole[0], ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(table.numbers[1], ElementsAre(0, 1.0F / 3, 2.0F / 3, 1, 4.0F / 3));
  EXPECT_THAT(table.whole[2], ElementsAre(-1, -2, -3, -4, -5));
}

// Values that are not numbers, and both zeros, keep their bits.
TEST_F(TableWriterTest, ListsKeepTheirBits) {
  const TableForm form{{{"sample", Type::kInt64}, {"features", Type::kFloat32, 3}}};
  const std::vector<float> numbers = {std::numeric_limits<float>::quiet_NaN(),
                                      -std::numeric_limits<float>::quiet_NaN(),
                                      std::numeric_limits<float>::infinity(),
                                      -std::numeric_limits<float>::infinity(),
                                      -0.0F,
                                      std::numeric_limits<float>::denorm_min(),
                                      1.0F / 3,
                                      std::numeric_limits<float>::max(),
                                      0.0F};
  std::string rows;
  for (size_t i = 0; i < 3; ++i) {
    add(static_cast<int64_t>(i), rows);
    for (size_t j = 0; j < 3; ++j) add(numbers[3 * i + j], rows);
  }
  const Table table = read(form, write(form, rows, 1));
  EXPECT_THAT(table.whole[0], ElementsAre(0, 1, 2));
  ASSERT_EQ(table.numbers[1].size(), numbers.size());
  EXPECT_EQ(std::memcmp(table.numbers[1].data(), numbers.data(), numbers.size() * sizeof(float)),
            0);
}

TEST_F(TableWriterTest, TheBytesDoNotDependOnThePieces) {
  const TableForm form{{{"sample", Type::kInt64}, {"x", Type::kFloat32, 5}}};
  std::string rows;
  for (int64_t i = 0; i < 1000; ++i) {
    add(i, rows);
    for (int64_t j = 0; j < 5; ++j) add(static_cast<float>(i * j) / 7, rows);
  }
  // Row groups of 214 rows.
  const size_t group = 6000;
  const std::string expected = write(form, rows, rows.size(), group);
  const Table table = read(form, expected);
  EXPECT_THAT(table.groups, ElementsAre(214U, 214U, 214U, 214U, 144U));
  ASSERT_EQ(table.whole[0].size(), 1000U);
  for (size_t i = 0; i < 1000; ++i) EXPECT_EQ(table.whole[0][i], static_cast<double>(i));
  for (const size_t piece : {size_t{1}, size_t{27}, size_t{28}, size_t{5992}, size_t{5993}}) {
    EXPECT_TRUE(write(form, rows, piece, group) == expected) << piece;
  }
}

TEST_F(TableWriterTest, ARowThatIsLongerThanARowGroupIsOneByItself) {
  const TableForm form{{{"sample", Type::kInt64}, {"x", Type::kFloat32, 100}}};
  const std::string rows(3 * form.row_bytes(), '\0');
  EXPECT_THAT(read(form, write(form, rows, 7, 10)).groups, ElementsAre(1U, 1U, 1U));
}

TEST_F(TableWriterTest, AFileMayHaveNoRows) {
  const TableForm form{{{"sample", Type::kInt64}}};
  const std::string file = write(form, "", 1);
  EXPECT_TRUE(file.starts_with("PAR1") && file.ends_with("PAR1"));
  EXPECT_TRUE(read(form, file).groups.empty());
}

TEST_F(TableWriterTest, AListThatIsTooLongIsRefused) {
  const auto file = files_->create(dir_.path("table")).value();
  const TableForm form{{{"x", Type::kFloat32, size_t{1} << 31}}};
  const auto table = TableFile::open(*file, form);
  ASSERT_FALSE(table.ok());
  EXPECT_THAT(table.error().message(), HasSubstr(".csv or .jsonl"));
}

// Whichever write fails, the error is that of the disk.
TEST_F(TableWriterTest, AFullDiskIsNamed) {
  const TableForm form{{{"sample", Type::kInt64}}};
  const std::string rows(std::size_t{8000}, '\0');
  int failures = 0;
  for (int64_t operation = 1; operation < 1000; ++operation) {
    FaultInjectionFileSystem broken;
    const auto file = broken.create("/table").value();
    broken.fail_at(operation, Fault::kDiskFull);
    const auto status = [&]() -> Status {
      MUSTER_TRY(auto table, TableFile::open(*file, form, 800));
      MUSTER_RETURN_IF_ERROR(table.append(as_bytes(rows)));
      return table.finish();
    }();
    if (status.ok()) break;
    ++failures;
    EXPECT_EQ(status.error().kind(), ErrorKind::kIo) << status.error().message();
  }
  EXPECT_GT(failures, 10);
}

}  // namespace
}  // namespace muster::data
