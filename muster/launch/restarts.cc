#include "muster/launch/restarts.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "muster/base/text.h"

namespace muster::launch {
namespace {

// Wrong in the same way on every machine and at every try.
bool comes_again(ErrorKind kind, const RestartOptions& options) {
  switch (kind) {
    case ErrorKind::kUsage:
    case ErrorKind::kJob:
    case ErrorKind::kData:
    case ErrorKind::kCheckpoint:
    case ErrorKind::kNumerics:
      return true;
    case ErrorKind::kMachine:
      return options.machine_errors_end_job;
    default:
      return false;
  }
}

Duration pause(int64_t in_a_row, const RestartOptions& options) {
  if (in_a_row == 0) return Duration{0};
  Duration pause = options.first_pause;
  for (int64_t i = 1; i < in_a_row && pause < options.longest_pause; ++i) pause *= 2;
  return std::min(pause, options.longest_pause);
}

}  // namespace

Verdict after_end(Moment now, const SlotHistory& history, const Ending& ending,
                  const RestartOptions& options) {
  const std::string text = ending_text(ending);
  const auto done = [](Then then, std::string reason) {
    return Verdict{then, Duration{0}, 0, 0, std::move(reason)};
  };
  if (ending.signal == 0) {
    // 143: told twice to leave, it did not wait for the step boundary.
    if (ending.exit_code == 0 || ending.exit_code == 128 + SIGTERM) return done(Then::kLeft, text);
    if (ending.exit_code == 128 + SIGINT) return done(Then::kStopped, text);
    const auto kind = kind_of(ending);
    if (kind && options.errors_end_job) return done(Then::kEndJob, text);
    if (cannot_start(ending)) {
      return done(Then::kGiveUp, text + ": it cannot start on that machine");
    }
    if (kind && comes_again(*kind, options)) return done(Then::kEndJob, text);
    // As it is refused now, it would be again; the others continue.
    if (kind == ErrorKind::kRefused) return done(Then::kGiveUp, text);
  }
  const auto recent = std::ranges::count_if(
      history.restarts, [&](Moment then) { return now - then < options.within; });
  if (options.most == 0) return done(Then::kGiveUp, text + "; workers.restarts is 0");
  if (recent >= options.most) {
    return done(Then::kGiveUp, fmt::format("{}; it was started again {} times within {}", text,
                                           recent, human_seconds(seconds(options.within))));
  }
  const int64_t before = now - history.started >= options.settled ? 0 : history.in_a_row;
  const bool machine = ending.signal == 0 && kind_of(ending) == ErrorKind::kMachine;
  const int64_t helpless = now - history.started >= options.within ? 0 : history.of_machine;
  if (machine && helpless >= options.most_of_machine) {
    return done(Then::kGiveUp,
                fmt::format("{}; {} restarts for that did not help", text, helpless));
  }
  const Duration after = pause(before, options);
  return {Then::kAgain, after, before + 1, machine ? helpless + 1 : helpless,
          after == Duration{0}
              ? text + "; it is started again"
              : fmt::format("{}; it is started again in {:.3g} s", text, seconds(after))};
}

void note_restart(Moment now, SlotHistory& history, const Verdict& verdict,
                  const RestartOptions& options) {
  history.in_a_row = verdict.in_a_row;
  history.of_machine = verdict.of_machine;
  history.started = now;
  history.restarts.push_back(now);
  while (now - history.restarts.front() >= options.within) history.restarts.pop_front();
}

}  // namespace muster::launch
