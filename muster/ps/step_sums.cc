#include "muster/ps/step_sums.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "muster/base/sort_spread.h"
#include "muster/ps/bytes.h"

namespace muster::ps {
namespace {

constexpr double kUnits = 0x1p44;  // in 1
constexpr double kMost = 512;

int64_t units_of(float value) {
  return std::llrint(std::clamp(double{value}, -kMost, kMost) * kUnits);
}

}  // namespace

void StepSums::add(uint32_t lane, double lr, std::span<const uint64_t> keys,
                   const float* gradients) {
  if (!lanes_.insert(lane).second) return;
  lr_ = lr;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto [place, fresh] = places_.try_emplace(keys[i], static_cast<uint32_t>(keys_.size()));
    if (fresh) {
      keys_.push_back(keys[i]);
      sums_.resize(sums_.size() + width_);
    }
    int64_t* const sum = &sums_[place->second * width_];
    for (size_t j = 0; j < width_; ++j) sum[j] += units_of(gradients[i * width_ + j]);
  }
}

std::vector<uint32_t> StepSums::ascending() const {
  std::vector<uint32_t> order(keys_.size());
  std::iota(order.begin(), order.end(), 0U);
  sort_spread(order, [&](uint32_t place) { return keys_[place]; });
  return order;
}

void StepSums::finish(std::vector<uint64_t>& keys, std::vector<float>& gradients) const {
  keys.clear();
  gradients.clear();
  for (const uint32_t place : ascending()) {
    keys.push_back(keys_[place]);
    for (size_t j = 0; j < width_; ++j) {
      const auto sum = static_cast<double>(sums_[place * width_ + j]);
      gradients.push_back(static_cast<float>(sum / kUnits));
    }
  }
}

void StepSums::save(std::string& to) const {
  append(to, lr_);
  append(to, uint64_t{lanes_.size()});
  for (const uint32_t lane : lanes_) append(to, lane);
  append(to, uint64_t{keys_.size()});
  for (const uint32_t place : ascending()) {
    append(to, keys_[place]);
    for (size_t j = 0; j < width_; ++j) append(to, sums_[place * width_ + j]);
  }
}

Status StepSums::load(std::string_view& from) {
  const auto damaged = [] { return Error(ErrorKind::kIo, "the saved sums of a step are damaged"); };
  *this = StepSums(width_);
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
    if (!places_.try_emplace(key, static_cast<uint32_t>(keys_.size())).second) return damaged();
    keys_.push_back(key);
    for (size_t j = 0; j < width_; ++j) {
      if (!take(from, sums_.emplace_back())) return damaged();
    }
  }
  return {};
}

}  // namespace muster::ps
