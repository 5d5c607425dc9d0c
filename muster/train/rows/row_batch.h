// What both kinds of rows have in common.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <utility>

#include "muster/ps/table_data.h"
#include "muster/train/rows/step_rows.h"

namespace muster::train {

inline constexpr uint32_t kRowTable = 0;  // the only one (ps::setup_of)

// RowSource's calls throw: libtorch carries that through backward.
class RowsFailed : public std::runtime_error {
 public:
  explicit RowsFailed(Error error) : std::runtime_error(error.message()), error(std::move(error)) {}
  const Error error;
};
inline void throw_if_error(Status status) {
  if (!status.ok()) throw RowsFailed(std::move(status).error());
}

// Rehearsals and learning rates.
class RowsBase : public StepRows {
 public:
  void set_learning_rate(std::function<double(int64_t)> rate) override { rate_ = std::move(rate); }
  void rehearse(bool on) override { rehearsing_ = on; }
  void set_era(uint64_t era) override { era_ = era; }

  void read(int64_t step, std::span<const uint64_t> keys, float* rows) final {
    if (rehearsing_) {
      const size_t floats = static_cast<size_t>(width());
      for (size_t i = 0; i < keys.size(); ++i) {
        ps::initial_weights(options(), keys[i], {rows + i * floats, floats});
      }
      return;
    }
    throw_if_error(read_rows(step, keys, rows));
  }
  void add(int64_t step, int lane, std::span<const uint64_t> keys, const float* gradients) final {
    if (rehearsing_) return;
    const ps::PushHeader header{.kind = ps::PushKind::kAdd,
                                .lane = static_cast<uint16_t>(lane),
                                .table = kRowTable,
                                .era = era_,
                                .step = step,
                                .lr = rate_ ? rate_(step) : 0};
    throw_if_error(add_rows(header, keys, {gradients, keys.size() * static_cast<size_t>(width())}));
  }
  int64_t width() const final { return options().width; }

 protected:
  uint64_t era() const { return era_; }

 private:
  virtual const ps::TableOptions& options() const = 0;
  virtual Status read_rows(int64_t step, std::span<const uint64_t> keys, float* rows) = 0;
  virtual Status add_rows(const ps::PushHeader& header, std::span<const uint64_t> keys,
                          std::span<const float> gradients) = 0;

  std::function<double(int64_t)> rate_;
  bool rehearsing_ = false;
  uint64_t era_ = 0;
};

}  // namespace muster::train
