// What it measures is compared with links of a known rate and delay by tests/lab/lab_test.py.
#include "muster/comm/measure_links.h"

#include <vector>

#include <gtest/gtest.h>

#include "muster/base/thread.h"
#include "muster/comm/local_group.h"

namespace muster::comm {
namespace {

TEST(MeasureLinks, AllMembersGetTheSameFigures) {
  const auto hub = LocalHub::create({"a", "b", "c"});
  std::vector<Links> seen(3);
  {
    std::vector<Thread> members;
    for (size_t m = 0; m < seen.size(); ++m) {
      members.emplace_back("member", [&, m] {
        auto group = hub->join(static_cast<int>(m));
        ASSERT_TRUE(group.ok());
        const auto links = measure_links(**group);
        ASSERT_TRUE(links.ok()) << links.error().message();
        seen[m] = *links;
      });
    }
  }
  EXPECT_GT(seen[0].rate, 1e6);
  EXPECT_GT(seen[0].delay, 0);
  EXPECT_LT(seen[0].delay, 1);
  for (const Links& links : seen) {
    EXPECT_EQ(links.rate, seen[0].rate);
    EXPECT_EQ(links.delay, seen[0].delay);
  }
}

}  // namespace
}  // namespace muster::comm
