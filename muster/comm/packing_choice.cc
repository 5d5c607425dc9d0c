#include "muster/comm/packing_choice.h"

namespace muster::comm {

using exact::Packing;

exact::Packing PackingChoice::next(size_t values) {
  if (values < kLeastValues) return Packing::kFast;
  if (is_trial()) return number_ % kEvery == 0 ? Packing::kFast : Packing::kSmall;
  // What it computes is taken from the lanes, which is not seen here: so it has to be clearly less.
  constexpr double kClearly = 0.95;
  return small_ < kClearly * fast_ ? Packing::kSmall : Packing::kFast;
}

void PackingChoice::note(size_t values, double seconds) {
  if (values < kLeastValues) return;
  if (is_trial()) {
    // Half of it is new: links change, and one measurement may have been disturbed.
    double& known = mean(number_ % kEvery == 0 ? Packing::kFast : Packing::kSmall);
    const double each = seconds / static_cast<double>(values);
    known = known == 0 ? each : (known + each) / 2;
  }
  ++number_;
}

}  // namespace muster::comm
