#include "muster/ps/push_record.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace muster::ps {
namespace {

using Versions = std::vector<std::vector<int64_t>>;

constexpr int64_t kPlace = 1000;
constexpr int64_t kUpdates = 500;

std::string bytes_of(const PushRecord& record) {
  std::string bytes;
  append_record(bytes, kPlace, kUpdates, record);
  return bytes;
}

std::vector<PushRecord> examples() {
  return {
      {kPlace, Versions{}},
      {kPlace, Versions(1)},  // of no shard
      {kPlace, Versions(3)},
      {kPlace - 3, Versions{{500, 500, 500}}},
      {kPlace + 70, Versions{{498, 498, 500, 499, 499}}},
      {kPlace, Versions{{499}, {}, {500, 499, 500}}},
      {kPlace, Versions{{501, 507}}},
      {kPlace, Versions{{3, 620}, {500}}},
      {0, Versions{{0}}},
      {int64_t{1} << 40, Versions{{0, int64_t{1} << 40}}},
  };
}

TEST(PushRecord, WhatIsWrittenIsRead) {
  for (const auto& record : examples()) {
    const std::string bytes = bytes_of(record) + "rest";
    std::string_view from = bytes;
    const auto back = take_record(from, kPlace, kUpdates);
    ASSERT_TRUE(back.ok()) << back.error().message();
    EXPECT_EQ(*back, record);
    EXPECT_EQ(from, "rest");
  }
}

TEST(PushRecord, ATypicalOneHasSevenBytesAtMost) {
  for (const int64_t late : {0, 1, 50}) {
    const std::vector<int64_t> read(16, kUpdates - late);
    EXPECT_LE(bytes_of({kPlace - 5, {read}}).size(), 7U) << late;
  }
}

TEST(PushRecord, TheOldestVersionIsThatOfAnyRead) {
  EXPECT_EQ((PushRecord{0, Versions{{7, 9}, {}, {8, 6}}}).oldest(3), 6);
  EXPECT_EQ((PushRecord{0, Versions(2)}).oldest(3), 3);
}

TEST(PushRecord, EveryPrefixIsRefused) {
  for (const auto& record : examples()) {
    const std::string bytes = bytes_of(record);
    for (size_t size = 0; size < bytes.size(); ++size) {
      std::string_view from = std::string_view(bytes).substr(0, size);
      EXPECT_FALSE(take_record(from, kPlace, kUpdates).ok()) << size;
    }
  }
}

TEST(PushRecord, ManyAreReadInTheirOrder) {
  constexpr int64_t kPushes = 3;
  std::vector<PushRecord> records;
  std::vector<size_t> ends;
  std::string bytes;
  for (int64_t place = 0; place < 200; ++place) {
    const int64_t updates = place / kPushes;
    const int64_t task = place ^ 1;
    records.push_back({task, Versions{{updates, updates}, {updates / 2, updates}}});
    append_record(bytes, place, updates, records.back());
    ends.push_back(bytes.size());
  }
  const auto all = read_records(bytes, kPushes);
  ASSERT_TRUE(all.ok()) << all.error().message();
  EXPECT_EQ(*all, records);
  const auto half = read_records(std::string_view(bytes).substr(0, ends[99]), kPushes);
  ASSERT_TRUE(half.ok());
  EXPECT_EQ(half->size(), 100U);
  EXPECT_FALSE(read_records(std::string_view(bytes).substr(0, ends[99] - 1), kPushes).ok());
  EXPECT_EQ(read_records("", kPushes)->size(), 0U);
}

TEST(PushRecord, TooManyVersionsAreRefused) {
  const auto is_read = [](const Versions& versions) {
    const std::string bytes = bytes_of({kPlace, versions});
    std::string_view from = bytes;
    return take_record(from, kPlace, kUpdates).ok();
  };
  const std::vector<int64_t> most(size_t{1} << 20, kUpdates);
  EXPECT_TRUE(is_read({most}));
  EXPECT_FALSE(is_read({most, {kUpdates}}));
  EXPECT_FALSE(is_read({{kUpdates}, most}));
}

// For the sanitizers: damaged bytes may have any numbers.
TEST(PushRecord, AnyNumbersAreReadOrRefused) {
  const std::string one_read(1, '\1');
  const std::string end(1, '\0');
  const std::string largest = std::string(9, '\xff') + '\1';         // 2^64 - 1
  const std::string large = '\xfe' + std::string(8, '\xff') + '\1';  // 2^64 - 2
  for (const auto& task : {large, largest}) {
    for (const auto& age : {large, largest, end}) {
      for (const auto& later : {large, largest, std::string(9, '\xff') + '\0'}) {
        std::string bytes = task;
        for (const auto& part : {one_read, age, one_read, later, end}) bytes += part;
        std::string_view from = bytes;
        (void)take_record(from, kPlace, kUpdates);
      }
    }
  }
  std::string_view endless = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff";
  EXPECT_FALSE(take_record(endless, kPlace, kUpdates).ok());
}

}  // namespace
}  // namespace muster::ps
