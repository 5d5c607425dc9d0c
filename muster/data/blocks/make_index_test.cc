#include "muster/data/blocks/make_index.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/data/blocks/blocks_testing.h"

namespace muster::data {
namespace {

using std::chrono::milliseconds;
using testing::FakeStore;
using ::testing::HasSubstr;

constexpr uint64_t kBlocks = 20000;  // of an object
constexpr uint64_t kBlock = 8;       // bytes

// Blocks of one sample. An object whose name begins with "bad" is not of the format.
class Eights final : public BlockFormat {
 public:
  Result<std::vector<Extent>> cut(const ObjectReader& object, uint64_t) const override {
    std::byte byte{};
    MUSTER_RETURN_IF_ERROR(object.read(0, {&byte, 1}));
    if (object.name.starts_with("bad")) {
      return Error(ErrorKind::kData, "'{}' has no column 'x'", object.name);
    }
    std::vector<Extent> extents;
    for (uint64_t i = 0; i < object.size / kBlock; ++i) extents.push_back({i * kBlock, kBlock, 1});
    return extents;
  }
  Result<Schema> schema_of(std::span<const std::byte>, uint32_t) const override {
    return Error(ErrorKind::kInternal, "not needed here");
  }
  Result<std::unique_ptr<DecodedBlock>> decode(std::span<const std::byte>, uint32_t,
                                               const Schema&) const override {
    return Error(ErrorKind::kInternal, "not needed here");
  }
  void add_to(const Schema&, Hasher&) const override {}
};

class MakeIndexTest : public ::testing::Test {
 protected:
  MakeIndexTest()
      : store_({{"a", std::string(kBlocks * kBlock, 'a')},
                {"bad", std::string(kBlock, 'b')},
                {"c", std::string(kBlocks * kBlock, 'c')}}) {}

  Result<BlockIndex> make(const std::vector<std::string>& names) {
    std::vector<store::Object> objects;
    for (const auto& name : names) objects.push_back(store_.list(name)->front());
    options_.threads = static_cast<int>(names.size());
    return make_index(Eights(), "eights", std::move(objects), store_, options_);
  }

  FakeStore store_;
  IndexOptions options_;
};

TEST_F(MakeIndexTest, CutsAndHashesEveryObject) {
  const auto index = make({"a", "c"});
  ASSERT_TRUE(index.ok()) << index.error().message();
  EXPECT_EQ(index->blocks.size(), 2 * kBlocks);
  EXPECT_EQ(index->blocks[0].hash, index->blocks[1].hash);
  EXPECT_NE(index->blocks[0].hash, index->blocks[kBlocks].hash);
}

TEST_F(MakeIndexTest, AnErrorEndsTheIndexingOfTheOtherObjects) {
  // Those of the other objects are slow from the second read on: all of them would take 20 s.
  std::atomic<bool> others_read = false;
  store_.set_before([&](const store::Object& object, uint64_t offset) -> Status {
    if (object.name == "bad") {
      while (!others_read) std::this_thread::sleep_for(milliseconds(1));
    } else if (offset > 0) {
      others_read = true;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return {};
  });
  const auto index = make({"a", "bad", "c"});
  ASSERT_FALSE(index.ok());
  EXPECT_EQ(index.error().kind(), ErrorKind::kData);
  EXPECT_THAT(index.error().message(), HasSubstr("'bad' has no column 'x'"));
  EXPECT_LT(store_.reads(), kBlocks / 2);
}

TEST_F(MakeIndexTest, AnErrorIsToldAlsoIfTheUserEndsIt) {
  // The user ends it after the error and before the other objects are done.
  std::atomic<bool> failed = false;
  std::atomic<bool> ended = false;
  store_.set_before([&](const store::Object& object, uint64_t) -> Status {
    if (object.name == "bad") {
      failed = true;
      return {};
    }
    while (!ended) std::this_thread::sleep_for(milliseconds(1));
    return {};
  });
  options_.progress = [&](const IndexProgress& progress) {
    if (!failed || progress.objects_done == 0) return true;
    ended = true;
    return false;
  };
  const auto index = make({"a", "bad", "c"});
  ASSERT_FALSE(index.ok());
  EXPECT_EQ(index.error().kind(), ErrorKind::kData) << index.error().message();
  // Without an error it is an interruption.
  failed = false;
  ended = false;
  options_.progress = [&](const IndexProgress&) {
    ended = true;
    return false;
  };
  const auto interrupted = make({"a", "c"});
  ASSERT_FALSE(interrupted.ok());
  EXPECT_EQ(interrupted.error().kind(), ErrorKind::kInterrupted);
}

}  // namespace
}  // namespace muster::data
