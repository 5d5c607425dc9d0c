#include "muster/base/job_fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const JobFingerprint kJob = {"11111111aa", "22222222aa", "33333333aa", "44444444aa"};

JobFingerprint with(std::string JobFingerprint::* part, const std::string& value) {
  JobFingerprint print = kJob;
  print.*part = value;
  return print;
}

TEST(JobFingerprint, EqualOnesDoNotDiffer) {
  EXPECT_FALSE(FingerprintDifference(kJob, kJob).any());
  EXPECT_THAT(why_not_join(kJob, kJob, false), IsEmpty());
  EXPECT_THAT(why_not_resume(kJob, kJob, {}), IsEmpty());
}

TEST(JobFingerprint, EachPartThatDiffersIsNamedAloneWithBothHashes) {
  const std::vector<std::pair<std::string JobFingerprint::*, std::string>> parts = {
      {&JobFingerprint::kernels, "the numerics of kernels (99999999, not 11111111)"},
      {&JobFingerprint::model, "the numerics of the model (99999999, not 22222222)"},
      {&JobFingerprint::train_data, "data.train (99999999, not 33333333)"},
      {&JobFingerprint::test_data, "data.test (99999999, not 44444444)"}};
  for (const auto& [part, text] : parts) {
    const auto other = with(part, "99999999bb");
    EXPECT_EQ(FingerprintDifference(other, kJob).text(), text);
    EXPECT_THAT(why_not_join(other, kJob, false), HasSubstr(" in " + text + ": "));
    EXPECT_THAT(why_not_resume(other, kJob, {}), HasSubstr(" in " + text + ": "));
  }
}

// Its weights are the initial ones, and its hash those of its gradients.
TEST(JobFingerprint, AnotherModelFileIsNeverAccepted) {
  auto other = with(&JobFingerprint::model_file, "99999999bb");
  other.model = "9";
  other.kernels = "9";
  EXPECT_THAT(why_not_join(other, kJob, true),
              HasSubstr("in model.file (99999999, not none): give all workers the same model"));
  EXPECT_THAT(why_not_resume(other, kJob, {.numerics = true, .data = true}),
              HasSubstr("differs from its checkpoint in model.file (99999999, not none): restore"));
  EXPECT_THAT(FingerprintDifference(other, kJob).text(), Not(HasSubstr("of the model")));
  EXPECT_THAT(why_not_resume(other, other, {}), IsEmpty());
}

TEST(JobFingerprint, AMissingTestSetIsADifferenceToo) {
  EXPECT_EQ(FingerprintDifference(with(&JobFingerprint::test_data, ""), kJob).text(),
            "data.test (none, not 44444444)");
}

TEST(JobFingerprint, OnOtherDataTheModelGivesOtherGradientsAndThatIsNotItsFault) {
  auto other = with(&JobFingerprint::train_data, "9");
  other.model = "9";
  EXPECT_EQ(FingerprintDifference(other, kJob).text(), "data.train (9, not 33333333)");
  EXPECT_FALSE(FingerprintDifference(other, kJob).in_numerics());
}

TEST(JobFingerprint, IfOnlyTheModelDiffersItMayBeAnotherModel) {
  const auto other = with(&JobFingerprint::model, "9");
  EXPECT_THAT(why_not_join(other, kJob, false), HasSubstr("the code of the model"));
  EXPECT_THAT(why_not_join(other, kJob, false), HasSubstr("drawn without the job's seed"));
  EXPECT_THAT(why_not_resume(other, kJob, {}), HasSubstr("the code of the model"));
  auto machine = other;
  machine.kernels = "9";
  EXPECT_THAT(why_not_join(machine, kJob, false), Not(HasSubstr("the code of the model")));
}

TEST(JobFingerprint, ATolerantJobAcceptsOtherNumericsAndNoOtherData) {
  auto other = with(&JobFingerprint::kernels, "9");
  other.model = "9";
  EXPECT_THAT(why_not_join(other, kJob, true), IsEmpty());
  EXPECT_THAT(why_not_join(other, kJob, false), HasSubstr("`numerics: tolerant`"));
  EXPECT_THAT(other_numerics(other, kJob), HasSubstr("kernels (9, not 11111111)"));
  EXPECT_THAT(other_numerics(kJob, kJob), IsEmpty());
  other.test_data = "9";
  EXPECT_THAT(why_not_join(other, kJob, true),
              AllOf(HasSubstr("in data.test (9, not 44444444): give all workers the same data"),
                    Not(HasSubstr("numerics"))));
}

TEST(JobFingerprint, EachWayOutOfARefusedResumeIsForItsOwnDifference) {
  auto other = with(&JobFingerprint::kernels, "9");
  other.train_data = "9";
  EXPECT_THAT(why_not_resume(other, kJob, {}),
              AllOf(HasSubstr("kernels (9"), HasSubstr("data.train (9"),
                    HasSubstr("--accept-other-data"), HasSubstr("numerics=tolerant")));
  EXPECT_THAT(why_not_resume(other, kJob, {.numerics = false, .data = true}),
              AllOf(HasSubstr("kernels (9"), Not(HasSubstr("data.train")),
                    Not(HasSubstr("--accept-other-data"))));
  EXPECT_THAT(why_not_resume(other, kJob, {.numerics = true, .data = false}),
              AllOf(HasSubstr("data.train (9"), Not(HasSubstr("kernels (9"))));
  EXPECT_THAT(why_not_resume(other, kJob, {.numerics = true, .data = true}), IsEmpty());
}

}  // namespace
}  // namespace muster
