#include "muster/base/job_fingerprint.h"

#include <fmt/format.h>

#include "muster/base/text.h"

namespace muster {
namespace {

// Enough to tell two apart by eye.
std::string beginning(const std::string& hash) {
  constexpr size_t kShown = 8;
  return hash.empty() ? "none" : hash.substr(0, kShown);
}

// If only the model's hash differs, it may be that of another model.
constexpr std::string_view kSameModel =
    "check that the code of the model and the job file are the same, and that no initial weight is "
    "drawn without the job's seed; ";
constexpr std::string_view kSameMachine =
    "a machine with the same instruction set, math library and libtorch build (`muster doctor` "
    "shows the kernels' hash as numerics)";

}  // namespace

std::vector<std::pair<std::string_view, std::string*>> JobFingerprint::parts() {
  return {{"kernels", &kernels},
          {"model", &model},
          {"train_data", &train_data},
          {"test_data", &test_data},
          {"model_file", &model_file}};
}

std::vector<std::pair<std::string_view, const std::string*>> JobFingerprint::parts() const {
  return {{"kernels", &kernels},
          {"model", &model},
          {"train_data", &train_data},
          {"test_data", &test_data},
          {"model_file", &model_file}};
}

FingerprintDifference::FingerprintDifference(const JobFingerprint& own, const JobFingerprint& other)
    : own_(own),
      other_(other),
      kernels_(own.kernels != other.kernels),
      model_(own.model != other.model && own.train_data == other.train_data &&
             own.model_file == other.model_file),
      model_file_(own.model_file != other.model_file),
      train_data_(own.train_data != other.train_data),
      test_data_(own.test_data != other.test_data) {}

std::string FingerprintDifference::text_of(bool numerics, bool model_file, bool data) const {
  std::vector<std::string> parts;
  const auto add = [&](bool differs, std::string_view name, const std::string& own,
                       const std::string& other) {
    if (!differs) return;
    parts.push_back(fmt::format("{} ({}, not {})", name, beginning(own), beginning(other)));
  };
  add(numerics && kernels_, "the numerics of kernels", own_.kernels, other_.kernels);
  add(numerics && model_, "the numerics of the model", own_.model, other_.model);
  add(model_file && model_file_, "model.file", own_.model_file, other_.model_file);
  add(data && train_data_, "data.train", own_.train_data, other_.train_data);
  add(data && test_data_, "data.test", own_.test_data, other_.test_data);
  return join_words(parts);
}

std::string FingerprintDifference::numerics_text() const { return text_of(true, false, false); }
std::string FingerprintDifference::model_file_text() const { return text_of(false, true, false); }
std::string FingerprintDifference::data_text() const { return text_of(false, false, true); }
std::string FingerprintDifference::text() const { return text_of(true, true, true); }

std::string why_not_join(const JobFingerprint& own, const JobFingerprint& job, bool tolerant) {
  const FingerprintDifference difference(own, job);
  if (difference.in_model_file()) {
    return fmt::format(
        "differs from the workers of this job in {}: give all workers the same model file",
        difference.model_file_text());
  }
  const bool numerics = difference.in_numerics() && !tolerant;
  if (!numerics && !difference.in_data()) return "";
  std::string advice;
  if (difference.in_data()) advice = "give all workers the same data files";
  if (numerics) {
    advice += fmt::format(
        "{}{}run it on {}, or train the job with `numerics: tolerant` and without the promise of "
        "equal bits",
        advice.empty() ? "" : "; ", own.kernels == job.kernels ? kSameModel : "", kSameMachine);
  }
  return fmt::format("differs from the workers of this job in {}: {}",
                     numerics ? difference.text() : difference.data_text(), advice);
}

std::string other_numerics(const JobFingerprint& own, const JobFingerprint& job) {
  const FingerprintDifference difference(own, job);
  if (!difference.in_numerics()) return "";
  return fmt::format(
      "differs from the workers of this job in {}, and `numerics: tolerant` accepts it: the bits "
      "of "
      "the result depend on which worker computes which lane",
      difference.numerics_text());
}

std::string why_not_resume(const JobFingerprint& own, const JobFingerprint& saved,
                           Accepted accepted) {
  const FingerprintDifference difference(own, saved);
  if (difference.in_model_file()) {
    return fmt::format(
        "this run differs from its checkpoint in {}: restore the model file that it was begun "
        "with, or begin another run with the present one (model.init_from takes the weights of "
        "this one)",
        difference.model_file_text());
  }
  const bool numerics = difference.in_numerics() && !accepted.numerics;
  const bool data = difference.in_data() && !accepted.data;
  if (!numerics && !data) return "";
  std::string advice;
  if (data) {
    advice =
        "restore the data, or continue with the present data: `muster resume "
        "--accept-other-data`";
  }
  if (numerics) {
    advice += fmt::format(
        "{}{}use {}, or continue without the promise of equal bits: `muster resume -s "
        "numerics=tolerant`",
        advice.empty() ? "" : "; ", own.kernels == saved.kernels ? kSameModel : "", kSameMachine);
  }
  const std::string what = numerics && data ? difference.text()
                           : data           ? difference.data_text()
                                            : difference.numerics_text();
  return fmt::format("this run differs from its checkpoint in {}: {}", what, advice);
}

}  // namespace muster
