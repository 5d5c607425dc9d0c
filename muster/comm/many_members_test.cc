// Groups of many members.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/comm/group_testing.h"
#include "muster/comm/peer_watch.h"
#include "muster/comm/process_testing.h"
#include "muster/comm/topology.h"

namespace muster::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
constexpr bool kSanitized = __has_feature(thread_sanitizer) || __has_feature(address_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

int open_files() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<int>(std::distance(begin(all), end(all)));
}

// Of all threads of this process, in the kernel and outside.
int64_t processor_us() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto us = [](const timeval& time) {
    return time.tv_sec * int64_t{1'000'000} + time.tv_usec;
  };
  return us(used.ru_utime) + us(used.ru_stime);
}

// Notes when the exchange of addresses was over: a file for each rank, looked for every
// millisecond, is not what is measured here.
class CountedRendezvous final : public Rendezvous {
 public:
  explicit CountedRendezvous(Rendezvous& inner) : inner_(inner) {}
  Result<std::vector<std::string>> exchange(int rank, int size, const std::string& blob,
                                            Moment deadline, std::stop_token stop) override {
    auto all = inner_.exchange(rank, size, blob, deadline, std::move(stop));
    ended_us_ = processor_us();
    return all;
  }
  int64_t ended_us() const { return ended_us_; }

 private:
  Rendezvous& inner_;
  int64_t ended_us_ = 0;
};

// Processes that all begin at the same moment, once the last one has started.
class ManyMembersTest : public ::testing::TestWithParam<bool> {};

TEST_P(ManyMembersTest, SixtyFourFormAGroupAndAddUp) {
  constexpr int kSize = 64;
  const bool shared_memory = GetParam();
  const MeetingFolder folder;
  Processes p(kSize, [&](int rank, Report& report) {
    report.progress = 1;
    while (report.progress < 2) std::this_thread::sleep_for(milliseconds(1));
    const auto device = *GlooDevice::open("127.0.0.1");
    const int before = open_files();
    FileRendezvous files(folder.path());
    CountedRendezvous rendezvous(files);
    auto group = make_gloo_group({.device = device,
                                  .rendezvous = &rendezvous,
                                  .rank = rank,
                                  .names = test_names(kSize),
                                  .timeout = seconds(30),
                                  .shared_memory = shared_memory});
    if (!group.ok()) return report.finish(group.error().message());
    const int64_t connecting_us = processor_us() - rendezvous.ended_us();
    report.ended_ns = steady_clock::now().time_since_epoch().count();
    report.progress = 3;
    // One for each peer, one for each data connection, two of the watch's, one of the shared
    // memory's; and one is this iterator's.
    const auto data = static_cast<int>(Topology(kSize, {0}).peers(rank).size());
    if (open_files() - before > kSize - 1 + data + 4) return report.finish("too many descriptors");
    for (const size_t count : {size_t{1}, size_t{1000}, size_t{100'000}}) {
      std::vector<int32_t> data(count, rank + 1);
      const Status status = (*group)->allreduce_sum(std::span(data), {.timeout = seconds(60)});
      if (!status.ok()) return report.finish(status.error().message());
      for (const int32_t sum : data) {
        if (sum != kSize * (kSize + 1) / 2) return report.finish("a wrong sum");
      }
    }
    (void)(*group)->barrier();
    const int64_t formed = report.ended_ns;
    report.finish(fmt::format("good {}", connecting_us));
    report.ended_ns = formed;
  });
  for (int r = 0; r < kSize; ++r) ASSERT_TRUE(p.wait_progress(r, 1)) << r;
  const int64_t began = steady_clock::now().time_since_epoch().count();
  for (int r = 0; r < kSize; ++r) p.report(r).progress = 2;
  Duration longest{0};
  int64_t processor = 0;
  for (int r = 0; r < kSize; ++r) {
    ASSERT_TRUE(p.wait_done(r)) << r;
    const std::string_view message = p.report(r).message;
    ASSERT_TRUE(message.starts_with("good ")) << r << message;
    processor += std::stoll(std::string(message.substr(5)));
    longest = std::max(longest, Duration(p.report(r).ended_ns - began));
  }
  RecordProperty("formed_ms", std::to_string(longest / milliseconds(1)));
  RecordProperty("processor_ms", std::to_string(processor / 1000));
  // 0.35 s at best on two cores, but seconds beside other tests. What must be small is the work:
  // the processor time of all members together, 0.4 to 0.7 s whatever else the machine does.
  EXPECT_LT(processor, kSanitized ? 20'000'000 : 2'000'000);
  EXPECT_LT(longest, seconds(20));
}

TEST_P(ManyMembersTest, AKilledMemberOfSixtyFourIsNoticedByAll) {
  constexpr int kSize = 64;
  constexpr int kVictim = 37;
  const bool shared_memory = GetParam();
  const MeetingFolder folder;
  Processes p(kSize, [&](int rank, Report& report) {
    const auto device = *GlooDevice::open("127.0.0.1");
    FileRendezvous rendezvous(folder.path());
    auto group = make_gloo_group({.device = device,
                                  .rendezvous = &rendezvous,
                                  .rank = rank,
                                  .names = test_names(kSize),
                                  .timeout = seconds(30),
                                  .shared_memory = shared_memory});
    if (!group.ok()) return report.finish(group.error().message());
    std::vector<int32_t> data(50'000);
    Status status;
    while (status.ok()) {
      status = (*group)->allreduce_sum(std::span(data), {.timeout = seconds(60)});
      ++report.progress;
    }
    report.finish(**group, status);
  });
  ASSERT_TRUE(p.wait_progress(kVictim, 3));
  p.signal(kVictim, SIGKILL);
  const int64_t killed = steady_clock::now().time_since_epoch().count();
  for (int r = 0; r < kSize; ++r) {
    if (r == kVictim) continue;
    ASSERT_TRUE(p.wait_done(r)) << r;
    EXPECT_EQ(p.report(r).origin, kVictim) << r << p.report(r).message;
    EXPECT_EQ(p.report(r).suspect, kNobody) << r << p.report(r).message;
    EXPECT_LT(Duration(p.report(r).ended_ns - killed), seconds(20)) << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, ManyMembersTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Shared" : "Tcp"; });

// In a group of more than two, each member is dialled by another: so a death before the first
// connection is noticed without a probe.
TEST(DialsTest, EachPairHasOneWhoDialsAndEachMemberIsDialled) {
  for (const int size : {2, 3, 4, 5, 16, 63, 64, 1000}) {
    for (int a = 0; a < size; ++a) {
      int by = 0;
      for (int b = 0; b < size; ++b) {
        if (a == b) continue;
        ASSERT_NE(dials(a, b, size), dials(b, a, size)) << size << " " << a << " " << b;
        by += dials(b, a, size) ? 1 : 0;
      }
      if (size > 2) {
        EXPECT_GE(by, (size - 1) / 2) << size << " " << a;
      }
    }
  }
}

}  // namespace
}  // namespace muster::comm
