// What the bits of a run follow from besides its job file: how its machines round, and its data.
//
// Each worker computes its fingerprint when it starts (train/session.h). The join request, every
// checkpoint and result.json contain it, so that a difference is noticed where it would break the
// promise: when a worker joins others, and when a run is resumed.
//
// Plain values and pure functions.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muster {

// Hashes in hexadecimal digits. Empty: there is no such part.
struct JobFingerprint {
  std::string kernels;     // of a fixed set of small computations, as `muster doctor` shows it
  std::string model;       // of forward and backward of the job's model on its first samples
  std::string train_data;  // of the contents of data.train
  std::string test_data;   // of the contents of data.test
  // NOLINTNEXTLINE(readability-redundant-member-init): or who leaves it out is warned by GCC
  std::string model_file = {};  // of the contents of model.file, if the job has one
  bool operator==(const JobFingerprint&) const = default;
  bool empty() const { return *this == JobFingerprint{}; }

  // All parts in this order, with the names that they have in JSON: "kernels", "train_data", ...
  std::vector<std::pair<std::string_view, std::string*>> parts();
  std::vector<std::pair<std::string_view, const std::string*>> parts() const;
};

// How two fingerprints differ.
class FingerprintDifference {
 public:
  // `other`: what `own` is compared with. The model was run on samples of data.train, and with the
  // weights of model.file, so where these differ, a difference of the model says nothing and is
  // left out.
  FingerprintDifference(const JobFingerprint& own, const JobFingerprint& other);

  bool in_numerics() const { return kernels_ || model_; }
  bool in_data() const { return train_data_ || test_data_; }
  bool in_model_file() const { return model_file_; }
  bool any() const { return in_numerics() || in_data() || in_model_file(); }

  // The parts, with the beginning of each hash: "data.train (5e6f7a8b, not 1a2b3c4d) and ...". Only
  // of numerics, only of the model's file, only of data, or all.
  std::string numerics_text() const;
  std::string model_file_text() const;
  std::string data_text() const;
  std::string text() const;

 private:
  std::string text_of(bool numerics, bool model_file, bool data) const;

  JobFingerprint own_;
  JobFingerprint other_;
  bool kernels_;
  bool model_;
  bool model_file_;
  bool train_data_;
  bool test_data_;
};

// Why a worker with the fingerprint `own` cannot join a job with the fingerprint `job`, and what to
// do: the end of a sentence that begins with the worker's name. Empty: it can. `tolerant`: the job
// accepts other numerics; other data, or another model.file, are never accepted.
std::string why_not_join(const JobFingerprint& own, const JobFingerprint& job, bool tolerant);
// What to warn of when a tolerant job accepts it: the end of a sentence, too. Empty: nothing.
std::string other_numerics(const JobFingerprint& own, const JobFingerprint& job);

// What a resumed run may do without.
struct Accepted {
  bool numerics = false;  // numerics: tolerant
  bool data = false;      // --accept-other-data
};

// Why a run whose checkpoint has the fingerprint `saved` cannot continue with `own`, and what to
// do. Empty: it can. Another model.file is never accepted.
std::string why_not_resume(const JobFingerprint& own, const JobFingerprint& saved,
                           Accepted accepted);

}  // namespace muster
