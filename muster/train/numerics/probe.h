// What this machine's worker can do, for `muster doctor`.
#pragma once

#include <nlohmann/json.hpp>

namespace muster::train {

// Versions, kernels, fingerprint, and speeds measured in about a second. `threads`: lane threads to
// measure with; 0: one per usable core.
nlohmann::json probe(int threads);

}  // namespace muster::train
