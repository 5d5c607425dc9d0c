#include "muster/model/share_work.h"

#include <ATen/Parallel.h>

namespace muster::model {

void share_work(int64_t count, const std::function<void(int64_t, int64_t)>& body) {
  at::parallel_for(0, count, 1, [&](int64_t first, int64_t last) { body(first, last); });
}

}  // namespace muster::model
