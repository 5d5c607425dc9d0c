// When two signals that ask to stop are one.
#pragma once

#include <chrono>

namespace muster {

// Signals within this time count as one: wrappers (timeout, make, a shell's trap) pass on what the
// terminal has already sent to everybody. Only one that comes later means "now".
constexpr std::chrono::milliseconds kOneSignal{500};

}  // namespace muster
