#include "muster/train/step/power_compressor.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "muster/base/hash.h"

namespace muster::train {
namespace {

// Elements of a matrix for a thread at a time.
constexpr size_t kPart = 1 << 16;

bool all_finite(std::span<const float> values) {
  return std::ranges::all_of(values, [](float v) { return std::isfinite(v); });
}

}  // namespace

PowerCompressor::PowerCompressor(const config::Job& job, const StrategyParts& parts)
    : job_(job),
      parts_(parts),
      statistics_begin_(parts.arena->statistics_begin()),
      // No message is longer than the gradient itself.
      messages_(static_cast<size_t>(job.sync.replicas),
                parts.arena->layout().block_elements() * sizeof(float), parts.auditor),
      right_(parts.arena->layout().block_elements()) {
  lay_out();
}

void PowerCompressor::lay_out() {
  const auto& layout = parts_.arena->layout();
  const auto tensors = parts_.arena->tensors();
  for (size_t t = 0; t < parts_.arena->first_statistic(); ++t) {
    if (layout.first_block(t) == layout.first_block(t + 1)) continue;  // frozen, or empty
    const size_t size = tensors[t].size();
    const auto& shape = tensors[t].shape;
    const auto rows = shape.empty() ? size_t{1} : static_cast<size_t>(shape[0]);
    const sync::LowRank low = {.rows = rows,
                               .columns = size / std::max<size_t>(rows, 1),
                               .rank = static_cast<size_t>(job_.sync.rank)};
    if (shape.size() < 2 || !low.pays()) {
      dense_.push_back({.begin = layout.tensor_begin(t), .size = size});
      dense_size_ += size;
      continue;
    }
    matrices_.push_back({.tensor = t,
                         .shape = low,
                         .begin = layout.tensor_begin(t),
                         .left = left_size_,
                         .right = right_size_});
    left_size_ += low.left_size();
    right_size_ += low.right_size();
  }
  const auto cut = [](const Matrix& matrix, size_t size, size_t across, std::vector<Part>& parts) {
    const size_t each = std::max<size_t>(kPart / across, 1);
    for (size_t begin = 0; begin < size; begin += each) {
      parts.push_back({.matrix = &matrix, .begin = begin, .end = std::min(begin + each, size)});
    }
  };
  for (const Matrix& matrix : matrices_) {
    cut(matrix, matrix.shape.rows, matrix.shape.columns, rows_);
    cut(matrix, matrix.shape.columns, matrix.shape.rows, columns_);
  }
  left_.resize(left_size_ + dense_size_ + right_.size() - statistics_begin_);
  next_.resize(right_size_);
}

void PowerCompressor::begin(std::span<const float> state) {
  std::ranges::copy(state, right_.begin());
}

template <class Values>
Result<bool> PowerCompressor::add_up(std::span<Replica> replicas, uint64_t common,
                                     const RoundExchange::Peers& peers, const Values& values,
                                     std::span<float> sum) {
  messages_.clear();
  own_.resize(sum.size());
  for (const int number : peers.replicas) {
    const Replica& replica = replicas[static_cast<size_t>(number)];
    auto& out = messages_.begin(number);
    if (replica.finite) {
      values(replica, std::span(own_));
      const auto bytes = std::as_bytes(std::span(own_));
      out.insert(out.end(), bytes.begin(), bytes.end());
      peers.vitals.note_progress();
    }
    messages_.end(replica.finite);
  }
  MUSTER_TRY(const bool finite, messages_.exchange(common, peers));
  if (!finite) return false;
  std::ranges::fill(sum, 0.0f);
  for (size_t r = 0; r < replicas.size(); ++r) {
    const auto message = messages_.of(r);
    if (message.size() != sum.size_bytes()) return ReplicaMessages::unreadable(r, peers);
    for (size_t i = 0; i < sum.size(); ++i) {
      float value = 0;
      std::memcpy(&value, message.data() + i * sizeof(float), sizeof(float));
      sum[i] += value;
    }
  }
  return all_finite(sum);  // so all workers see the same
}

void PowerCompressor::fill_left(const Replica& replica, std::span<float> out) {
  parts_.team->for_each(rows_.size(), 1, [&](int, size_t i) {
    const Part& part = rows_[i];
    const Matrix& m = *part.matrix;
    m.shape.multiply(std::span(replica.error).subspan(m.begin), right_of(m), part.begin, part.end,
                     out.subspan(m.left));
  });
  auto to = out.begin() + static_cast<ptrdiff_t>(left_size_);
  for (const Dense& dense : dense_) {
    to = std::ranges::copy(std::span(replica.error).subspan(dense.begin, dense.size), to).out;
  }
  std::ranges::copy(replica.statistics, to);
}

void PowerCompressor::fill_right(const Replica& replica, std::span<float> out) {
  parts_.team->for_each(columns_.size(), 1, [&](int, size_t i) {
    const Part& part = columns_[i];
    const Matrix& m = *part.matrix;
    m.shape.multiply_transposed(std::span(replica.error).subspan(m.begin),
                                std::span(left_).subspan(m.left), part.begin, part.end,
                                out.subspan(m.right));
  });
}

Result<bool> PowerCompressor::exchange(int64_t step, std::span<Replica> replicas, uint64_t common,
                                       const RoundExchange::Peers& peers, std::span<float> sum) {
  for (const Matrix& m : matrices_) {
    m.shape.refill(right_of(m), job_.seed, step, m.tensor);
  }
  MUSTER_TRY(
      const bool left_is_finite,
      add_up(
          replicas, common, peers,
          [&](const Replica& r, std::span<float> out) { fill_left(r, out); }, std::span(left_)));
  if (!left_is_finite) return false;
  parts_.team->for_each(matrices_.size(), 1, [&](int, size_t i) {
    const Matrix& m = matrices_[i];
    m.shape.orthogonalise(std::span(left_).subspan(m.left, m.shape.left_size()));
  });
  if (!matrices_.empty()) {
    const uint64_t left = hash64(left_.data(), left_.size() * sizeof(float));
    MUSTER_TRY(
        const bool right_is_finite,
        add_up(
            replicas, left, peers,
            [&](const Replica& r, std::span<float> out) { fill_right(r, out); }, std::span(next_)));
    if (!right_is_finite) return false;
  }
  for (const Matrix& m : matrices_) {
    std::ranges::copy(std::span(next_).subspan(m.right, m.shape.right_size()), right_of(m).begin());
  }
  // What each replica has sent is an equal part of the sum.
  const float share = 1.0f / static_cast<float>(replicas.size());
  parts_.team->for_each(rows_.size(), 1, [&](int, size_t i) {
    const Part& part = rows_[i];
    const Matrix& m = *part.matrix;
    m.shape.expand(std::span(left_).subspan(m.left), right_of(m), part.begin, part.end,
                   sum.subspan(m.begin));
    const size_t first = m.begin + part.begin * m.shape.columns;
    const size_t last = m.begin + part.end * m.shape.columns;
    for (const int number : peers.replicas) {
      auto& error = replicas[static_cast<size_t>(number)].error;
      for (size_t at = first; at < last; ++at) error[at] -= share * sum[at];
    }
  });
  auto from = std::span<const float>(left_).subspan(left_size_);
  for (const Dense& dense : dense_) {
    std::ranges::copy(from.first(dense.size), sum.begin() + static_cast<ptrdiff_t>(dense.begin));
    from = from.subspan(dense.size);
    for (const int number : peers.replicas) {
      auto& error = replicas[static_cast<size_t>(number)].error;
      std::ranges::fill(std::span(error).subspan(dense.begin, dense.size), 0.0f);
    }
  }
  std::ranges::copy(from, sum.begin() + static_cast<ptrdiff_t>(statistics_begin_));
  return true;
}

}  // namespace muster::train
