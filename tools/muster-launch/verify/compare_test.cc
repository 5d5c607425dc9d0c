#include "tools/muster-launch/verify/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

RunOutcome outcome() {
  return {{{"weights_hash", "ab"}, {"steps", 2}, {"ledger", "cd"}, {"seconds", 1.5}},
          {{{"step", 1}, {"loss", 2.5}}, {{"step", 2}, {"loss", 2.25}}}};
}

TEST(Differences, OfEqualRunsThereAreNone) {
  auto other = outcome();
  other.result["seconds"] = 3.5;
  EXPECT_THAT(differences(outcome(), other), IsEmpty()) << "how long it took does not count";
}

TEST(Differences, AreNamedWithBothValues) {
  auto other = outcome();
  other.result["weights_hash"] = "ac";
  other.result.erase("ledger");
  EXPECT_THAT(differences(outcome(), other),
              ElementsAre(R"(weights_hash: "ab" undisturbed, "ac" disturbed)",
                          R"(ledger: "cd" undisturbed, null disturbed)"));
}

TEST(Differences, OfTheMetricsTheFirstLineAndTheirNumber) {
  auto other = outcome();
  other.records[0]["loss"] = 2.75;
  other.records[1]["loss"] = 3.75;
  other.records.push_back({{"step", 3}});
  EXPECT_THAT(differences(outcome(), other),
              ElementsAre(R"(metrics, line 1: {"loss":2.5,"step":1} undisturbed, )"
                          R"({"loss":2.75,"step":1} disturbed)",
                          "metrics: 2 lines undisturbed, 3 disturbed"));
}

TEST(ReadOutcome, IsAnErrorForARunThatIsNotThere) {
  const auto files = posix_file_system();
  EXPECT_FALSE(read_outcome("/nonexistent/run", *files).ok());
}

}  // namespace
}  // namespace muster::cli
