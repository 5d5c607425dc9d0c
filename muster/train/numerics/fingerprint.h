// Which bits this machine's kernels give.
//
// The promise of equal bits holds among machines whose kernels round alike: the same instruction
// set, the same math library. Rather than compare version strings, run the kernels: a fixed set of
// small computations on fixed numbers, and a hash of their results. Equal hashes mean that lanes
// may move between two machines.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "muster/base/hash.h"
#include "muster/base/result.h"

namespace muster::train {

struct Fingerprint {
  // One hash per kernel, so that a difference can be named: "matmul", "conv2d", ...
  std::vector<std::pair<std::string, Hash128>> kernels;
  // All of them in one.
  Hash128 combined() const;
};

// Runs the kernels, with one thread, in a few milliseconds.
Fingerprint take_fingerprint();

// Sets what must be set before the first computation of the process: one thread inside an
// operation, the math library's reproducible code path, and a memory allocator that keeps what it
// has. Call it first thing in main(); what the user has already chosen in the environment stays.
void prepare_process();

// From now on operations that the calling thread runs use so many threads, itself and its helpers.
// With more than one, libtorch's deterministic algorithms are on in the whole process: otherwise
// its helpers add to a tensor in whatever order they come (index_put_ with accumulate, which is the
// gradient of table[index]), and no two runs have the same bits.
void use_threads_in_operations(int threads);

// The system's Gloo, not the private copy inside libtorch (base/symbol_origin.h says why). Returns
// its path.
Result<std::string> check_gloo();

// "AVX512", and so on: what libtorch chose for this processor.
std::string kernel_capability();

}  // namespace muster::train
