// libtorch's own threads, those that share an operation (threads_per_lane), for loops of ours.
#pragma once

#include <cstdint>
#include <functional>

namespace muster::model {

// Calls body(first, last) for consecutive ranges that together are [0, count), on this thread and
// its helpers, one range each; in one piece if at::set_num_threads said 1 here.
//
// A function instead of at::parallel_for, which is a template: in a file that is not compiled for
// OpenMP it runs everything on the calling thread, and says nothing. Built by clang, this does so
// as well, because clang's OpenMP is another runtime than libtorch's.
void share_work(int64_t count, const std::function<void(int64_t first, int64_t last)>& body);

}  // namespace muster::model
