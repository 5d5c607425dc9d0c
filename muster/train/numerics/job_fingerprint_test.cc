// What a session's fingerprint depends on, and what it leaves as it was.
#include "muster/train/numerics/job_fingerprint.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/train/jobs_testing.h"

namespace muster::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Sets = std::vector<std::string>;

const char* const kLenet = R"(
model: { zoo: lenet }
data:
  train: { format: idx, images: mnist/train-images-idx3-ubyte.gz, labels: mnist/train-labels-idx1-ubyte.gz, limit: 200 }
  test: { format: idx, images: mnist/t10k-images-idx3-ubyte.gz, labels: mnist/t10k-labels-idx1-ubyte.gz }
batch: 32
lanes: 8
steps: 4
)";

// With BatchNorm.
const char* const kPoints = R"(
model: { layers: [ linear: { out: 16 }, batchnorm, relu, linear: { out: 2 } ] }
data: { train: { format: points } }
batch: 20
lanes: 4
steps: 6
)";

// A Linear that streams its gradient, and dropout.
const char* const kStreams = R"(
model: { layers: [ linear: { out: 70000 }, dropout: { p: 0.1 }, linear: { out: 2 } ] }
data: { train: { format: points } }
batch: 16
lanes: 4
steps: 3
)";

JobFingerprint fingerprint(const std::string& job, const Sets& sets = {}) {
  const auto session = open_session(job, sets);
  const auto begun = session->begin_fingerprint();
  EXPECT_TRUE(begun.ok()) << (begun.ok() ? "" : begun.error().message());
  const auto result = session->fingerprint();
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message());
  return result.ok() ? *result : JobFingerprint{};
}

TEST(SessionFingerprint, DoesNotDependOnThreadsBucketsOrTheLoader) {
  for (const char* job : {kLenet, kPoints, kStreams}) {
    const auto one = fingerprint(job, {"threads=1"});
    EXPECT_EQ(one.model.size(), 32U);
    EXPECT_EQ(one.train_data.size(), 32U);
    for (const Sets& sets :
         {Sets{"threads=1"}, Sets{"threads=3"}, Sets{"threads=8", "sync.bucket=4096"},
          Sets{"data.loader.threads=2"}, Sets{"sync.rounding=stochastic"}, Sets{"workers.max=2"}}) {
      EXPECT_EQ(fingerprint(job, sets), one) << sets[0];
    }
  }
}

TEST(SessionFingerprint, OfTheModelChangesWithWhatItComputes) {
  const auto plain = fingerprint(kLenet);
  for (const Sets& sets : {Sets{"seed=2"}, Sets{"precision=bf16"}, Sets{"batch=64"},
                           Sets{"model.zoo=mlp"}, Sets{"model.freeze=[conv1.*]"}}) {
    const auto other = fingerprint(kLenet, sets);
    EXPECT_NE(other.model, plain.model) << sets[0];
    EXPECT_EQ(other.kernels, plain.kernels) << sets[0];
    EXPECT_EQ(other.train_data, plain.train_data) << sets[0];
  }
}

TEST(SessionFingerprint, NamesTheDataThatDiffer) {
  const auto plain = fingerprint(kLenet);
  const auto more = fingerprint(kLenet, {"data.train.limit=201"});
  EXPECT_THAT(FingerprintDifference(more, plain).text(),
              AllOf(HasSubstr("data.train ("), Not(HasSubstr("data.test"))));
  const auto less = fingerprint(kLenet, {"data.test.limit=300"});
  EXPECT_THAT(FingerprintDifference(less, plain).text(),
              AllOf(HasSubstr("data.test ("), Not(HasSubstr("data.train"))));
  EXPECT_THAT(fingerprint(kPoints).test_data, IsEmpty()) << "it has none";
}

TEST(SessionFingerprint, ChangesNothingOfTheTraining) {
  for (const char* job : {kLenet, kPoints, kStreams}) {
    const auto plain = open_session(job);
    const auto tied = open_session(job);
    const auto state = [](Session& session) {
      const auto bytes = session.arena().bytes();
      return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    };
    const auto before = state(*tied);
    ASSERT_TRUE(tied->begin_fingerprint().ok());
    EXPECT_EQ(state(*tied), before);
    while (plain->arena().counters().step < plain->total_steps()) {
      ASSERT_TRUE(plain->step().ok());
      ASSERT_TRUE(tied->step().ok());
    }
    ASSERT_TRUE(tied->fingerprint().ok());
    EXPECT_EQ(state(*tied), state(*plain));
  }
}

TEST(SessionFingerprint, IsEmptyUnlessItWasBegun) {
  const auto session = open_session(kPoints);
  EXPECT_TRUE(session->fingerprint().value().empty());
  ASSERT_TRUE(session->begin_fingerprint().ok());
  ASSERT_TRUE(session->step().ok());
  ASSERT_TRUE(session->begin_fingerprint().ok()) << "again: nothing";
  EXPECT_EQ(session->fingerprint().value(), fingerprint(kPoints));
}

TEST(SessionFingerprint, WorksOnDataSmallerThanALane) {
  EXPECT_EQ(fingerprint(kPoints, {"data.train.args={ size: 1 }"}).model.size(), 32U);
}

TEST(SessionFingerprint, TestDataThatCannotBeOpenedAreAnErrorForWhoeverAsks) {
  const auto session = open_session(kLenet, {"data.test.images=missing.gz"});
  ASSERT_TRUE(session->begin_fingerprint().ok());
  for (int i = 0; i < 2; ++i) {
    const auto result = session->fingerprint();
    ASSERT_FALSE(result.ok());
    EXPECT_THAT(result.error().message(), AllOf(HasSubstr("data.test"), HasSubstr("missing.gz")));
    EXPECT_FALSE(session->test_data().ok());
  }
}

TEST(SessionFingerprint, ALaneTooSmallForBatchNormIsExplained) {
  const auto session = open_session(kPoints, {"batch=4"});
  const auto begun = session->begin_fingerprint();
  ASSERT_FALSE(begun.ok());
  EXPECT_THAT(begun.error().message(), HasSubstr("give the job a larger batch or fewer lanes"));
}

class CheckResumedTest : public ::testing::Test {
 protected:
  const JobFingerprint saved_ = {"k", "m", "t", "e"};
  nlohmann::json meta_ = {{"job", "points"}, {"fingerprint", to_json(saved_)}};
};

TEST_F(CheckResumedTest, TheFingerprintComesBackFromJson) {
  EXPECT_EQ(fingerprint_from(to_json(saved_)), saved_);
  EXPECT_TRUE(fingerprint_from(nlohmann::json::array()).empty());
  EXPECT_THAT(check_resumed(saved_, meta_, {}).value(), IsEmpty());
}

TEST_F(CheckResumedTest, ADifferenceIsAnErrorUnlessItIsAccepted) {
  const JobFingerprint own = {"k", "m", "t", "changed"};
  const auto refused = check_resumed(own, meta_, {.numerics = true, .data = false});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind(), ErrorKind::kCheckpoint);
  EXPECT_THAT(refused.error().message(),
              HasSubstr("this run differs from its checkpoint in data.test (changed, not e)"));
  const auto accepted = check_resumed(own, meta_, {.numerics = false, .data = true});
  EXPECT_THAT(accepted.value(), HasSubstr("differs from its checkpoint in data.test"));
}

TEST_F(CheckResumedTest, AnOlderCheckpointWithoutAFingerprintIsAcceptedAndNoted) {
  meta_.erase("fingerprint");
  EXPECT_THAT(check_resumed(saved_, meta_, {}).value(), HasSubstr("without a fingerprint"));
}

}  // namespace
}  // namespace muster::train
