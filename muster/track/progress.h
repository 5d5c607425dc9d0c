// What a person, or a script, sees while a run trains.
//
//   terminal    one line, redrawn in place at most ten times a second, never wider than the window;
//               evaluations scroll above it
//   no terminal plain lines: the first step, then one every ten seconds, and each evaluation
//   json        JSON lines: {"event":"step",...}, {"event":"eval",...}, and the result at the end
//   quiet       the result, in one line
//   none        nothing
//
// step() is called after every step and stays off the critical path: until the next line is due it
// reads the clock and adds up, no more. Output that cannot be written is dropped: a run does not
// fail because nobody watches. While the sink does not keep up, steps are not shown at all;
// evaluations, messages and the result always are. For one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "muster/base/clock.h"
#include "muster/track/sink.h"

namespace muster::track {

enum class ProgressMode { kNormal, kQuiet, kNone, kJson };

struct ProgressOptions {
  ProgressMode mode = ProgressMode::kNormal;
  int64_t first_step = 0;       // where a resumed run goes on
  int64_t total_steps = 0;      // 0: not known
  double total_passes = 0;      // 0: not known
  Duration time_limit{0};       // 0: none
  std::optional<Moment> began;  // when the first step did; default: now
  // The least time between two redraws, plain lines, JSON step events (0: every step).
  Duration redraw_every = std::chrono::milliseconds(100);
  Duration line_every = std::chrono::seconds(10);
  Duration json_every = std::chrono::seconds(1);
};

struct StepLine {
  int64_t step = 0;  // how many are done
  double pass = 0;   // how many are done: 1.25
  double loss = 0;
  int64_t samples = 0;  // in this step
};

struct Metric {
  std::string_view name;
  double value = 0;
};

struct EvalLine {
  int64_t step = 0;
  double pass = 0;
  std::span<const Metric> metrics;
  bool best = false;  // the best so far
};

class Progress {
 public:
  // `sink` and `clock` must outlive it. The time limit counts from `began`.
  Progress(Sink& sink, const Clock& clock, const ProgressOptions& options);
  // Leaves the terminal with the cursor on a line of its own.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(const StepLine& report);
  // Something other than training begins ("evaluating"): shown, and kept out of the speed, until
  // eval() or resume().
  void busy(std::string_view doing);
  void resume();
  void eval(const EvalLine& report);
  // A line for the person, above the progress line. Scripts get {"event":"message",...}.
  void message(std::string_view text);
  // The end. With JSON the last line is `result` with "event": "result" in front; otherwise a line
  // that sums up. Nothing is shown after it.
  void finish(const nlohmann::json& result);

  // Samples per second and seconds left, smoothed; negative while not known.
  double speed() const { return samples_per_second_; }
  double seconds_left() const;

 private:
  bool silent() const {
    return finished_ || options_.mode == ProgressMode::kQuiet ||
           options_.mode == ProgressMode::kNone;
  }
  bool on_terminal() const { return options_.mode == ProgressMode::kNormal && terminal_; }
  Duration interval() const;
  void measure(Moment now);
  void print_step(Moment now);
  void redraw();
  void print_line(std::string_view text);
  std::string progress_line(size_t width) const;
  std::string bar() const;
  static std::string result_line(const nlohmann::json& result);

  Sink& sink_;
  const Clock& clock_;
  const ProgressOptions options_;
  const bool terminal_;
  const Moment start_;

  StepLine last_;
  bool any_step_ = false;
  bool line_drawn_ = false;  // the cursor is at the end of the progress line
  bool finished_ = false;
  std::string doing_;  // empty: training
  Moment next_print_;

  // Since `since_`, not counting what busy() took: steps, samples.
  Moment since_;
  int64_t steps_since_ = 0;
  int64_t samples_since_ = 0;
  Duration time_since_{0};  // before since_, when busy() came in between
  double samples_per_second_ = -1;
  double steps_per_second_ = -1;
  int64_t samples_ = 0;
  Duration training_time_{0};
};

}  // namespace muster::track
