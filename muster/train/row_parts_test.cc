// Without the plugin that writes Parquet, these tests are skipped.
#include "muster/train/row_parts.h"

#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/scratch_directory.h"
#include "muster/data/blocks/column_plugin.h"

namespace muster::train {
namespace {

using ::testing::HasSubstr;

using Type = data::TableColumn::Type;

class RowPartsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto plugin = data::load_column_plugin("parquet");
    if (!plugin.ok()) GTEST_SKIP() << plugin.error().message();
  }

  static std::string row(uint64_t sample) {
    const auto number = static_cast<int64_t>(sample);
    const float third = static_cast<float>(sample) / 3;
    std::string bytes(reinterpret_cast<const char*>(&number), sizeof(number));
    return bytes.append(reinterpret_cast<const char*>(&third), sizeof(third));
  }
  parts::PartsDirectory open() const { return parts::PartsDirectory::open(*files_, path_).value(); }
  // All parts of a plan, in a directory of its own.
  void write(const parts::PartPlan& plan) const {
    ASSERT_TRUE(files_->remove_all(path_).ok());
    auto directory = open();
    ASSERT_TRUE(directory.agree(plan).ok());
    while (true) {
      const auto claim = directory.claim(plan).value();
      if (!claim) return;
      const auto status = directory.finish(*claim, [&](WritableFile& file) -> Status {
        RowPartWriter writer(plan, claim->part, file);
        for (uint64_t i = plan.borders[claim->part]; i < plan.borders[claim->part + 1]; ++i) {
          MUSTER_RETURN_IF_ERROR(writer.append(row(i)));
        }
        return writer.finish();
      });
      ASSERT_TRUE(status.ok()) << status.error().message();
    }
  }
  // What the parts there become, or the error.
  std::string joined(const parts::PartPlan& plan) const {
    const auto directory = open();
    const auto status = directory.assemble(
        [&](WritableFile& file) { return join_rows(directory, plan, form_, file); });
    if (!status.ok()) {
      EXPECT_FALSE(directory.has_result());
      return status.error().message();
    }
    EXPECT_TRUE(directory.publish(scratch_.path() + "/out").ok());
    return files_->read(scratch_.path() + "/out").value();
  }

  const ScratchDirectory scratch_ = ScratchDirectory::make("row-parts").value();
  const std::unique_ptr<FileSystem> files_ = posix_file_system();
  const std::string path_ = scratch_.path() + "/out.parts";
  const data::TableForm form_{{{"sample", Type::kInt64}, {"third", Type::kFloat32}}};
  const parts::PartPlan plan_{{{"data", "abc"}, {"layer", ""}}, "", {0, 2, 4, 7}};
};

TEST_F(RowPartsTest, TheBytesDoNotDependOnTheCut) {
  write(plan_);
  const std::string expected = joined(plan_);
  ASSERT_TRUE(expected.starts_with("PAR1"));
  const std::vector<std::vector<uint64_t>> cuts = {{0, 7}, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 6, 7}};
  for (const auto& borders : cuts) {
    parts::PartPlan plan = plan_;
    plan.borders = borders;
    write(plan);
    EXPECT_TRUE(joined(plan) == expected);
  }
}

TEST_F(RowPartsTest, APartThatIsDamagedIsNamed) {
  const auto change = [&](const std::function<void(std::string&)>& damage) {
    write(plan_);
    const std::string part = open().part_file(1);
    std::string bytes = files_->read(part).value();
    damage(bytes);
    EXPECT_TRUE(write_file_atomically(*files_, part, bytes).ok());
    EXPECT_THAT(joined(plan_), HasSubstr(part + "' is damaged"));
  };
  change([](std::string& bytes) { bytes.clear(); });
  change([](std::string& bytes) { bytes.pop_back(); });
  change([](std::string& bytes) { bytes.resize(bytes.size() - 12); });
  change([](std::string& bytes) { bytes.resize(16); });
  change([](std::string& bytes) { bytes += std::string(12, '\0'); });
  change([](std::string& bytes) { bytes[3] = static_cast<char>(bytes[3] ^ 1); });
  change([](std::string& bytes) { bytes.back() = static_cast<char>(bytes.back() ^ 1); });
}

// As long as it should be, and whole: only the hash says that it is not this part.
TEST_F(RowPartsTest, APartOfAnotherPlanOrOtherSamplesIsRefused) {
  parts::PartPlan other = plan_;
  other.facts["layer"] = "fc1";
  write(other);
  const std::string foreign = files_->read(open().part_file(1)).value();
  write(plan_);
  const std::string first = files_->read(open().part_file(0)).value();
  const std::string second = files_->read(open().part_file(1)).value();
  ASSERT_EQ(foreign.size(), second.size());
  ASSERT_EQ(first.size(), second.size());
  for (const auto& wrong : {foreign, first}) {
    ASSERT_TRUE(write_file_atomically(*files_, open().part_file(1), wrong).ok());
    EXPECT_THAT(joined(plan_), HasSubstr("a part of another result"));
  }
  ASSERT_TRUE(write_file_atomically(*files_, open().part_file(1), second).ok());
  EXPECT_TRUE(joined(plan_).starts_with("PAR1"));
}

}  // namespace
}  // namespace muster::train
