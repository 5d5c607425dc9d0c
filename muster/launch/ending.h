// How a worker ended, and what that says to a person. Plain values and pure functions.
#pragma once

#include <optional>
#include <string>

#include "muster/base/result.h"

namespace muster::launch {

struct Ending {
  int exit_code = 0;
  int signal = 0;  // that ended it; then exit_code means nothing
  bool operator==(const Ending&) const = default;
};

// What the dynamic loader, shells and env leave with when a program cannot even start.
constexpr bool cannot_start(const Ending& ending) {
  return ending.signal == 0 && (ending.exit_code == 126 || ending.exit_code == 127);
}

// The kind of error that an exit code stands for (docs/exit-codes.md), if it does.
std::optional<ErrorKind> kind_of(const Ending& ending);

// "SIGKILL"
std::string signal_name(int number);

// Goes behind a worker's name: "was killed by SIGKILL", "left with exit code 4 (data)", "left".
std::string ending_text(const Ending& ending);

// For a worker that did not leave by itself: the sentence, and the exit code to leave with.
struct ExitMessage {
  ErrorKind kind = ErrorKind::kInternal;
  std::string sentence;
  int exit_code = 0;
};
// Nothing if it exited with a code of its own, which then is ours. `who` begins the sentence,
// `advice` ends it.
std::optional<ExitMessage> exit_message(const Ending& ending, const std::string& who,
                                        const std::string& advice);

}  // namespace muster::launch
