// Into which parts the samples of a data set are cut, for work that several processes share.
//
// Pure: the parts follow from the data and the batch alone, never from who works on them. Batches
// do not cross the borders of parts, so a sample is always in the same batch, and a forward pass
// has the same bits whoever computes it (the kernels of some shapes round differently for batches
// of different sizes).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace muster::parts {

// Samples that a part has at least: enough that claiming it and its file cost nothing, few enough
// that little is lost with a worker; for very large data more, so that there are at most 16,384
// parts. Whole batches. `batch` is at least 1.
uint64_t part_size(uint64_t samples, uint64_t batch);

// Part i is the samples from element i to element i + 1, the last of which is `samples` (at least
// 1). `blocks`: where the blocks of the data begin, in order; then parts begin there too, so that a
// block is read for one part only. Empty: parts may begin anywhere.
std::vector<uint64_t> cut(uint64_t samples, uint64_t batch, std::span<const uint64_t> blocks = {});

}  // namespace muster::parts
