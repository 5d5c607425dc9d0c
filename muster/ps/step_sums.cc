#include "muster/ps/step_sums.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "muster/base/sort_spread.h"
#include "muster/ps/bytes.h"

namespace muster::ps {
namespace {

constexpr double kUnits = 0x1p44;  // in 1
constexpr double kMost = 512;

// Lanes push the same rows again and again: what is pushed does not become much more than the sums.
constexpr size_t kFewRows = 4096;

struct AddRow {
  MUSTER_ALWAYS_INLINE void operator()(const float* __restrict gradients, size_t width,
                                       int64_t* __restrict sums) const {
    for (size_t i = 0; i < width; ++i) {
      const double value = gradients[i];
      const double within = value > kMost ? kMost : value < -kMost ? -kMost : value;
      sums[i] += static_cast<int64_t>(__builtin_rint(within * kUnits));
    }
  }
};

// All rows in one call, so that the instruction set is chosen once.
struct AddRows {
  MUSTER_ALWAYS_INLINE void operator()(const float* gradients, const uint32_t* rows,
                                       const uint32_t* places, size_t count, size_t width,
                                       int64_t* sums) const {
    for (size_t i = 0; i < count; ++i) {
      AddRow{}(gradients + rows[i] * width, width, sums + places[i] * width);
    }
  }
};

struct ToFloats {
  MUSTER_ALWAYS_INLINE void operator()(const int64_t* __restrict sums, size_t count,
                                       float* __restrict gradients) const {
    for (size_t i = 0; i < count; ++i) {
      gradients[i] = static_cast<float>(static_cast<double>(sums[i]) / kUnits);
    }
  }
};

}  // namespace

void StepSums::add(uint32_t lane, double lr, std::span<const uint64_t> keys,
                   const float* gradients) {
  if (!lanes_.insert(lane).second) return;
  lr_ = lr;
  pushed_keys_.insert(pushed_keys_.end(), keys.begin(), keys.end());
  pushed_.insert(pushed_.end(), gradients, gradients + keys.size() * width_);
  if (pushed_keys_.size() > std::max(kFewRows, 2 * keys_.size())) add_up();
}

void StepSums::add_up() {
  if (pushed_keys_.empty()) return;
  std::vector<uint32_t> rows(pushed_keys_.size());
  std::iota(rows.begin(), rows.end(), 0U);
  sort_spread(rows, [&](uint32_t row) { return pushed_keys_[row]; });

  std::vector<uint64_t> keys;
  std::vector<uint32_t> places(rows.size());   // of pushed rows among the keys
  std::vector<uint32_t> before(keys_.size());  // of the keys until now
  keys.reserve(keys_.size() + rows.size());
  for (size_t i = 0, old = 0; i < rows.size() || old < keys_.size();) {
    const bool pushed =
        old == keys_.size() || (i < rows.size() && pushed_keys_[rows[i]] < keys_[old]);
    const uint64_t key = pushed ? pushed_keys_[rows[i]] : keys_[old];
    const auto place = static_cast<uint32_t>(keys.size());
    keys.push_back(key);
    if (!pushed) before[old++] = place;
    for (; i < rows.size() && pushed_keys_[rows[i]] == key; ++i) places[i] = place;
  }
  std::vector<int64_t> sums(keys.size() * width_);
  for (size_t i = 0; i < keys_.size(); ++i) {
    std::copy_n(&sums_[i * width_], width_, &sums[before[i] * width_]);
  }
  run_for(isa_, AddRows{}, pushed_.data(), rows.data(), places.data(), rows.size(), width_,
          sums.data());
  keys_ = std::move(keys);
  sums_ = std::move(sums);
  pushed_keys_.clear();
  pushed_.clear();
}

void StepSums::finish(std::vector<uint64_t>& keys, std::vector<float>& gradients) {
  add_up();
  keys = keys_;
  gradients.resize(sums_.size());
  run_for(isa_, ToFloats{}, sums_.data(), sums_.size(), gradients.data());
}

void StepSums::save(std::string& to) {
  add_up();
  append(to, lr_);
  append(to, uint64_t{lanes_.size()});
  for (const uint32_t lane : lanes_) append(to, lane);
  append(to, uint64_t{keys_.size()});
  for (size_t i = 0; i < keys_.size(); ++i) {
    append(to, keys_[i]);
    for (size_t j = 0; j < width_; ++j) append(to, sums_[i * width_ + j]);
  }
}

Status StepSums::load(std::string_view& from) {
  const auto damaged = [] { return Error(ErrorKind::kIo, "the saved sums of a step are damaged"); };
  *this = StepSums(width_, isa_);
  uint64_t lanes = 0;
  uint64_t rows = 0;
  if (!take(from, lr_) || !take(from, lanes)) return damaged();
  for (uint64_t i = 0; i < lanes; ++i) {
    uint32_t lane = 0;
    if (!take(from, lane)) return damaged();
    lanes_.insert(lane);
  }
  if (!take(from, rows)) return damaged();
  for (uint64_t i = 0; i < rows; ++i) {
    uint64_t key = 0;
    if (!take(from, key)) return damaged();
    if (!keys_.empty() && key <= keys_.back()) return damaged();
    keys_.push_back(key);
    for (size_t j = 0; j < width_; ++j) {
      if (!take(from, sums_.emplace_back())) return damaged();
    }
  }
  return {};
}

}  // namespace muster::ps
