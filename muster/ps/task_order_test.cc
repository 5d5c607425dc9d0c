#include "muster/ps/task_order.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "muster/base/random.h"

namespace muster::ps {
namespace {

using Versions = std::vector<std::vector<int64_t>>;
using Tasks = std::vector<int64_t>;
using Tickets = std::vector<uint64_t>;

constexpr uint64_t kGroup = 7;
constexpr uint64_t kNextGroup = 8;

template <typename Operation>
void push(TaskOrder& order, const Operation& operation) {
  const std::string bytes = order_bytes(operation);
  const auto checked = order.check(bytes);
  ASSERT_TRUE(checked.ok()) << checked.error().message();
  order.apply(bytes);
}

OrderView view(const TaskOrder& order, uint64_t worker = 0) { return order.view(worker, 0, false); }

// By somebody who knows how many openings there were.
void open(TaskOrder& order, OpenRound round) {
  round.openings = view(order).openings;
  push(order, round);
}

// What the worker sees then.
OrderView next(TaskOrder& order, uint64_t group, uint64_t worker, uint64_t done = 0,
               const Versions& versions = {}, const TaskResult& result = {}) {
  push(order, NextTask{group, worker, done, result, versions});
  return view(order, worker);
}

std::string saved(const TaskOrder& order) {
  std::string bytes;
  order.save(bytes);
  return bytes;
}

bool loads(std::string_view bytes) {
  TaskOrder order;
  return order.load(bytes).ok();
}

Tickets tickets_of(const TaskOrder& order) {
  Tickets tickets;
  for (const auto& ordered : view(order).ordered) tickets.push_back(ordered.ticket);
  return tickets;
}

// In the order of their places.
Tasks tasks_of(const TaskOrder& order, int64_t pushes = 1) {
  Tasks tasks;
  const auto records = read_records(order.record(), pushes);
  EXPECT_TRUE(records.ok());
  if (records.ok()) {
    for (const auto& record : *records) tasks.push_back(record.task);
  }
  return tasks;
}

TEST(TaskOrder, TasksAreGivenInTheirOrderOneToAWorker) {
  TaskOrder order;
  EXPECT_EQ(next(order, kGroup, 0).ticket, 0U) << "there is no round";
  open(order, {.token = kGroup, .end = 3});
  EXPECT_EQ(next(order, kGroup, 5).task, 0);
  EXPECT_EQ(next(order, kGroup, 1).task, 1);
  const auto again = next(order, kGroup, 5);
  EXPECT_EQ(again.task, 0);
  EXPECT_EQ(again.ticket, 1U);
  const auto last = next(order, kGroup, 2);
  EXPECT_EQ(last.task, 2);
  EXPECT_EQ(last.ticket, 3U);
  EXPECT_EQ(next(order, kGroup, 3).ticket, 0U) << "all are given";
  EXPECT_EQ(order.places(), 0);
}

TEST(TaskOrder, WhoeverIsDoneFirstHasTheFirstPlace) {
  TaskOrder order;
  open(order, {.token = kGroup, .end = 3});
  next(order, kGroup, 0);
  next(order, kGroup, 1);
  const auto third = next(order, kGroup, 1, 2);
  EXPECT_EQ(third.task, 2);
  EXPECT_EQ(third.finished, 1);
  EXPECT_FALSE(third.over());
  EXPECT_EQ(next(order, kGroup, 0, 1).ticket, 0U);
  EXPECT_TRUE(next(order, kGroup, 1, 3).over());
  EXPECT_EQ(tickets_of(order), (Tickets{2, 1, 3}));
  EXPECT_EQ(tasks_of(order), (Tasks{1, 0, 2}));
  EXPECT_EQ(order.places(), 3);
}

TEST(TaskOrder, ARoundThatIsCutEndsBehindWhatWasGivenOut) {
  TaskOrder order;
  open(order, {.token = kGroup, .end = 24});
  for (uint64_t worker = 0; worker < 5; ++worker) next(order, kGroup, worker);
  push(order, CutRound{.token = kNextGroup, .unit = 4});
  EXPECT_EQ(view(order).end, 24) << "of a group that is no more";
  push(order, CutRound{.token = kGroup, .unit = 4});
  EXPECT_EQ(view(order).end, 8) << "the fifth task is of the second step";
  EXPECT_EQ(order.view(0, 0, true).results.size(), 8U);
  EXPECT_TRUE(loads(saved(order)));
  // The rest of that step is given out, and nothing behind it.
  for (uint64_t worker = 5; worker < 8; ++worker) EXPECT_NE(next(order, kGroup, worker).ticket, 0U);
  EXPECT_EQ(next(order, kGroup, 9).ticket, 0U);
  for (uint64_t worker = 0; worker < 8; ++worker) {
    EXPECT_FALSE(view(order).over());
    EXPECT_EQ(next(order, kGroup, worker, worker + 1).ticket, 0U);
  }
  EXPECT_TRUE(view(order).over());
  EXPECT_EQ(tasks_of(order), (Tasks{0, 1, 2, 3, 4, 5, 6, 7}));
  push(order, CutRound{.token = kGroup, .unit = 4});
  EXPECT_EQ(view(order).end, 8) << "it is over";
  open(order, {.token = kNextGroup, .first = 8, .end = 32});
  EXPECT_EQ(next(order, kNextGroup, 0).task, 8);
}

TEST(TaskOrder, ARoundThatIsCutHasAtLeastOneStepAndNoMoreThanBefore) {
  TaskOrder order;
  open(order, {.token = kGroup, .end = 24});
  push(order, CutRound{.token = kGroup, .unit = 8});
  EXPECT_EQ(view(order).end, 8);
  push(order, CutRound{.token = kGroup, .unit = 12});
  EXPECT_EQ(view(order).end, 8);
}

TEST(TaskOrder, WhoOpensACutRoundAgainGoesOnWithIt) {
  TaskOrder order;
  open(order, {.token = kGroup, .end = 24});
  next(order, kGroup, 0);
  push(order, CutRound{.token = kGroup, .unit = 4});
  open(order, {.token = kNextGroup, .end = 24});  // the others know nothing of it
  EXPECT_EQ(view(order).token, kNextGroup);
  EXPECT_EQ(view(order).end, 4);
  uint64_t done = 0;
  for (int i = 0; i < 4; ++i) done = next(order, kNextGroup, 0, done).ticket;
  next(order, kNextGroup, 0, done);
  EXPECT_TRUE(view(order).over());
  // Somebody who has missed the end finds it over, as it was.
  open(order, {.token = kGroup, .end = 24});
  EXPECT_EQ(view(order).end, 4);
  EXPECT_TRUE(view(order).over());
}

TEST(TaskOrder, ARoundIsCutBetweenUpdates) {
  TaskOrder order;
  open(order, {.token = kGroup, .end = 24, .pushes = 6});
  push(order, CutRound{.token = kGroup, .unit = 4});
  EXPECT_EQ(view(order).end, 24) << "four tasks are no whole update";
  push(order, CutRound{.token = kGroup, .unit = 12});
  EXPECT_EQ(view(order).end, 12);
  EXPECT_FALSE(order.check(order_bytes(CutRound{.token = kGroup, .unit = 0})).ok());
}

TEST(TaskOrder, ATicketOfAnotherWorkerIsNotFinished) {
  TaskOrder order;
  open(order, {.token = kGroup, .end = 4});
  next(order, kGroup, 0);
  next(order, kGroup, 1);
  const auto before = saved(order);
  next(order, kGroup, 1, 1);
  next(order, kGroup, 1, 9);
  EXPECT_EQ(saved(order), before);
}

TEST(TaskOrder, AFinishWithAnOldTokenHasNoEffect) {
  TaskOrder order;
  open(order, {.token = kGroup, .end = 3});
  next(order, kGroup, 0);
  open(order, {.token = kNextGroup, .end = 3});
  next(order, kNextGroup, 0);
  const auto before = saved(order);
  next(order, kGroup, 0, 1);
  next(order, kGroup, 0, 2);
  next(order, kGroup, 1);
  EXPECT_EQ(saved(order), before);
}

TEST(TaskOrder, AVoidTicketHasNoEffect) {
  TaskOrder order;
  open(order, {.token = kGroup, .end = 4});
  next(order, kGroup, 0);
  next(order, kGroup, 1);
  EXPECT_EQ(next(order, kGroup, 0, 1).task, 2);
  open(order, {.token = kNextGroup, .end = 4});
  EXPECT_EQ(view(order, 0).ticket, 0U);
  EXPECT_EQ(view(order, 1).ticket, 0U);
  const auto after = next(order, kNextGroup, 1, 2);
  EXPECT_EQ(after.task, 1);
  EXPECT_EQ(after.ticket, 4U);
  EXPECT_EQ(after.places(), 1);
  EXPECT_EQ(next(order, kNextGroup, 0).task, 2);
  EXPECT_EQ(next(order, kNextGroup, 2).task, 3);
  for (const uint64_t worker : {0, 1, 2}) {
    next(order, kNextGroup, worker, view(order, worker).ticket);
  }
  EXPECT_TRUE(view(order).over());
  EXPECT_EQ(tasks_of(order), (Tasks{0, 2, 1, 3}));
  EXPECT_EQ(tickets_of(order), (Tickets{1, 5, 4, 6}));
}

TEST(TaskOrder, AnOpeningThatMissedAnotherOneHasNoEffect) {
  TaskOrder order;
  const auto empty = saved(order);
  push(order, OpenRound{.openings = 1, .token = kGroup, .end = 2});
  EXPECT_EQ(saved(order), empty);
  push(order, OpenRound{.openings = 0, .token = kGroup, .end = 2});
  EXPECT_EQ(view(order).openings, 1U);
  next(order, kGroup, 0);
  const auto before = saved(order);
  push(order, OpenRound{.openings = 0, .token = kNextGroup, .end = 2});
  push(order, OpenRound{.openings = 2, .token = kNextGroup, .end = 2});
  EXPECT_EQ(saved(order), before);
}

TEST(TaskOrder, TheNextRoundBeginsWhenAllTasksAreFinished) {
  TaskOrder order;
  open(order, {.token = kGroup, .end = 2});
  next(order, kGroup, 0);
  const auto refuse = [&](int64_t first, int64_t end) {
    const auto before = saved(order);
    open(order, {.token = kNextGroup, .first = first, .end = end});
    EXPECT_EQ(saved(order), before) << first << " to " << end;
  };
  refuse(2, 4);
  next(order, kGroup, 0, 1);
  refuse(2, 4);
  next(order, kGroup, 0, 2);
  refuse(3, 5);
  refuse(0, 1);
  refuse(1, 2);
  open(order, {.token = kGroup, .first = 2, .end = 4});
  refuse(0, 2);
  const auto begun = view(order);
  EXPECT_EQ(begun.first, 2);
  EXPECT_EQ(begun.end, 4);
  EXPECT_EQ(begun.finished, 0);
  EXPECT_EQ(begun.from, 2);
  EXPECT_TRUE(begun.ordered.empty());
  const auto task = next(order, kGroup, 0);
  EXPECT_EQ(task.task, 2);
  EXPECT_EQ(task.ticket, 3U);
  EXPECT_EQ(order.places(), 2);
}

TEST(TaskOrder, WithoutStalenessThereIsOneTaskAtATime) {
  TaskOrder order;
  open(order, {.token = kGroup, .end = 3, .staleness = 0});
  EXPECT_EQ(next(order, kGroup, 0).ticket, 1U);
  EXPECT_EQ(next(order, kGroup, 1).ticket, 0U);
  EXPECT_EQ(next(order, kGroup, 0, 1).task, 1);
  EXPECT_EQ(next(order, kGroup, 1).ticket, 0U);
  open(order, {.token = kNextGroup, .end = 3, .staleness = 0});
  EXPECT_EQ(next(order, kNextGroup, 1).task, 1);
  EXPECT_EQ(next(order, kNextGroup, 0).ticket, 0U);
  EXPECT_EQ(next(order, kNextGroup, 1, 3).task, 2);
}

TEST(TaskOrder, NobodyIsFurtherAheadThanTheStaleness) {
  TaskOrder order;
  open(order, {.token = kGroup, .end = 10, .staleness = 2});
  for (const uint64_t worker : {0, 1, 2}) {
    EXPECT_EQ(next(order, kGroup, worker).ticket, worker + 1);
  }
  EXPECT_EQ(next(order, kGroup, 3).ticket, 0U);
  EXPECT_EQ(next(order, kGroup, 1, 2).ticket, 0U) << "task 0 is not done";
  EXPECT_EQ(next(order, kGroup, 0, 1).task, 3) << "task 2 is the oldest";
  EXPECT_EQ(next(order, kGroup, 1).task, 4);
  EXPECT_EQ(next(order, kGroup, 3).ticket, 0U);
  open(order, {.token = kNextGroup, .end = 10, .staleness = 2});
  EXPECT_EQ(next(order, kNextGroup, 3).task, 2);
  EXPECT_EQ(next(order, kNextGroup, 2).task, 3);
  EXPECT_EQ(next(order, kNextGroup, 1).task, 4);
  EXPECT_EQ(next(order, kNextGroup, 0).ticket, 0U);
}

TEST(TaskOrder, ATaskOfAChainWaitsForTheOneBefore) {
  TaskOrder order;
  open(order, {.token = kGroup, .end = 6, .chain = 2});
  EXPECT_EQ(next(order, kGroup, 0).task, 0);
  EXPECT_EQ(next(order, kGroup, 1).task, 1);
  EXPECT_EQ(next(order, kGroup, 2).ticket, 0U) << "tasks 0 and 1 have no place";
  EXPECT_EQ(next(order, kGroup, 1, 2).task, 3) << "task 2 waits for task 0, and holds nobody up";
  EXPECT_EQ(next(order, kGroup, 1, 3).task, 5);
  EXPECT_EQ(next(order, kGroup, 1, 4).ticket, 0U);
  EXPECT_EQ(next(order, kGroup, 0, 1).task, 2);
  EXPECT_EQ(next(order, kGroup, 1).ticket, 0U) << "task 4 waits for task 2";
  EXPECT_EQ(next(order, kGroup, 0, 5).task, 4);
  EXPECT_TRUE(next(order, kGroup, 0, 6).over());
  EXPECT_EQ(tasks_of(order), (Tasks{1, 3, 5, 0, 2, 4}));
  // What was in the round before has a place.
  open(order, {.token = kGroup, .first = 6, .end = 8, .chain = 2});
  EXPECT_EQ(next(order, kGroup, 0).task, 6);
  EXPECT_EQ(next(order, kGroup, 1).task, 7);
}

TEST(TaskOrder, WhoeverIsDoneDoesNotStayWithAChainThatIsBehind) {
  TaskOrder order;
  open(order, {.token = kGroup, .end = 12, .chain = 3});
  EXPECT_EQ(next(order, kGroup, 0).task, 0);
  EXPECT_EQ(next(order, kGroup, 1).task, 1);
  EXPECT_EQ(next(order, kGroup, 1, 2).task, 2);
  EXPECT_EQ(next(order, kGroup, 1, 3).task, 4);
  EXPECT_EQ(next(order, kGroup, 0, 1).task, 5) << "and not task 3";
  EXPECT_EQ(next(order, kGroup, 1, 4).task, 3);
}

TEST(TaskOrder, AVoidTicketOfAChainHoldsUpItsSuccessor) {
  TaskOrder order;
  open(order, {.token = kGroup, .end = 6, .chain = 2});
  next(order, kGroup, 0);
  next(order, kGroup, 1);
  EXPECT_EQ(next(order, kGroup, 1, 2).task, 3);
  open(order, {.token = kNextGroup, .end = 6, .chain = 2});
  EXPECT_EQ(next(order, kNextGroup, 5).task, 0);
  EXPECT_EQ(next(order, kNextGroup, 6).task, 3);
  EXPECT_EQ(next(order, kNextGroup, 7).ticket, 0U);
  EXPECT_EQ(next(order, kNextGroup, 5, 4).task, 2);
}

TEST(TaskOrder, AChainKeepsTheStaleness) {
  TaskOrder order;
  open(order, {.token = kGroup, .end = 8, .staleness = 3, .chain = 2});
  EXPECT_EQ(next(order, kGroup, 0).task, 0);
  EXPECT_EQ(next(order, kGroup, 1).task, 1);
  EXPECT_EQ(next(order, kGroup, 1, 2).task, 3);
  EXPECT_EQ(next(order, kGroup, 1, 3).ticket, 0U) << "task 5 is too far ahead of task 0";
  EXPECT_EQ(next(order, kGroup, 0, 1).task, 5) << "and not the successor";
  EXPECT_EQ(next(order, kGroup, 1).task, 2);
}

// Of pushes one after the other, computed from these.
std::vector<int64_t> staleness_of(int64_t pushes, const std::vector<Versions>& all) {
  TaskOrder order;
  open(order, {.token = kGroup, .end = static_cast<int64_t>(all.size()), .pushes = pushes});
  uint64_t ticket = next(order, kGroup, 0).ticket;
  for (const auto& versions : all) ticket = next(order, kGroup, 0, ticket, versions).ticket;
  const auto records = read_records(order.record(), pushes);
  EXPECT_TRUE(records.ok());
  std::vector<int64_t> staleness;
  for (size_t i = 0; i < all.size(); ++i) {
    staleness.push_back(view(order).ordered.at(i).staleness);
    EXPECT_EQ(records->at(i), (PushRecord{static_cast<int64_t>(i), all[i]}));
  }
  return staleness;
}

TEST(TaskOrder, StalenessIsUpdatesSinceTheOldestRead) {
  const std::vector<Versions> all = {Versions{{0}},         Versions{{0, 0}}, Versions{{2}, {1, 2}},
                                     Versions{{3, 0}, {3}}, Versions{},       Versions(2)};
  EXPECT_EQ(staleness_of(1, all), (std::vector<int64_t>{0, 1, 1, 3, 0, 0}));
}

TEST(TaskOrder, StalenessCountsUpdatesNotPushes) {
  const std::vector<Versions> all = {Versions{{0}}, Versions{{0}}, Versions{{0}},
                                     Versions{{1}}, Versions{{0}}, Versions{{2, 1}}};
  EXPECT_EQ(staleness_of(2, all), (std::vector<int64_t>{0, 0, 1, 0, 2, 1}));
}

TEST(TaskOrder, ResultsAreByTask) {
  const TaskResult first{0.5, 32, 11};
  const TaskResult second{0.25, 16, 12};
  TaskOrder order;
  open(order, {.token = kGroup, .end = 2});
  next(order, kGroup, 0);
  next(order, kGroup, 1);
  next(order, kGroup, 1, 2, {}, second);
  EXPECT_EQ(order.view(0, 0, true).results, (std::vector<TaskResult>{{}, second}));
  open(order, {.token = kNextGroup, .end = 2});
  next(order, kNextGroup, 1);
  next(order, kNextGroup, 1, 3, {}, first);
  EXPECT_EQ(order.view(0, 0, true).results, (std::vector<TaskResult>{first, second}));
  EXPECT_TRUE(order.view(0, 0, false).results.empty());
  open(order, {.token = kNextGroup, .first = 2, .end = 5});
  EXPECT_EQ(order.view(0, 0, true).results, std::vector<TaskResult>(3));
}

TEST(TaskOrder, AViewHasPlacesOfTheRoundAlone) {
  TaskOrder order;
  open(order, {.token = kGroup, .end = 2});
  for (const uint64_t done : {0, 1, 2}) next(order, kGroup, 0, done);
  open(order, {.token = kGroup, .first = 2, .end = 6});
  for (const uint64_t done : {0, 3, 4}) next(order, kGroup, 0, done);
  const auto seen = [&](int64_t from) {
    const auto part = order.view(0, from, false);
    EXPECT_EQ(part.places(), 4);
    return std::pair(part.from, part.ordered.size());
  };
  EXPECT_EQ(seen(-5), std::pair(int64_t{2}, size_t{2}));
  EXPECT_EQ(seen(0), std::pair(int64_t{2}, size_t{2}));
  EXPECT_EQ(seen(3), std::pair(int64_t{3}, size_t{1}));
  EXPECT_EQ(seen(4), std::pair(int64_t{4}, size_t{0}));
  EXPECT_EQ(seen(100), std::pair(int64_t{4}, size_t{0}));
  EXPECT_EQ(order.view(0, 3, false).ordered[0].ticket, 4U);
}

TEST(TaskOrder, NoTicketBeforeTheOldestGetsAPlace) {
  TaskOrder order;
  open(order, {.token = kGroup, .end = 9});
  EXPECT_EQ(view(order).oldest, 1U);
  for (const uint64_t worker : {0, 1, 2}) next(order, kGroup, worker);
  EXPECT_EQ(view(order).oldest, 1U);
  EXPECT_EQ(next(order, kGroup, 1, 2).oldest, 1U);
  EXPECT_EQ(next(order, kGroup, 0, 1).oldest, 3U);
  open(order, {.token = kNextGroup, .end = 9});
  EXPECT_EQ(view(order).oldest, 6U);
  EXPECT_EQ(next(order, kNextGroup, 0).oldest, 6U);
}

// Its second round has tickets that are out, a task to be given again, and one with a place.
TaskOrder order_under_way() {
  TaskOrder order;
  open(order, {.token = kGroup, .end = 2});
  for (const uint64_t done : {0, 1, 2}) next(order, kGroup, 0, done, {{0, 0}, {0}});
  open(order, {.token = kGroup, .first = 2, .end = 8, .staleness = 5});
  for (const uint64_t worker : {0, 1, 2}) next(order, kGroup, worker);
  next(order, kGroup, 0, 3, {{1, 2}}, {0.5, 32, 11});
  open(order, {.token = kNextGroup, .first = 2, .end = 8, .staleness = 5});
  next(order, kNextGroup, 1);
  next(order, kNextGroup, 0);
  return order;
}

TEST(TaskOrder, WhatIsSavedIsLoaded) {
  TaskOrder order = order_under_way();
  const std::string bytes = saved(order) + "rest";
  std::string_view from = bytes;
  TaskOrder copy;
  const auto loaded = copy.load(from);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message();
  EXPECT_EQ(from, "rest");
  EXPECT_EQ(saved(copy), saved(order));
  EXPECT_EQ(encode_view(copy.view(1, 0, true)), encode_view(order.view(1, 0, true)));
  for (TaskOrder* one : {&order, &copy}) {
    next(*one, kNextGroup, 0, view(*one, 0).ticket, {{2}});
    next(*one, kNextGroup, 3);
    open(*one, {.token = kGroup, .first = 2, .end = 8});
    next(*one, kGroup, 1);
  }
  EXPECT_EQ(saved(copy), saved(order));
  EXPECT_TRUE(loads(saved(TaskOrder())));
}

// Where numbers of order_under_way() are in what is saved.
constexpr size_t kFirst = 24;
constexpr size_t kEnd = 32;
constexpr size_t kPushes = 48;
constexpr size_t kChain = 56;
constexpr size_t kNextTask = 64;
constexpr size_t kTakers = 80;
constexpr size_t kTakenTicket = 96;  // of worker 0
constexpr size_t kTakenTask = 104;
constexpr size_t kWaitingCount = 136;
constexpr size_t kWaiting = 144;
constexpr size_t kFinished = 152;
constexpr size_t kResultCount = 160;
constexpr size_t kPlaces = 312;
constexpr size_t kOrderedCount = 320;
constexpr size_t kRecordSize = 344;

int64_t number_at(const std::string& bytes, size_t at) {
  int64_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

bool loads_with(size_t at, int64_t value) {
  std::string bytes = saved(order_under_way());
  std::memcpy(bytes.data() + at, &value, sizeof(value));
  return loads(bytes);
}

TEST(TaskOrder, DamagedBytesAreRefused) {
  const std::string bytes = saved(order_under_way());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(loads(std::string_view(bytes).substr(0, size))) << size;
  }
  ASSERT_EQ(number_at(bytes, kTakenTask), 4);
  ASSERT_EQ(number_at(bytes, kWaiting), 5);
  ASSERT_EQ(number_at(bytes, kFinished), 1);
  ASSERT_EQ(number_at(bytes, kPlaces), 3);
  EXPECT_TRUE(loads_with(kEnd, 8));
  EXPECT_FALSE(loads_with(kFirst, -1));
  EXPECT_FALSE(loads_with(kFirst, 3));
  EXPECT_FALSE(loads_with(kEnd, 1));
  EXPECT_FALSE(loads_with(kEnd, 9));
  EXPECT_FALSE(loads_with(kEnd, INT64_MAX));
  EXPECT_FALSE(loads_with(kPushes, 0));
  EXPECT_FALSE(loads_with(kChain, -1));
  EXPECT_FALSE(loads_with(kChain, INT64_MAX));
  EXPECT_FALSE(loads_with(kNextTask, 1));
  EXPECT_FALSE(loads_with(kNextTask, 9));
  for (const size_t count : {kTakers, kWaitingCount, kResultCount, kOrderedCount, kRecordSize}) {
    EXPECT_FALSE(loads_with(count, number_at(bytes, count) + 1)) << count;
    EXPECT_FALSE(loads_with(count, int64_t{1} << 40)) << count;
    EXPECT_FALSE(loads_with(count, -1)) << count;
  }
  EXPECT_FALSE(loads_with(kTakenTask, 1));
  EXPECT_FALSE(loads_with(kTakenTask, 8));
  EXPECT_FALSE(loads_with(kWaiting, 8));
  EXPECT_FALSE(loads_with(kPlaces, -1));
  EXPECT_FALSE(loads_with(kPlaces, 0));

  TaskOrder order = order_under_way();
  std::string_view half = std::string_view(bytes).substr(0, bytes.size() / 2);
  EXPECT_FALSE(order.load(half).ok());
  EXPECT_EQ(saved(order), bytes) << "it is as it was";
}

// A task that is there twice, or a round that is over while tickets are out.
TEST(TaskOrder, WhatCannotBeIsRefused) {
  EXPECT_FALSE(loads_with(kFinished, -1));
  EXPECT_FALSE(loads_with(kFinished, 2));
  EXPECT_FALSE(loads_with(kFinished, 6));
  EXPECT_FALSE(loads_with(kTakenTask, 3)) << "worker 1 has it";
  EXPECT_FALSE(loads_with(kTakenTask, 5)) << "it is to be given again";
  EXPECT_FALSE(loads_with(kTakenTask, 7)) << "it was never given";
  EXPECT_FALSE(loads_with(kWaiting, 7)) << "it was never given";
  EXPECT_FALSE(loads_with(kTakenTicket, 9)) << "there was no such ticket";
  EXPECT_FALSE(loads_with(kPlaces, INT64_MAX));
}

TEST(TaskOrder, MalformedOperationsAreRefused) {
  const TaskOrder order;
  const std::string round = order_bytes(OpenRound{.token = kGroup, .end = 2});
  const std::string task = order_bytes(NextTask{kGroup, 1, 2, {0.5, 32, 11}, {{1, 1, 2}, {300}}});
  for (std::string bytes : {round, task}) {
    EXPECT_TRUE(order.check(bytes).ok());
    EXPECT_FALSE(order.check(bytes + '\0').ok());
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(order.check(std::string_view(bytes).substr(0, size)).ok()) << size;
    }
    bytes[0] = static_cast<char>(3 - bytes[0]);
    EXPECT_FALSE(order.check(bytes).ok()) << "of the other kind";
    for (const int kind : {0, 3, 255}) {
      bytes[0] = static_cast<char>(kind);
      EXPECT_FALSE(order.check(bytes).ok()) << kind;
    }
  }
}

TEST(TaskOrder, ARoundThatCannotBeIsRefused) {
  const auto is_round = [](const OpenRound& round) {
    return TaskOrder().check(order_bytes(round)).ok();
  };
  EXPECT_TRUE(is_round({.token = kGroup, .first = 2, .end = 2}));
  EXPECT_TRUE(is_round({.token = kGroup, .first = 2, .end = 2 + (1 << 20)}));
  EXPECT_FALSE(is_round({.token = kGroup, .first = 2, .end = 3 + (1 << 20)}));
  EXPECT_FALSE(is_round({.token = 0, .end = 2}));
  EXPECT_FALSE(is_round({.token = kGroup, .first = -1, .end = 2}));
  EXPECT_FALSE(is_round({.token = kGroup, .first = 2, .end = 1}));
  EXPECT_FALSE(is_round({.token = kGroup, .first = INT64_MIN, .end = INT64_MAX}));
  EXPECT_FALSE(is_round({.token = kGroup, .end = 2, .staleness = -2}));
  EXPECT_FALSE(is_round({.token = kGroup, .end = 2, .pushes = 0}));
  EXPECT_TRUE(is_round({.token = kGroup, .end = 2, .chain = 1 << 20}));
  EXPECT_FALSE(is_round({.token = kGroup, .end = 2, .chain = 1 + (1 << 20)}));
  EXPECT_FALSE(is_round({.token = kGroup, .end = 2, .chain = -1}));
}

TEST(TaskOrder, AViewIsReadAsItWasWritten) {
  const auto bytes = encode_view(order_under_way().view(1, 0, true));
  const auto back = decode_view(bytes);
  ASSERT_TRUE(back.ok()) << back.error().message();
  EXPECT_EQ(encode_view(*back), bytes);
  EXPECT_EQ(back->task, 3);
  EXPECT_EQ(back->ticket, 7U);
  EXPECT_EQ(back->from, 2);
  EXPECT_EQ(back->ordered, (std::vector<Ordered>{{3, 1}}));
  EXPECT_EQ(back->results.size(), 6U);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_view(std::string_view(bytes).substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(decode_view(bytes + "x").ok());
}

// Workers that join late, forget what they had, or go on with tickets that are void.
class TaskOrderChains : public ::testing::TestWithParam<int64_t> {};

TEST_P(TaskOrderChains, EveryTaskGetsOnePlaceWhateverWorkersDo) {
  const int64_t chain = GetParam();
  constexpr int64_t kTasks = 40;
  constexpr int64_t kPushesOfAnUpdate = 2;
  struct Worker {
    uint64_t token = 0;
    uint64_t ticket = 0;
  };
  std::array<Worker, 4> workers;
  RandomStream random(11, Purpose::kUser);
  TaskOrder order;
  uint64_t token = 0;
  int voided = 0;
  for (int64_t end = kTasks; end <= 25 * kTasks; end += kTasks) {
    const int64_t staleness = static_cast<int64_t>(random.below(6)) - 1;
    const auto open_again = [&] {
      open(order, {.token = ++token,
                   .first = end - kTasks,
                   .end = end,
                   .staleness = staleness,
                   .pushes = kPushesOfAnUpdate,
                   .chain = chain});
    };
    open_again();
    for (int i = 0; !view(order).over(); ++i) {
      ASSERT_LT(i, 100'000);
      const uint64_t number = random.below(workers.size());
      Worker& worker = workers[number];
      const uint64_t what = random.below(40);
      if (what == 0) {
        open_again();
      } else if (what < 3) {
        worker = {token, 0};
      } else if (what == 3) {
        worker.token = token;
      } else if (what == 4) {
        TaskOrder copy;
        const std::string bytes = saved(order);
        std::string_view from = bytes;
        ASSERT_TRUE(copy.load(from).ok());
        order = copy;
      } else {
        const int64_t before = order.places();
        const auto seen = next(order, worker.token, number, worker.ticket);
        if (worker.ticket != 0 && order.places() == before) ++voided;
        if (seen.token == worker.token) worker.ticket = seen.ticket;
      }
    }
    Tasks tasks = tasks_of(order, kPushesOfAnUpdate);
    std::set<int64_t> there;
    for (const int64_t task : tasks) {
      const bool begins = task < end - kTasks || chain == 0 || task - chain < end - kTasks;
      EXPECT_TRUE(begins || there.contains(task - chain)) << task << " " << chain;
      there.insert(task);
    }
    std::ranges::sort(tasks);
    Tasks expected(static_cast<size_t>(end));
    std::iota(expected.begin(), expected.end(), 0);
    ASSERT_EQ(tasks, expected);
    const auto tickets = tickets_of(order);
    EXPECT_EQ(std::set(tickets.begin(), tickets.end()).size(), static_cast<size_t>(kTasks));
  }
  EXPECT_EQ(order.places(), 25 * kTasks);
  EXPECT_GT(voided, 100);
}

INSTANTIATE_TEST_SUITE_P(Chains, TaskOrderChains, ::testing::Values(0, 1, 3, 4));

}  // namespace
}  // namespace muster::ps
