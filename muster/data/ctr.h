// Synthetic click data: records of numbers and ids, each with a click or none, from a planted
// model.
//
// Jobs with tables of many rows need data with very many ids, far more than a repository or a small
// disk can hold. Here sample i is computed from the options and i alone, so that 2^40 samples take
// no memory, and because the model behind the clicks is known, so is the best result that any model
// can reach.
//
// The population: each feature has `ids` ids, whose frequency falls with the power `skew` of their
// rank (Zipf), as words, users and pages do. Numbers are bounded, with mean 0 and deviation 1.
// The planted model: each id has a weight; a few features have larger ones. The ids of the first
// features also have vectors, and each pair of them adds a dot product, which a factorization
// machine of width 4 can represent and a linear model cannot. Numbers act linearly. The score and
// some noise together are compared with a threshold: above it, there is a click.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "muster/base/hash.h"
#include "muster/base/result.h"
#include "muster/config/job.h"
#include "muster/data/dataset.h"
#include "muster/data/plan.h"
#include "muster/data/schema.h"

namespace muster::data {

// What `args` of the format ctr says; defaults as there.
struct CtrOptions {
  int64_t samples = 1'000'000;
  int64_t stream = 0;  // which samples of the population: training and test data take two
  int64_t features = 26;
  int64_t ids = 100'000;  // of each feature
  int64_t numbers = 13;
  double skew = 1.05;  // the id of rank r is as frequent as 1 / r^skew
  double rate = 0.25;  // share of samples with a click; met to within about 0.01
  double noise = 1;    // its deviation, as a multiple of the score's
  int64_t seed = 1;    // of the population and its model, whatever the stream
};

// Inputs: first the numbers, then one id of each feature. The ids of feature f are
// [f * ids, (f + 1) * ids), in no order: a table needs no other key than the id. Target: 1 is a
// click.
class CtrDataset final : public Dataset {
 public:
  // Options: `args`, `part` and `limit`. Takes about 20 ms, to find the threshold.
  static Result<std::unique_ptr<CtrDataset>> open(const config::SourceOptions& options);
  ~CtrDataset() override;

  const Schema& schema() const override { return schema_; }
  uint64_t size() const override { return chosen_.count; }
  void read(uint64_t index, std::byte* input, std::byte* target) const override;

  // What the planted model says of sample `index` (below size()), without the noise. The larger,
  // the more likely is a click.
  double planted_score(uint64_t index) const;
  // The area under the ROC curve that the planted scores of samples [first, first + count) reach:
  // the most that a model can be expected to reach on them. Equal scores count half. 0.5 if all
  // samples are of one class. Needs 16 bytes of memory for each sample.
  double best_auc(uint64_t first, uint64_t count) const;

 private:
  struct Population;
  CtrDataset(const CtrOptions& options, Slice chosen);
  void add_contents(Hasher& hasher) const override;

  const CtrOptions options_;
  const Slice chosen_;
  Schema schema_;
  std::unique_ptr<const Population> population_;
};

}  // namespace muster::data
