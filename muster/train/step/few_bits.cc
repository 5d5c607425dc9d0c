#include "muster/train/step/few_bits.h"

#include <algorithm>

#include "muster/sync/recipe.h"

namespace muster::train {

FewBits::FewBits(const config::Job& job, const exact::BlockLayout& layout, GradientSum& groups,
                 size_t late, Memory& memory)
    : layout_(layout),
      groups_(groups),
      sum_(layout, static_cast<int>(sync::units_of(job)),
           bucket_bytes(job.sync.bucket, job.sync.bits), late, memory),
      exponents_(layout.blocks().size()),
      scratch_(exact::kBlockSize) {
  sum_.set_rounding({.stochastic = true,
                     .seed = job.seed,
                     .bits = static_cast<int>(job.sync.bits),
                     .rotated = job.sync.rotation == "hadamard"});
}

void FewBits::begin(int64_t step) {
  std::ranges::fill(exponents_, exact::kNothing);
  not_finite_ = -1;
  sum_.begin(GradientSum::Mode::kExact, exponents_, groups_.own_groups(), step);
  if (groups_.own_groups().empty()) sum_.flush();  // zeros
}

Status FewBits::exchange(size_t bucket, comm::Group& group, const comm::OpOptions& options) {
  const auto [first, last] = groups_.blocks_of(bucket);
  for (const int number : groups_.own_groups()) {
    for (size_t b = first; b < last; ++b) {
      const auto values = groups_.read_group(number, b, scratch_);
      exponents_[b] = std::max(exponents_[b], sum_.exponent_of(b, values));
    }
  }
  const auto exponents = std::span(exponents_).subspan(first, last - first);
  MUSTER_RETURN_IF_ERROR(group.allreduce_max(exponents, options));
  for (size_t b = first; b < last; ++b) {
    if (exponents_[b] != exact::kNotFinite) continue;
    if (not_finite_ < 0) not_finite_ = layout_.blocks()[b].tensor;
    exponents_[b] = exact::kNotFinite - 1;  // for the scale; the sum will not be used
  }
  for (const int number : groups_.own_groups()) {
    for (size_t b = first; b < last; ++b) {
      const auto& where = layout_.blocks()[b];
      const auto values = groups_.read_group(number, b, scratch_);
      sum_.add_part(number, where.tensor, where.begin - layout_.tensor_begin(where.tensor), values);
    }
  }
  comm::OpOptions packed = options;
  packed.pack = sum_.is_small(bucket);
  return group.allreduce_sum(sum_.int_bucket(bucket), packed);
}

}  // namespace muster::train
