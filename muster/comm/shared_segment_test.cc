#include "muster/comm/shared_segment.h"

#include <cstring>
#include <thread>

#include <gtest/gtest.h>

namespace muster::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr size_t kBytes = 10'000;

TEST(SharedSegmentTest, WhatOneWritesTheOtherReads) {
  const auto own = SharedSegment::create(kBytes);
  ASSERT_NE(own, nullptr);
  const auto seen = SharedSegment::open(own->address(), kBytes);
  ASSERT_NE(seen, nullptr);
  ASSERT_NE(seen->data(), own->data());
  std::memcpy(own->data() + kBytes - 6, "hello", 6);
  EXPECT_STREQ(reinterpret_cast<const char*>(seen->data() + kBytes - 6), "hello");
}

TEST(SharedSegmentTest, WhatIsNotTheOneMeantIsNotOpened) {
  const auto own = SharedSegment::create(kBytes);
  ASSERT_NE(own, nullptr);
  const std::string address = own->address();
  EXPECT_EQ(SharedSegment::open(address, kBytes + 1), nullptr);    // another size
  EXPECT_EQ(SharedSegment::open("0" + address, kBytes), nullptr);  // another machine
  EXPECT_EQ(SharedSegment::open(address + "1", kBytes), nullptr);  // another token
  const std::string boot = address.substr(0, address.find(' '));
  for (const char* rest :
       {"", " ", " 1 2", " 1 0 5", " 1 999999 5", " x 3 5", " ../../tmp 3 5", " 1 3 5 7"}) {
    EXPECT_EQ(SharedSegment::open(boot + rest, kBytes), nullptr) << rest;
  }
}

TEST(SharedSegmentTest, ARingThatCameBeforeTheWaitIsNotMissed) {
  const auto own = SharedSegment::create(kBytes);
  ASSERT_NE(own, nullptr);
  const uint32_t seen = own->header().bell.value.load();
  own->ring();
  const auto before = steady_clock::now();
  own->wait_bell(seen, before + seconds(30));
  EXPECT_LT(steady_clock::now() - before, seconds(10));
}

TEST(SharedSegmentTest, TheWaitEndsAtTheDeadlineAndByTheBell) {
  const auto own = SharedSegment::create(kBytes);
  ASSERT_NE(own, nullptr);
  const auto other = SharedSegment::open(own->address(), kBytes);
  const uint32_t seen = own->header().bell.value.load();
  auto before = steady_clock::now();
  own->wait_bell(seen, before + milliseconds(20));
  EXPECT_GE(steady_clock::now() - before, milliseconds(20));
  std::thread ringer([&] {
    std::this_thread::sleep_for(milliseconds(20));
    other->ring();
  });
  before = steady_clock::now();
  // May wake for nothing, as futexes do.
  while (own->header().bell.value.load() == seen) own->wait_bell(seen, before + seconds(30));
  EXPECT_LT(steady_clock::now() - before, seconds(10));
  ringer.join();
}

}  // namespace
}  // namespace muster::comm
