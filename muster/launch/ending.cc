#include "muster/launch/ending.h"

#include <signal.h>
#include <string.h>

#include <string_view>

namespace muster::launch {
namespace {

std::string_view meaning(int number) {
  switch (number) {
    case SIGKILL:
      return "somebody ended it, or the kernel did because memory ran out (`dmesg` tells which)";
    case SIGSEGV:
    case SIGBUS:
    case SIGFPE:
    case SIGABRT:
      return "this is a bug in Muster or in a model of your own; please report it with the log";
    case SIGILL:
      return "it was built for another processor; run `muster doctor`";
    case SIGXCPU:
      return "its limit of processor time is used up (`ulimit -t`)";
    case SIGXFSZ:
      return "a file reached the limit of file size (`ulimit -f`)";
    default:
      return "a signal that it does not handle";
  }
}

}  // namespace

std::optional<ErrorKind> kind_of(const Ending& ending) {
  if (ending.signal != 0) return std::nullopt;
  if (cannot_start(ending)) return ErrorKind::kMachine;
  constexpr int kLast = static_cast<int>(ErrorKind::kMachine);
  const bool later = ending.exit_code == static_cast<int>(ErrorKind::kRefused) ||
                     ending.exit_code == static_cast<int>(ErrorKind::kInterrupted);
  if ((ending.exit_code >= 1 && ending.exit_code <= kLast) || later) {
    return static_cast<ErrorKind>(ending.exit_code);
  }
  return std::nullopt;
}

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return fmt::format("SIG{}", name == nullptr ? std::to_string(number) : name);
}

std::string ending_text(const Ending& ending) {
  if (ending.signal != 0) return fmt::format("was killed by {}", signal_name(ending.signal));
  if (ending.exit_code == 0) return "left";
  const auto kind = kind_of(ending);
  return kind ? fmt::format("left with exit code {} ({})", ending.exit_code, error_kind_name(*kind))
              : fmt::format("left with exit code {}", ending.exit_code);
}

std::optional<ExitMessage> exit_message(const Ending& ending, const std::string& who,
                                        const std::string& advice) {
  const std::string tail = advice.empty() ? "" : "; " + advice;
  if (ending.signal == 0) {
    if (!cannot_start(ending)) return std::nullopt;
    return ExitMessage{
        ErrorKind::kMachine,
        fmt::format("{} could not start: its program, or a library that it needs, is "
                    "missing (above is which; `muster doctor` looks further){}",
                    who, tail),
        static_cast<int>(ErrorKind::kMachine)};
  }
  const std::string name = signal_name(ending.signal);
  const bool asked = ending.signal == SIGINT || ending.signal == SIGTERM || ending.signal == SIGHUP;
  const std::string sentence =
      asked ? fmt::format("stopped by {} before {} could save", name, who)
            : fmt::format("{} was killed by {}: {}", who, name, meaning(ending.signal));
  return ExitMessage{asked ? ErrorKind::kInterrupted : ErrorKind::kInternal, sentence + tail,
                     128 + ending.signal};
}

}  // namespace muster::launch
