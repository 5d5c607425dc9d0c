#include "muster/ps/table_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "muster/base/float_mode.h"
#include "muster/base/hash.h"

namespace muster::ps {
namespace {

constexpr ShardNumber kFew = 4;

std::vector<TableOptions> make_tables() {
  std::vector<TableOptions> tables(2);
  for (uint32_t i = 0; i < 2; ++i) {
    tables[i].id = i;
    tables[i].name = "table" + std::to_string(i);
    tables[i].width = 3 + i;
    tables[i].seed = 1;
  }
  tables[0].optimizer.rule = RowRule::kAdam;
  tables[1].admission.sights = 2;
  tables[1].eviction.age = 10;
  return tables;
}

class TableDataTest : public ::testing::Test {
 protected:
  // Keys of shard 1, ascending.
  static std::vector<uint64_t> keys(size_t count, uint64_t from = 0) {
    std::vector<uint64_t> found;
    for (uint64_t key = from; found.size() < count; ++key) {
      if (shard_of(key, kFew) == 1) found.push_back(key);
    }
    return found;
  }
  static std::string push_of(uint32_t table, int64_t step, std::span<const uint64_t> keys) {
    std::vector<float> gradients(keys.size() * (3 + table));
    for (size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = static_cast<float>(i + static_cast<size_t>(step)) / 8 - 1;
    }
    return push_bytes({.table = table, .step = step, .lr = 0.1}, keys, gradients);
  }
  void fill(TableData& data) {
    for (int64_t step = 0; step < 5; ++step) {
      ASSERT_TRUE(data.apply(push_of(0, step, keys(20, static_cast<uint64_t>(step)))).ok());
      ASSERT_TRUE(
          data.apply(push_of(1, step, keys(9, static_cast<uint64_t>(30 * (step / 2))))).ok());
    }
  }

  const std::vector<TableOptions> tables_ = make_tables();
  Slabs slabs_;
};

TEST_F(TableDataTest, WhatIsSavedIsLoaded) {
  TableData data(1, kFew, tables_, slabs_);
  fill(data);
  data.table(1).evict(12);
  ASSERT_GT(data.table(1).tombstones().size(), 0U);
  std::string saved;
  data.save(saved);
  TableData other(1, kFew, tables_, slabs_);
  ASSERT_TRUE(other.apply(push_of(0, 9, keys(3))).ok());  // gone afterwards
  const auto loaded = other.load(saved);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message();
  EXPECT_EQ(other.hash(), data.hash());
  ASSERT_TRUE(other.apply(push_of(0, 9, keys(30))).ok());
  EXPECT_NE(other.hash(), data.hash());
  ASSERT_TRUE(data.apply(push_of(0, 9, keys(30))).ok());
  EXPECT_EQ(other.hash(), data.hash());
  data.clear();
  EXPECT_EQ(data.hash(), TableData(1, kFew, tables_, slabs_).hash());
}

TEST_F(TableDataTest, WhatIsCutShortOrTooLongIsRefused) {
  TableData data(1, kFew, tables_, slabs_);
  fill(data);
  std::string saved;
  data.save(saved);
  TableData other(1, kFew, tables_, slabs_);
  for (const size_t size : {size_t{0}, size_t{7}, size_t{24}, saved.size() / 2, saved.size() - 1}) {
    EXPECT_FALSE(other.load(std::string_view(saved).substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(other.load(saved + "x").ok());
}

TEST_F(TableDataTest, PushesAreChecked) {
  const TableData data(1, kFew, tables_, slabs_);
  const auto good = keys(4);
  EXPECT_TRUE(data.check(push_of(0, 1, good)).ok());
  EXPECT_TRUE(data.check(push_of(0, 1, {})).ok());
  EXPECT_FALSE(data.check("").ok());
  EXPECT_FALSE(data.check(push_of(0, 1, good).substr(1)).ok());
  EXPECT_FALSE(data.check(push_of(0, 1, good) + "x").ok());
  EXPECT_FALSE(data.check(push_of(0, -1, good)).ok());
  EXPECT_FALSE(data.check(push_of(2, 1, good)).ok()) << "there is no table 2";
  auto twice = good;
  twice[1] = twice[0];
  EXPECT_FALSE(data.check(push_of(0, 1, twice)).ok());
  auto elsewhere = good;
  elsewhere.back() = good.back() + 1;
  while (shard_of(elsewhere.back(), kFew) == 1) ++elsewhere.back();
  EXPECT_FALSE(data.check(push_of(0, 1, elsewhere)).ok());
  std::string huge = push_of(0, 1, good);
  const uint32_t count = 0xffffffff;
  std::memcpy(huge.data() + 4, &count, sizeof(count));
  EXPECT_FALSE(data.check(huge).ok());
}

// Adam's moments of a weight that gets no gradient any more become subnormal.
TEST_F(TableDataTest, WhoseThreadItIsHasNoEffect) {
  const auto some = keys(4);
  const auto trained = [&] {
    TableData data(1, kFew, tables_, slabs_);
    for (int64_t step = 0; step < 1000; ++step) {
      const std::vector<float> gradients(some.size() * 3, step == 0 ? 1.0F : 0.0F);
      EXPECT_TRUE(
          data.apply(push_bytes({.table = 0, .step = step, .lr = 0.1}, some, gradients)).ok());
    }
    return data.hash();
  };
  const auto expected = trained();
  const FlushSubnormals as_a_worker;
  EXPECT_EQ(trained(), expected);
}

TEST_F(TableDataTest, AnAddressThatIsOddIsNoMatter) {
  TableData a(1, kFew, tables_, slabs_);
  TableData b(1, kFew, tables_, slabs_);
  const std::string push = push_of(0, 3, keys(10));
  const std::string moved = "x" + push;
  ASSERT_TRUE(a.apply(push).ok());
  ASSERT_TRUE(b.apply(std::string_view(moved).substr(1)).ok());
  EXPECT_EQ(a.hash(), b.hash());
}

// The gradient of a lane in a step, and the push with it.
std::string lane_push(uint16_t lane, int64_t step, std::span<const uint64_t> keys) {
  std::vector<float> gradients(keys.size() * 3);
  for (size_t i = 0; i < gradients.size(); ++i) {
    gradients[i] = 1.0F / static_cast<float>(3 + i + size_t{7} * lane + static_cast<size_t>(step));
  }
  return push_bytes({.kind = PushKind::kAdd, .lane = lane, .table = 0, .step = step, .lr = 0.1},
                    keys, gradients);
}

std::string commit_push(int64_t step) {
  return push_bytes({.kind = PushKind::kCommit, .step = step}, {}, {});
}

TEST_F(TableDataTest, TheOrderOfLanesHasNoEffectNorHasOneThatComesTwice) {
  TableData data(1, kFew, tables_, slabs_);
  TableData other(1, kFew, tables_, slabs_);
  const auto some = keys(5);
  const auto others = keys(6, 8);
  for (int64_t step = 0; step < 3; ++step) {
    ASSERT_TRUE(data.apply(lane_push(0, step, some)).ok());
    ASSERT_TRUE(data.apply(lane_push(1, step, others)).ok());
    ASSERT_TRUE(data.apply(lane_push(2, step, some)).ok());
    ASSERT_TRUE(data.apply(commit_push(step)).ok());

    ASSERT_TRUE(other.apply(lane_push(2, step, some)).ok());
    ASSERT_TRUE(other.apply(lane_push(1, step, others)).ok());
    ASSERT_TRUE(other.apply(lane_push(1, step, others)).ok());
    ASSERT_TRUE(other.apply(lane_push(0, step, some)).ok());
    ASSERT_TRUE(other.apply(commit_push(step)).ok());
    ASSERT_TRUE(other.apply(commit_push(step)).ok());
    ASSERT_TRUE(other.apply(lane_push(0, step, some)).ok());  // too late
    EXPECT_EQ(data.hash(), other.hash());
    EXPECT_EQ(data.clock(), step + 1);
  }
  EXPECT_GT(data.table(0).rows(), 5U);
}

TEST_F(TableDataTest, ACommitIsOneUpdateWithTheSum) {
  TableData data(1, kFew, tables_, slabs_);
  TableData expected(1, kFew, tables_, slabs_);
  const auto some = keys(4);
  std::vector<float> sum(some.size() * 3);
  for (uint16_t lane = 0; lane < 3; ++lane) {
    std::vector<float> gradients(some.size() * 3);
    for (size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = static_cast<float>(static_cast<int>(i) - 5) / 64 * static_cast<float>(lane);
      sum[i] += gradients[i];  // exact
    }
    ASSERT_TRUE(
        data.apply(push_bytes({.kind = PushKind::kAdd, .lane = lane, .lr = 0.5}, some, gradients))
            .ok());
    EXPECT_EQ(data.table(0).rows(), 0U) << "nothing changes before the commit";
  }
  ASSERT_TRUE(data.apply(commit_push(0)).ok());
  ASSERT_TRUE(expected.apply(push_bytes({.lr = 0.5}, some, sum)).ok());
  ASSERT_TRUE(expected.apply(commit_push(0)).ok());  // for the clock
  EXPECT_EQ(data.hash(), expected.hash());
}

// Rows as they were after each of the last two steps; also in a copy, and where a step has changed
// others, or none.
TEST_F(TableDataTest, OldRowsCanBeRead) {
  auto tables = tables_;
  tables[0].versions = 2;
  TableData data(1, kFew, tables, slabs_);
  const auto all = keys(6);
  const auto read = [&](TableData& from, int64_t version) {
    std::vector<float> rows(all.size() * 3);
    from.read(0, all, version, rows.data());
    return rows;
  };
  std::vector<std::vector<float>> then = {read(data, 0)};
  for (int64_t step = 0; step < 8; ++step) {
    const auto changed = std::span(all).subspan(static_cast<size_t>(step % 3), 3);
    const std::vector<float> gradients(9, 0.5F + static_cast<float>(step));
    if (step != 4) {
      ASSERT_TRUE(data.apply(push_bytes({.kind = PushKind::kAdd, .step = step, .lr = 0.1}, changed,
                                        gradients))
                      .ok());
    }
    ASSERT_TRUE(data.apply(push_bytes({.kind = PushKind::kCommit, .step = step}, {}, {})).ok());
    std::string saved;
    step % 2 == 0 ? data.save(saved) : data.save_rows(saved);
    TableData copy(1, kFew, tables, slabs_);
    ASSERT_TRUE(copy.load(saved).ok());
    then.push_back(read(data, step + 1));
    for (TableData* const one : {&data, &copy}) {
      EXPECT_FALSE(one->knows(0, step + 2));
      EXPECT_FALSE(one->knows(0, step - 2));
      EXPECT_FALSE(one->knows(1, step)) << "the other table keeps none";
      for (int64_t version = std::max<int64_t>(step - 1, 0); version <= step + 1; ++version) {
        ASSERT_TRUE(one->knows(0, version));
        EXPECT_EQ(read(*one, version), then[static_cast<size_t>(version)]) << step;
      }
    }
  }
  std::string saved;
  data.save(saved);
  EXPECT_FALSE(TableData(1, kFew, tables_, slabs_).load(saved).ok()) << "another staleness";
}

TEST_F(TableDataTest, SumsOfStepsUnderWayAreSaved) {
  TableData data(1, kFew, tables_, slabs_);
  const auto some = keys(5);
  ASSERT_TRUE(data.apply(lane_push(0, 0, some)).ok());
  ASSERT_TRUE(data.apply(commit_push(0)).ok());
  ASSERT_TRUE(data.apply(lane_push(1, 1, some)).ok());
  ASSERT_TRUE(data.apply(lane_push(0, 2, some)).ok());  // a lane that is ahead
  std::string saved;
  data.save(saved);
  TableData again(1, kFew, tables_, slabs_);
  ASSERT_TRUE(again.load(saved).ok());
  std::string saved_again;
  again.save(saved_again);
  EXPECT_EQ(saved_again, saved);
  for (TableData* one : {&data, &again}) {
    ASSERT_TRUE(one->apply(lane_push(1, 1, some)).ok());  // it is there
    ASSERT_TRUE(one->apply(lane_push(0, 1, some)).ok());
    ASSERT_TRUE(one->apply(commit_push(2)).ok());  // not the next one
    EXPECT_EQ(one->clock(), 1);
    ASSERT_TRUE(one->apply(commit_push(1)).ok());
    ASSERT_TRUE(one->apply(commit_push(2)).ok());
  }
  EXPECT_EQ(again.hash(), data.hash());
  EXPECT_EQ(again.clock(), 3);
}

TEST_F(TableDataTest, WhatCannotBeAddedIsRefused) {
  TableData data(1, kFew, tables_, slabs_);
  const auto some = keys(1);
  const float bad[] = {1, NAN, 0};
  EXPECT_FALSE(data.check(push_bytes({.kind = PushKind::kAdd}, some, bad)).ok());
  const float good[] = {1, 2, 3};
  EXPECT_TRUE(data.check(push_bytes({.kind = PushKind::kAdd}, some, good)).ok());
  EXPECT_FALSE(data.check(push_bytes({.kind = PushKind::kCommit}, some, good)).ok());
  EXPECT_FALSE(data.check(push_bytes({.kind = PushKind::kAdd, .lane = 1023}, some, good)).ok());
  EXPECT_FALSE(data.check(push_bytes({.kind = PushKind{7}}, some, good)).ok());
  EXPECT_FALSE(data.check(load_bytes(0, "rubbish")).ok());
}

TEST_F(TableDataTest, GoesBackToWhatWasSaved) {
  TableData data(1, kFew, tables_, slabs_);
  const auto some = keys(5);
  ASSERT_TRUE(data.apply(lane_push(0, 0, some)).ok());
  ASSERT_TRUE(data.apply(commit_push(0)).ok());
  ASSERT_TRUE(data.apply(lane_push(0, 1, some)).ok());  // is not saved
  std::string saved;
  data.save_rows(saved);
  const auto then = data.hash();
  ASSERT_TRUE(data.apply(commit_push(1)).ok());
  EXPECT_NE(data.hash(), then);
  ASSERT_TRUE(data.check(load_bytes(0, saved)).ok());
  ASSERT_TRUE(data.apply(load_bytes(0, saved)).ok());
  EXPECT_EQ(data.hash(), then);
  ASSERT_TRUE(data.apply(commit_push(1)).ok());
  EXPECT_EQ(data.clock(), 2);
  ASSERT_TRUE(data.apply(load_bytes(0, "")).ok());
  EXPECT_EQ(data.hash(), TableData(1, kFew, tables_, slabs_).hash());
}

TEST_F(TableDataTest, WhatIsOfAnEarlierEraHasNoEffect) {
  TableData data(1, kFew, tables_, slabs_);
  const auto some = keys(5);
  const auto of_era = [&](uint64_t era, PushKind kind) {
    const std::vector<float> gradients(some.size() * 3, 0.5F);
    const PushHeader header{.kind = kind, .era = era, .step = 0, .lr = 0.1};
    return kind == PushKind::kAdd ? push_bytes(header, some, gradients)
                                  : push_bytes(header, {}, {});
  };
  ASSERT_TRUE(data.apply(load_bytes(7, "")).ok());
  ASSERT_TRUE(data.apply(of_era(6, PushKind::kAdd)).ok());
  ASSERT_TRUE(data.apply(of_era(6, PushKind::kCommit)).ok());
  EXPECT_EQ(data.clock(), 0);
  ASSERT_TRUE(data.apply(of_era(7, PushKind::kAdd)).ok());
  ASSERT_TRUE(data.apply(load_bytes(7, "")).ok());  // another worker's of the same
  ASSERT_TRUE(data.apply(load_bytes(6, "")).ok());  // one that comes too late
  ASSERT_TRUE(data.apply(of_era(7, PushKind::kCommit)).ok());
  EXPECT_EQ(data.clock(), 1);
  EXPECT_EQ(data.table(0).rows(), some.size());
  EXPECT_FALSE(data.check(of_era(8, PushKind::kAdd)).ok()) << "nobody may be ahead of a load";
  EXPECT_FALSE(data.apply(of_era(8, PushKind::kAdd)).ok());
  std::string saved;
  data.save(saved);
  TableData copy(1, kFew, tables_, slabs_);
  ASSERT_TRUE(copy.load(saved).ok());
  ASSERT_TRUE(copy.apply(load_bytes(7, "")).ok());
  EXPECT_EQ(copy.clock(), 1) << "a copy is in the same era";
  ASSERT_TRUE(copy.apply(load_bytes(8, "")).ok());
  EXPECT_EQ(copy.clock(), 0);
}

// ---- The asynchronous way.

std::vector<float> ticket_gradients(uint64_t ticket, size_t rows) {
  std::vector<float> gradients(rows * 3);
  for (size_t i = 0; i < gradients.size(); ++i) {
    gradients[i] = 1.0F / static_cast<float>(3 + i + size_t{7} * ticket);
  }
  return gradients;
}

std::string stage_push(uint64_t ticket, std::span<const uint64_t> keys, uint64_t era = 0) {
  return push_bytes(
      {.kind = PushKind::kStage, .era = era, .step = static_cast<int64_t>(ticket), .lr = 0.1}, keys,
      ticket_gradients(ticket, keys.size()));
}

PlacedPushes places_of(int64_t first, std::span<const uint64_t> tickets, int64_t pushes = 1,
                       uint64_t oldest = 0) {
  PlacedPushes places{.first = first, .pushes = pushes, .oldest = oldest, .placed = {}};
  for (const uint64_t ticket : tickets) places.placed.push_back({.ticket = ticket});
  return places;
}

// These tickets have the places from `first` on.
std::string places_push(int64_t first, const std::vector<uint64_t>& tickets, int64_t pushes = 1,
                        uint64_t oldest = 0) {
  return apply_bytes(0, places_of(first, tickets, pushes, oldest));
}

// The same rows and clock by updates at once, in this order.
void update_at_once(TableData& data, std::span<const uint64_t> keys,
                    const std::vector<uint64_t>& tickets) {
  for (const uint64_t ticket : tickets) {
    const int64_t step = data.clock();
    ASSERT_TRUE(data.apply(push_bytes({.step = step, .lr = 0.1}, keys,
                                      ticket_gradients(ticket, keys.size())))
                    .ok());
    ASSERT_TRUE(data.apply(commit_push(step)).ok());
  }
}

// Each step has a row of its own, and one that is always there.
void add_and_commit(TableData& data, std::span<const uint64_t> keys, int64_t step) {
  const uint64_t some[] = {keys[0], keys[1 + static_cast<size_t>(step)]};
  const std::vector<float> gradients(6, 0.5F);
  ASSERT_TRUE(
      data.apply(push_bytes({.kind = PushKind::kAdd, .step = step, .lr = 0.1}, some, gradients))
          .ok());
  ASSERT_TRUE(data.apply(commit_push(step)).ok());
}

TEST_F(TableDataTest, RowsAreEvictedAtFixedNumbersOfTheClock) {
  auto tables = tables_;
  tables[0].eviction = {.age = 3, .most = 0, .every = 4};
  TableData data(1, kFew, tables, slabs_);
  const auto some = keys(20);
  for (int64_t step = 0; step < 12; ++step) {
    add_and_commit(data, some, step);
    ASSERT_TRUE(data.apply(commit_push(step)).ok());  // once more, without effect
  }
  // Shard 1: when the clock is 3, 7 and 11. The row of step s was not used for 3 steps at s + 4.
  std::vector<std::pair<int64_t, uint64_t>> seen;
  for (const auto& tombstone : data.table(0).tombstones()) {
    seen.emplace_back(int64_t{tombstone.step}, tombstone.key);
  }
  std::ranges::sort(seen);
  const auto gone = [&](int64_t clock, int64_t step) {
    return std::pair(clock, some[1 + static_cast<size_t>(step)]);
  };
  const std::vector<std::pair<int64_t, uint64_t>> expected = {gone(7, 0),  gone(7, 1),  gone(7, 2),
                                                              gone(7, 3),  gone(11, 4), gone(11, 5),
                                                              gone(11, 6), gone(11, 7)};
  EXPECT_EQ(seen, expected);
  EXPECT_EQ(data.table(0).rows(), 5U);
  // Updates at once do not move the clock.
  for (int64_t step = 12; step < 40; ++step) {
    ASSERT_TRUE(data.apply(push_of(0, step, std::span(some).first(1))).ok());
  }
  EXPECT_EQ(data.table(0).rows(), 5U);
}

// Both those that the update with which they go has changed, and those that it has not.
TEST_F(TableDataTest, EvictedRowsCanBeReadAsTheyWere) {
  const Eviction old{.age = 3, .most = 0, .every = 4};
  const Eviction too_many{.age = 0, .most = 1, .every = 3};
  for (const Eviction& rule : {old, too_many}) {
    auto tables = tables_;
    tables[0].versions = 3;
    tables[0].eviction = rule;
    TableData data(1, kFew, tables, slabs_);
    const auto all = keys(20);
    const auto read = [&](TableData& from, int64_t version) {
      std::vector<float> rows(all.size() * 3);
      from.read(0, all, version, rows.data());
      return rows;
    };
    std::vector<std::vector<float>> then = {read(data, 0)};
    size_t evicted = 0;
    for (int64_t step = 0; step < 16; ++step) {
      add_and_commit(data, all, step);
      then.push_back(read(data, step + 1));
      const auto& before = then[static_cast<size_t>(step)];
      for (size_t i = 0; i < before.size(); i += 3) {
        if (before[i] != then[0][i] && then.back()[i] == then[0][i]) ++evicted;
      }
      std::string saved;
      step % 2 == 0 ? data.save(saved) : data.save_rows(saved);
      TableData copy(1, kFew, tables, slabs_);
      ASSERT_TRUE(copy.load(saved).ok());
      for (TableData* const one : {&data, &copy}) {
        for (int64_t version = std::max<int64_t>(step - 2, 0); version <= step + 1; ++version) {
          ASSERT_TRUE(one->knows(0, version));
          EXPECT_EQ(read(*one, version), then[static_cast<size_t>(version)]) << step;
        }
      }
    }
    EXPECT_GT(evicted, 5U);
  }
}

TEST_F(TableDataTest, ACopyEvictsWhatTheOriginalDoes) {
  auto tables = tables_;
  tables[0].admission.sights = 2;
  tables[0].eviction = {.age = 6, .most = 2, .every = 3};
  TableData data(1, kFew, tables, slabs_);
  TableData other(1, kFew, tables, slabs_);
  const auto some = keys(24);
  for (int64_t step = 0; step < 20; ++step) {
    for (auto* const one : {&data, &other}) {
      ASSERT_TRUE(one->apply(push_bytes({.kind = PushKind::kAdd, .lane = 1, .step = step},
                                        std::span(some).subspan(static_cast<size_t>(step), 3),
                                        std::vector<float>(9, 0.25F)))
                      .ok());
      add_and_commit(*one, some, step);
    }
    ASSERT_EQ(other.hash(), data.hash()) << step;
    std::string saved;
    data.save(saved);
    other.clear();
    ASSERT_TRUE(other.load(saved).ok());
  }
  EXPECT_GT(data.table(0).tombstones().size(), 3U);
}

TEST_F(TableDataTest, AsynchronousUpdatesEvictTheSameRows) {
  auto tables = tables_;
  tables[0].eviction = {.age = 2, .most = 0, .every = 2};
  TableData one_by_one(1, kFew, tables, slabs_);
  TableData together(1, kFew, tables, slabs_);
  const auto some = keys(20);
  std::vector<uint64_t> tickets;
  for (uint64_t ticket = 1; ticket <= 8; ++ticket) {
    const auto rows = std::span(some).subspan(2 * ticket, 3);
    for (auto* const data : {&one_by_one, &together}) {
      ASSERT_TRUE(data->apply(stage_push(ticket, rows)).ok());
    }
    ASSERT_TRUE(one_by_one.apply(places_push(static_cast<int64_t>(ticket) - 1, {ticket})).ok());
    tickets.push_back(ticket);
  }
  ASSERT_TRUE(together.apply(places_push(0, tickets)).ok());
  EXPECT_EQ(together.hash(), one_by_one.hash());
  EXPECT_GT(together.table(0).tombstones().size(), 4U);
  EXPECT_LT(together.table(0).rows(), 10U);
}

TEST_F(TableDataTest, StagedRowsChangeNothingUntilTheyHaveAPlace) {
  TableData data(1, kFew, tables_, slabs_);
  TableData expected(1, kFew, tables_, slabs_);
  const auto some = keys(5);
  ASSERT_TRUE(data.check(stage_push(1, some)).ok());
  ASSERT_TRUE(data.apply(stage_push(1, some)).ok());
  EXPECT_EQ(data.table(0).rows(), 0U);
  EXPECT_EQ(data.hash(), expected.hash());
  ASSERT_TRUE(data.check(places_push(0, {1})).ok());
  ASSERT_TRUE(data.apply(places_push(0, {1})).ok());
  EXPECT_EQ(data.clock(), 1);
  update_at_once(expected, some, {1});
  EXPECT_EQ(data.hash(), expected.hash());
}

TEST_F(TableDataTest, PlacesDecideTheOrder) {
  TableData data(1, kFew, tables_, slabs_);
  TableData other(1, kFew, tables_, slabs_);
  const auto some = keys(5);
  for (const uint64_t ticket : {1, 2, 3}) ASSERT_TRUE(data.apply(stage_push(ticket, some)).ok());
  for (const uint64_t ticket : {3, 1, 2}) ASSERT_TRUE(other.apply(stage_push(ticket, some)).ok());
  ASSERT_TRUE(data.apply(places_push(0, {2, 3, 1})).ok());
  for (const auto& push : {places_push(0, {2}), places_push(1, {3, 1})}) {
    ASSERT_TRUE(other.apply(push).ok());
  }
  EXPECT_EQ(data.clock(), 3);
  EXPECT_EQ(data.hash(), other.hash());
  TableData expected(1, kFew, tables_, slabs_);
  update_at_once(expected, some, {2, 3, 1});
  EXPECT_EQ(data.hash(), expected.hash());
  TableData in_another_order(1, kFew, tables_, slabs_);
  update_at_once(in_another_order, some, {1, 2, 3});
  EXPECT_NE(data.hash(), in_another_order.hash());
}

TEST_F(TableDataTest, PlacesThatAreToldAgainHaveNoEffect) {
  TableData data(1, kFew, tables_, slabs_);
  TableData expected(1, kFew, tables_, slabs_);
  const auto some = keys(5);
  for (const uint64_t ticket : {1, 2, 3}) ASSERT_TRUE(data.apply(stage_push(ticket, some)).ok());
  ASSERT_TRUE(data.apply(places_push(0, {1, 2})).ok());
  ASSERT_TRUE(data.apply(places_push(0, {1, 2})).ok());
  ASSERT_TRUE(data.apply(places_push(0, {1})).ok());
  EXPECT_EQ(data.clock(), 2);
  ASSERT_TRUE(data.apply(places_push(1, {2, 3})).ok());
  EXPECT_EQ(data.clock(), 3);
  update_at_once(expected, some, {1, 2, 3});
  EXPECT_EQ(data.hash(), expected.hash());
}

TEST_F(TableDataTest, AGapBetweenPlacesHasToBeFilledFirst) {
  TableData data(1, kFew, tables_, slabs_);
  TableData expected(1, kFew, tables_, slabs_);
  const auto some = keys(5);
  for (const uint64_t ticket : {1, 2, 3}) ASSERT_TRUE(data.apply(stage_push(ticket, some)).ok());
  ASSERT_TRUE(data.apply(places_push(1, {2}, 1, 3)).ok());
  ASSERT_TRUE(data.apply(places_push(5, {}, 1, 9)).ok());
  EXPECT_EQ(data.hash(), expected.hash());
  ASSERT_TRUE(data.apply(places_push(0, {1})).ok());
  EXPECT_EQ(data.clock(), 1);
  ASSERT_TRUE(data.apply(places_push(1, {2, 3})).ok());
  EXPECT_EQ(data.clock(), 3);
  update_at_once(expected, some, {1, 2, 3});
  EXPECT_EQ(data.hash(), expected.hash());
}

TEST_F(TableDataTest, PlacesFarAheadHaveNoEffect) {
  TableData data(1, kFew, tables_, slabs_);
  ASSERT_TRUE(data.apply(stage_push(1, keys(5))).ok());
  const auto push = places_push(INT64_MAX, {1});
  if (data.check(push).ok()) {
    ASSERT_TRUE(data.apply(push).ok());
  }
  EXPECT_EQ(data.clock(), 0);
}

TEST_F(TableDataTest, APushWithoutRowsOfTheShardHasAPlaceToo) {
  TableData data(1, kFew, tables_, slabs_);
  ASSERT_TRUE(data.apply(places_push(0, {4, 5})).ok());
  EXPECT_EQ(data.clock(), 2);
  EXPECT_EQ(data.table(0).rows(), 0U);
}

TEST_F(TableDataTest, AnUpdateIsTheMeanOfItsPushes) {
  TableData data(1, kFew, tables_, slabs_);
  TableData expected(1, kFew, tables_, slabs_);
  const auto all = keys(6);
  const std::span<const uint64_t> first = std::span(all).subspan(0, 4);
  const std::span<const uint64_t> second = std::span(all).subspan(2, 4);
  const auto gradients_of = [](float sign) {
    std::vector<float> gradients(12);
    for (size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = sign * static_cast<float>(1 + i) / 64;
    }
    return gradients;
  };
  const auto stage = [&](int64_t ticket, std::span<const uint64_t> keys, float sign) {
    ASSERT_TRUE(data.apply(push_bytes({.kind = PushKind::kStage, .step = ticket, .lr = 0.5}, keys,
                                      gradients_of(sign)))
                    .ok());
  };
  stage(1, first, 1);
  stage(2, second, -1);
  const auto place = [&](int64_t first_place, uint64_t ticket, float weight) {
    auto places = places_of(first_place, std::span(&ticket, 1), 2);
    places.placed[0].weight = weight;
    ASSERT_TRUE(data.apply(apply_bytes(0, places)).ok());
  };
  place(0, 1, 0.5F);
  EXPECT_EQ(data.clock(), 0);
  EXPECT_EQ(data.table(0).rows(), 0U) << "half of an update changes nothing";
  place(1, 2, 2);
  EXPECT_EQ(data.clock(), 1);

  std::vector<float> mean(all.size() * 3);  // exact
  for (size_t i = 0; i < 12; ++i) {
    mean[i] += 0.25F * gradients_of(1)[i];
    mean[6 + i] += gradients_of(-1)[i];
  }
  ASSERT_TRUE(expected.apply(push_bytes({.lr = 0.5}, all, mean)).ok());
  ASSERT_TRUE(expected.apply(commit_push(0)).ok());
  EXPECT_EQ(data.hash(), expected.hash());
}

TEST_F(TableDataTest, OfSeveralTablesEachGetsItsRows) {
  TableData data(1, kFew, tables_, slabs_);
  TableData expected(1, kFew, tables_, slabs_);
  const auto some = keys(3);
  const std::vector<float> gradients(some.size() * 4, 0.5F);
  for (const int64_t ticket : {1, 2}) {
    ASSERT_TRUE(data.apply(stage_push(static_cast<uint64_t>(ticket), some)).ok());
    const PushHeader header{.kind = PushKind::kStage, .table = 1, .step = ticket, .lr = 0.1};
    ASSERT_TRUE(data.apply(push_bytes(header, some, gradients)).ok());
  }
  ASSERT_TRUE(data.apply(places_push(0, {1, 2})).ok());
  for (const int64_t step : {0, 1}) {
    ASSERT_TRUE(
        expected.apply(push_bytes({.table = 1, .step = step, .lr = 0.1}, some, gradients)).ok());
  }
  update_at_once(expected, some, {1, 2});
  EXPECT_EQ(data.table(1).rows(), 3U);
  EXPECT_EQ(data.hash(), expected.hash());
}

TEST_F(TableDataTest, ATicketThatIsGivenUpIsDropped) {
  TableData data(1, kFew, tables_, slabs_);
  TableData never(1, kFew, tables_, slabs_);
  const auto some = keys(5);
  for (const uint64_t ticket : {1, 2, 3}) ASSERT_TRUE(data.apply(stage_push(ticket, some)).ok());
  for (const uint64_t ticket : {2, 3}) ASSERT_TRUE(never.apply(stage_push(ticket, some)).ok());
  ASSERT_TRUE(data.apply(places_push(0, {2}, 1, 3)).ok());
  ASSERT_TRUE(data.apply(stage_push(1, some)).ok());  // too late
  ASSERT_TRUE(data.apply(places_push(1, {1, 3}, 1, 2)).ok());
  ASSERT_TRUE(never.apply(places_push(0, {2, 1, 3})).ok());
  EXPECT_EQ(data.clock(), 3);
  EXPECT_EQ(data.hash(), never.hash());
}

TEST_F(TableDataTest, ACopyBetweenPlacesGoesOnEqual) {
  TableData data(1, kFew, tables_, slabs_);
  const auto some = keys(5);
  for (const uint64_t ticket : {1, 2, 3, 4, 7}) {
    ASSERT_TRUE(data.apply(stage_push(ticket, some)).ok());
  }
  ASSERT_TRUE(data.apply(places_push(0, {2, 4, 3}, 2, 3)).ok());  // half of an update is left
  std::string saved;
  data.save(saved);
  TableData copy(1, kFew, tables_, slabs_);
  const auto loaded = copy.load(saved);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message();
  std::string saved_again;
  copy.save(saved_again);
  EXPECT_EQ(saved_again, saved);
  for (TableData* one : {&data, &copy}) {
    ASSERT_TRUE(one->apply(stage_push(1, some)).ok());  // is given up
    ASSERT_TRUE(one->apply(stage_push(5, some)).ok());
    ASSERT_TRUE(one->apply(places_push(2, {3, 5, 1, 7}, 2)).ok());
    EXPECT_EQ(one->clock(), 3);
  }
  EXPECT_EQ(copy.hash(), data.hash());
  EXPECT_EQ(copy.table(0).rows(), 5U);
}

std::string saved_order(const TableData& data) {
  std::string bytes;
  data.order().save(bytes);
  return bytes;
}

TEST_F(TableDataTest, RowsAreSavedWithPlacesAndOrderButNoStagedPushes) {
  TableData data(0, 1, tables_, slabs_);  // has all keys
  TableData never(0, 1, tables_, slabs_);
  const auto some = keys(5);
  ASSERT_TRUE(data.apply(order_push(0, order_bytes(OpenRound{.token = 7, .end = 4}))).ok());
  for (const uint64_t done : {0, 1}) {
    ASSERT_TRUE(data.apply(order_push(0, order_bytes(NextTask{7, 0, done, {}, {{0}}}))).ok());
  }
  for (const uint64_t ticket : {1, 2}) ASSERT_TRUE(data.apply(stage_push(ticket, some)).ok());
  ASSERT_TRUE(data.apply(places_push(0, {1}, 1, 2)).ok());
  const auto then = data.hash();
  std::string saved;
  data.save_rows(saved);
  ASSERT_TRUE(data.check(load_bytes(3, saved)).ok());
  ASSERT_TRUE(data.apply(load_bytes(3, saved)).ok());
  EXPECT_EQ(data.hash(), then);
  EXPECT_EQ(data.clock(), 1);
  EXPECT_EQ(data.order().places(), 1);
  EXPECT_EQ(data.order().view(0, 0, false).ticket, 2U);
  std::string saved_again;
  data.save_rows(saved_again);
  EXPECT_EQ(saved_again, saved);

  ASSERT_TRUE(data.apply(apply_bytes(3, places_of(0, std::vector<uint64_t>{1, 2}))).ok());
  EXPECT_EQ(data.clock(), 2);
  ASSERT_TRUE(never.apply(stage_push(1, some)).ok());
  ASSERT_TRUE(never.apply(places_push(0, {1, 2})).ok());
  EXPECT_EQ(data.hash(), never.hash()) << "what was staged for ticket 2 is gone";

  data.clear();
  EXPECT_EQ(saved_order(data), saved_order(never));
}

TEST_F(TableDataTest, OnlyTheFirstShardHasAnOrder) {
  TableData first(kOrderShard, kFew, tables_, slabs_);
  const TableData second(1, kFew, tables_, slabs_);
  const auto push = order_push(0, order_bytes(OpenRound{.token = 7, .end = 4}));
  EXPECT_TRUE(first.check(push).ok());
  EXPECT_FALSE(second.check(push).ok());
  for (size_t size = 0; size < push.size(); ++size) {
    EXPECT_FALSE(first.check(std::string_view(push).substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(first.check(order_push(0, "rubbish")).ok());
  ASSERT_TRUE(first.apply(push).ok());
  EXPECT_EQ(first.order().view(0, 0, false).token, 7U);
  std::string saved;
  first.save(saved);
  TableData copy(kOrderShard, kFew, tables_, slabs_);
  ASSERT_TRUE(copy.load(saved).ok());
  EXPECT_EQ(saved_order(copy), saved_order(first));
}

TEST_F(TableDataTest, WhatCannotBeStagedOrPlacedIsRefused) {
  const TableData data(1, kFew, tables_, slabs_);
  const auto some = keys(1);
  const float good[] = {1, 2, 3};
  const auto staged = [&](const PushHeader& header, std::span<const float> gradients) {
    return data.check(push_bytes(header, some, gradients)).ok();
  };
  EXPECT_TRUE(staged({.kind = PushKind::kStage, .step = 1}, good));
  EXPECT_FALSE(staged({.kind = PushKind::kStage, .step = -1}, good));
  EXPECT_FALSE(staged({.kind = PushKind::kStage, .table = 1, .step = 1}, good)) << "its width";
  EXPECT_FALSE(staged({.kind = PushKind::kStage, .step = 1, .lr = NAN}, good));
  EXPECT_FALSE(staged({.kind = PushKind::kApply}, good)) << "it has no keys";
  EXPECT_FALSE(staged({.kind = PushKind::kOrder}, good)) << "it has no keys";
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    EXPECT_FALSE(staged({.kind = PushKind::kStage, .step = 1}, std::vector<float>{1, bad, 3}));
  }
  EXPECT_FALSE(data.check(stage_push(1, std::vector<uint64_t>{some[0], some[0]})).ok());

  const auto push = places_push(3, {1, 2});
  EXPECT_TRUE(data.check(push).ok());
  EXPECT_FALSE(data.check(push + "x").ok());
  for (size_t size = 0; size < push.size(); ++size) {
    EXPECT_FALSE(data.check(std::string_view(push).substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(data.check(places_push(-1, {1})).ok());
  EXPECT_FALSE(data.check(places_push(0, {1}, 0)).ok());
  auto heavy = places_of(0, some);
  heavy.placed[0].weight = NAN;
  EXPECT_FALSE(data.check(apply_bytes(0, heavy)).ok());
}

// ---- Delay compensation.

class CompensationTest : public TableDataTest {
 protected:
  CompensationTest() {
    for (auto& table : sgd_) table.optimizer.rule = RowRule::kSgd;
  }
  static std::string stage_read(uint64_t ticket, std::span<const uint64_t> keys,
                                std::span<const float> read) {
    const auto gradients = ticket_gradients(ticket, keys.size());
    std::vector<float> both;
    for (size_t i = 0; i < gradients.size(); i += 3) {
      both.insert(both.end(), &gradients[i], &gradients[i] + 3);
      both.insert(both.end(), &read[i], &read[i] + 3);
    }
    const auto step = static_cast<int64_t>(ticket);
    return push_bytes({.kind = PushKind::kStageRead, .step = step, .lr = 0.1}, keys, both);
  }
  static std::string place(int64_t first, const std::vector<uint64_t>& tickets, float compensation,
                           int64_t pushes = 1) {
    auto places = places_of(first, tickets, pushes);
    for (auto& placed : places.placed) placed.compensation = compensation;
    return apply_bytes(0, places);
  }
  static std::vector<float> weights(TableData& data, std::span<const uint64_t> keys) {
    std::vector<float> now(keys.size() * 3);
    data.table(0).read(keys, now.data());
    return now;
  }

  std::vector<TableOptions> sgd_ = make_tables();
};

TEST_F(CompensationTest, IsTheFormulaInDoublePrecision) {
  TableData data(1, kFew, sgd_, slabs_);
  const auto some = keys(5);
  const auto read = weights(data, some);
  for (const uint64_t ticket : {1, 2, 3}) {
    const auto push = stage_read(ticket, some, read);
    ASSERT_TRUE(data.check(push).ok());
    ASSERT_TRUE(data.apply(push).ok());
  }
  const auto places = place(0, {1, 2, 3}, 400);
  ASSERT_TRUE(data.check(places).ok());
  ASSERT_TRUE(data.apply(places).ok());

  std::vector<double> expected(read.begin(), read.end());
  double most = 0;
  for (const uint64_t ticket : {1, 2, 3}) {
    const auto gradients = ticket_gradients(ticket, some.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      const double g = gradients[i];
      const double late = 400 * g * g * (expected[i] - double{read[i]});
      expected[i] -= 0.1 * (g + late);
      most = std::max(most, std::abs(late));
    }
  }
  EXPECT_GT(most, 0.01) << "nothing was late";
  const auto now = weights(data, some);
  for (size_t i = 0; i < now.size(); ++i) EXPECT_NEAR(now[i], expected[i], 1e-7);
}

TEST_F(CompensationTest, WhatIsNotLateOrHasNoFactorIsAsItWas) {
  const auto some = keys(5);
  TableData plain(1, kFew, tables_, slabs_);
  TableData without_factor(1, kFew, tables_, slabs_);
  TableData not_late(1, kFew, tables_, slabs_);
  TableData late(1, kFew, tables_, slabs_);
  const auto read = weights(plain, some);
  for (const uint64_t ticket : {1, 2}) {
    ASSERT_TRUE(plain.apply(stage_push(ticket, some)).ok());
    ASSERT_TRUE(without_factor.apply(stage_read(ticket, some, read)).ok());
    ASSERT_TRUE(late.apply(stage_read(ticket, some, read)).ok());
    ASSERT_TRUE(not_late.apply(stage_read(ticket, some, weights(not_late, some))).ok());
    ASSERT_TRUE(not_late.apply(place(static_cast<int64_t>(ticket) - 1, {ticket}, 40)).ok());
  }
  // What was not pushed with weights cannot be compensated.
  ASSERT_TRUE(plain.apply(place(0, {1, 2}, 40)).ok());
  ASSERT_TRUE(without_factor.apply(place(0, {1, 2}, 0)).ok());
  ASSERT_TRUE(late.apply(place(0, {1, 2}, 40)).ok());
  EXPECT_EQ(without_factor.hash(), plain.hash());
  EXPECT_EQ(not_late.hash(), plain.hash());
  EXPECT_NE(late.hash(), plain.hash());
}

TEST_F(CompensationTest, ACopyHasWhatWasRead) {
  const auto some = keys(5);
  TableData data(1, kFew, tables_, slabs_);
  const auto read = weights(data, some);
  // Bytes that lie anywhere.
  const std::string shifted = "x" + stage_read(1, some, read);
  ASSERT_TRUE(data.apply(std::string_view(shifted).substr(1)).ok());
  ASSERT_TRUE(data.apply(stage_read(2, some, read)).ok());
  std::string saved;
  data.save(saved);
  TableData copy(1, kFew, tables_, slabs_);
  ASSERT_TRUE(copy.load(saved).ok());
  for (auto* const one : {&data, &copy}) {
    ASSERT_TRUE(one->apply(place(0, {1}, 40)).ok());
    ASSERT_TRUE(one->apply(place(1, {2}, 40)).ok());
  }
  EXPECT_EQ(copy.hash(), data.hash());
  TableData other(1, kFew, tables_, slabs_);
  for (const uint64_t ticket : {1, 2}) ASSERT_TRUE(other.apply(stage_push(ticket, some)).ok());
  ASSERT_TRUE(other.apply(places_push(0, {1, 2})).ok());
  EXPECT_NE(other.hash(), data.hash());
}

TEST_F(CompensationTest, WhatCannotBeIsRefused) {
  const TableData data(1, kFew, tables_, slabs_);
  const auto some = keys(1);
  const std::vector<float> read = {1, 2, 3};
  EXPECT_TRUE(data.check(stage_read(1, some, read)).ok());
  EXPECT_FALSE(data.check(push_bytes({.kind = PushKind::kStageRead, .step = 1}, some, read)).ok())
      << "it has no weights";
  for (const float bad : {NAN, INFINITY}) {
    EXPECT_FALSE(data.check(stage_read(1, some, std::vector<float>{1, bad, 3})).ok());
    EXPECT_FALSE(data.check(place(0, {1}, bad)).ok());
  }
  EXPECT_TRUE(data.check(place(0, {1}, 0, 2)).ok());
  EXPECT_FALSE(data.check(place(0, {1}, 1, 2)).ok()) << "an update has several pushes";
}

TEST_F(TableDataTest, WhatIsStagedPlacedOrOrderedInAnEarlierEraHasNoEffect) {
  TableData data(0, 1, tables_, slabs_);
  TableData expected(0, 1, tables_, slabs_);
  const auto some = keys(5);
  const auto places = [](uint64_t era, const std::vector<uint64_t>& tickets) {
    return apply_bytes(era, places_of(0, tickets));
  };
  const auto round = [](uint64_t era) {
    return order_push(era, order_bytes(OpenRound{.token = 7, .end = 4}));
  };
  ASSERT_TRUE(data.apply(stage_push(2, some)).ok());
  ASSERT_TRUE(data.apply(round(0)).ok());
  ASSERT_TRUE(data.apply(load_bytes(7, "")).ok());  // all of that is gone
  for (const auto& late : {stage_push(1, some, 6), places(6, {1}), round(6)}) {
    EXPECT_TRUE(data.check(late).ok());
    ASSERT_TRUE(data.apply(late).ok());
  }
  EXPECT_EQ(data.clock(), 0);
  EXPECT_EQ(data.order().view(0, 0, false).openings, 0U);
  ASSERT_TRUE(data.apply(stage_push(3, some, 7)).ok());
  ASSERT_TRUE(data.apply(load_bytes(7, "")).ok());  // another worker's of the same
  ASSERT_TRUE(data.apply(round(7)).ok());
  ASSERT_TRUE(data.apply(places(7, {1, 2, 3})).ok());
  EXPECT_EQ(data.clock(), 3);
  EXPECT_EQ(data.order().view(0, 0, false).openings, 1U);
  ASSERT_TRUE(expected.apply(stage_push(3, some)).ok());
  ASSERT_TRUE(expected.apply(places_push(0, {1, 2, 3})).ok());
  EXPECT_EQ(data.hash(), expected.hash()) << "tickets 1 and 2 have nothing staged";
  for (const auto& early : {stage_push(4, some, 8), places(8, {4}), round(8)}) {
    EXPECT_FALSE(data.check(early).ok());
    EXPECT_FALSE(data.apply(early).ok());
  }
}

// A copy of an empty shard with these.
std::string copy_with(TableData& empty, const StagedPushes& staged) {
  std::string bytes;
  empty.save(bytes);
  std::string none;
  StagedPushes().save(none);
  TaskOrder().save(none);
  OldRows().save(none);
  const size_t hashes = sizeof(Hash128) + sizeof(uint64_t);
  const std::string rows_hash = bytes.substr(bytes.size() - hashes, sizeof(Hash128));
  bytes.resize(bytes.size() - hashes - none.size());
  staged.save(bytes);
  TaskOrder().save(bytes);
  OldRows().save(bytes);
  bytes += rows_hash;
  const uint64_t checksum = hash64(bytes.data(), bytes.size());
  return bytes.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
}

TEST_F(TableDataTest, SavedPushesThatCannotBeAreRefused) {
  TableData empty(1, kFew, tables_, slabs_);
  const auto some = keys(2);
  const auto loads = [&](uint32_t table, const std::vector<uint64_t>& keys, size_t floats,
                         bool placed, size_t read = 0) {
    StagedPushes staged;
    staged.stage(1, {.table = table,
                     .lr = 0.1,
                     .keys = keys,
                     .gradients = std::vector<float>(floats, 0.5F),
                     .read = std::vector<float>(read, 0.5F)});
    if (placed) staged.place(1, 1, 0, 2);
    TableData data(1, kFew, tables_, slabs_);
    return data.load(copy_with(empty, staged)).ok();
  };
  auto elsewhere = some;
  while (shard_of(elsewhere.back(), kFew) == 1) ++elsewhere.back();
  for (const bool placed : {false, true}) {
    EXPECT_TRUE(loads(0, some, 6, placed));
    EXPECT_TRUE(loads(1, some, 8, placed));
    EXPECT_TRUE(loads(0, {}, 0, placed));
    for (const size_t floats : {0, 4, 5, 7, 8}) EXPECT_FALSE(loads(0, some, floats, placed));
    EXPECT_FALSE(loads(0, {}, 3, placed));
    EXPECT_FALSE(loads(2, some, 6, placed)) << "there is no table 2";
    EXPECT_FALSE(loads(0, elsewhere, 6, placed)) << "of another shard";
    EXPECT_TRUE(loads(0, some, 6, placed, 6));
    for (const size_t read : {3, 5, 7, 12}) EXPECT_FALSE(loads(0, some, 6, placed, read));
  }
}

}  // namespace
}  // namespace muster::ps
