// What rows in lockstep and asynchronous ones have in common: rehearsals and learning rates.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "muster/ps/table_data.h"
#include "muster/train/rows/step_rows.h"
#include "muster/train/rows/tables.h"

namespace muster::train {

inline constexpr uint32_t kRowTable = 0;  // ps::setup_of

// RowSource's calls throw: libtorch carries that through backward.
class RowsFailed : public std::runtime_error {
 public:
  explicit RowsFailed(Error error) : std::runtime_error(error.message()), error(std::move(error)) {}
  const Error error;
};
inline void throw_if_error(Status status) {
  if (!status.ok()) throw RowsFailed(std::move(status).error());
}

class RowsBase : public StepRows {
 public:
  explicit RowsBase(std::unique_ptr<Tables> tables) : tables_(std::move(tables)) {}

  void set_learning_rate(std::function<double(int64_t)> rate) override { rate_ = std::move(rate); }
  void rehearse(bool on) override { rehearsing_ = on; }
  void set_era(uint64_t era) override { era_ = era; }

  void read(int64_t step, int lane, std::span<const uint64_t> keys, float* rows) final {
    if (rehearsing_) {
      const size_t floats = static_cast<size_t>(width());
      for (size_t i = 0; i < keys.size(); ++i) {
        ps::initial_weights(options(), keys[i], {rows + i * floats, floats});
      }
      return;
    }
    throw_if_error(read_rows(step, lane, keys, rows));
  }
  void add(int64_t step, int lane, std::span<const uint64_t> keys, const float* gradients) final {
    if (rehearsing_) return;
    auto header = header_of(step, lane);
    header.table = kRowTable;
    header.era = era_;
    header.lr = rate_ ? rate_(step) : 0;
    throw_if_error(tables_->push(
        header, keys, with_reads(keys, {gradients, keys.size() * static_cast<size_t>(width())})));
  }
  int64_t width() const final { return options().width; }

  Status wait() override { return tables_->wait(); }
  void set_progress(const std::function<void()>& progress) final {
    tables_->set_progress(progress);
  }
  Result<Hash128> hash(int64_t step) override { return tables_->hash(era_, clock_of(step)); }
  Result<std::vector<std::string>> save(int64_t step) override {
    auto saved = tables_->save(era_, clock_of(step));
    if (!saved.ok() && saved.error().kind() == ErrorKind::kInternal) note_overtaken();
    return saved;
  }
  bool take_overtaken() final { return overtaken_.exchange(false); }

 protected:
  Tables& tables() { return *tables_; }
  const Tables& tables() const { return *tables_; }
  uint64_t era() const { return era_; }
  bool is_rehearsing() const { return rehearsing_; }
  const ps::TableOptions& options() const { return tables_->setup().tables[kRowTable]; }
  void note_overtaken() { overtaken_ = true; }

 private:
  // Of a shard (TableData::clock) after so many steps.
  virtual int64_t clock_of(int64_t step) const = 0;
  virtual Status read_rows(int64_t step, int lane, std::span<const uint64_t> keys, float* rows) = 0;
  // How gradients of this lane are pushed: kind, step and lane.
  virtual ps::PushHeader header_of(int64_t step, int lane) const = 0;
  // What is pushed for these rows, as that kind has it.
  virtual std::span<const float> with_reads(std::span<const uint64_t> /*keys*/,
                                            std::span<const float> gradients) {
    return gradients;
  }

  std::unique_ptr<Tables> tables_;
  std::function<double(int64_t)> rate_;
  bool rehearsing_ = false;
  std::atomic<bool> overtaken_{false};  // lanes have threads of their own
  uint64_t era_ = 0;
};

}  // namespace muster::train
