// Compresses the gradients of matrices to low rank (sync/low_rank.h). Vectors, and matrices that
// are too small for that to pay, are sent as they are.
//
// Two exchanges: left factors, then right factors. A replica's messages are floats: the left factor
// of each matrix, in the order of tensors, the tensors that are sent as they are, the changes of
// statistics; then the right factors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "muster/sync/low_rank.h"
#include "muster/train/step/compressor.h"
#include "muster/train/step/replica_messages.h"

namespace muster::train {

class PowerCompressor final : public Compressor {
 public:
  PowerCompressor(const config::Job& job, const StrategyParts& parts);

  Result<bool> exchange(int64_t step, std::span<Replica> replicas, uint64_t common,
                        const RoundExchange::Peers& peers, std::span<float> sum) override;
  // The right factors: that of a matrix is at the beginning of its place.
  void begin(std::span<const float> state) override;
  std::span<const float> state() const override { return right_; }

 private:
  struct Matrix {
    size_t tensor;
    sync::LowRank shape;
    size_t begin;  // in a buffer
    size_t left;   // where its left factor is in left_
    size_t right;  // where its right factor is in a message
  };
  struct Dense {
    size_t begin;  // in a buffer
    size_t size;
  };
  // Some rows, or columns, of a matrix, for one thread.
  struct Part {
    const Matrix* matrix;
    size_t begin;
    size_t end;
  };

  void lay_out();
  std::span<float> right_of(const Matrix& matrix) {
    return std::span(right_).subspan(matrix.begin, matrix.shape.right_size());
  }
  // Collective: `values` of each replica of this worker, added up over all replicas, in `sum`.
  template <class Values>
  Result<bool> add_up(std::span<Replica> replicas, uint64_t common,
                      const RoundExchange::Peers& peers, const Values& values,
                      std::span<float> sum);
  void fill_left(const Replica& replica, std::span<float> out);
  void fill_right(const Replica& replica, std::span<float> out);

  const config::Job& job_;
  StrategyParts parts_;
  const size_t statistics_begin_;
  std::vector<Matrix> matrices_;
  std::vector<Dense> dense_;
  std::vector<Part> rows_;
  std::vector<Part> columns_;
  size_t left_size_ = 0;  // of all left factors
  size_t dense_size_ = 0;
  size_t right_size_ = 0;
  ReplicaMessages messages_;
  std::vector<float> right_;  // the state
  std::vector<float> left_;   // the sum of left factors, then what is sent as it is
  std::vector<float> next_;   // the sum of right factors
  std::vector<float> own_;    // a replica's message
};

}  // namespace muster::train
