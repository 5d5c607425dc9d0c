#include "muster/track/progress.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "muster/base/text.h"

namespace muster::track {
namespace {

using nlohmann::ordered_json;

// Speeds are averaged over about this long: short enough to follow a change, long enough not to
// dance.
constexpr double kSmoothingSeconds = 5;

constexpr std::string_view kEraseToEndOfLine = "\x1b[K";
constexpr std::string_view kGreen = "\x1b[32m";
constexpr std::string_view kPlain = "\x1b[0m";

std::string number(double value) {
  const double size = std::abs(value);
  if (!std::isfinite(value) || value == 0 || (size >= 1e-3 && size < 1e5)) {
    return fmt::format("{:.4f}", value);
  }
  return fmt::format("{:.3e}", value);
}

std::string json_line(const ordered_json& object) {
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

// As JSON writes it: null while not known.
ordered_json known(double value) { return value < 0 ? ordered_json() : ordered_json(value); }

std::string one_line(std::string_view text) {
  std::string line(text);
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }, ' ');
  return line;
}

}  // namespace

Progress::Progress(Sink& sink, const Clock& clock, const ProgressOptions& options)
    : sink_(sink),
      clock_(clock),
      options_(options),
      terminal_(sink.is_terminal()),
      start_(options.began.value_or(clock.now())),
      next_print_(clock.now()),
      since_(next_print_) {
  last_.step = options.first_step;
}

Progress::~Progress() {
  if (line_drawn_) sink_.write("\n");
}

Duration Progress::interval() const {
  if (options_.mode == ProgressMode::kJson) return options_.json_every;
  return terminal_ ? options_.redraw_every : options_.line_every;
}

void Progress::step(const StepLine& report) {
  if (silent()) return;
  const Moment now = clock_.now();
  if (!doing_.empty()) resume();
  last_ = report;
  if (any_step_) {
    ++steps_since_;
    samples_since_ += report.samples;
  } else {
    // The first step of a process is slow (kernels are chosen, memory is touched): not measured.
    any_step_ = true;
    since_ = now;
  }
  const bool last_step = options_.total_steps > 0 && report.step >= options_.total_steps;
  if (now >= next_print_ || last_step) print_step(now);
}

void Progress::measure(Moment now) {
  const Duration took = time_since_ + (now - since_);
  if (steps_since_ == 0 || took <= Duration(0)) return;
  const double weight =
      samples_per_second_ < 0 ? 1.0 : 1.0 - std::exp(-seconds(took) / kSmoothingSeconds);
  const auto blend = [&](double& average, int64_t count) {
    const double rate = static_cast<double>(count) / seconds(took);
    average = std::max(average, 0.0) * (1 - weight) + rate * weight;
  };
  blend(samples_per_second_, samples_since_);
  blend(steps_per_second_, steps_since_);
  samples_ += samples_since_;
  training_time_ += took;
  since_ = now;
  steps_since_ = 0;
  samples_since_ = 0;
  time_since_ = Duration(0);
}

double Progress::seconds_left() const {
  double left = -1;
  if (options_.total_steps > 0 && steps_per_second_ > 0) {
    left = static_cast<double>(std::max<int64_t>(0, options_.total_steps - last_.step)) /
           steps_per_second_;
  }
  if (options_.time_limit > Duration(0)) {
    const double until_limit =
        std::max(0.0, seconds(options_.time_limit - (clock_.now() - start_)));
    left = left < 0 ? until_limit : std::min(left, until_limit);
  }
  return left;
}

void Progress::print_step(Moment now) {
  measure(now);
  next_print_ = now + interval();
  if (!sink_.keeps_up()) return;  // what is shown later is newer
  if (options_.mode == ProgressMode::kJson) {
    sink_.write(json_line({{"event", "step"},
                           {"step", last_.step},
                           {"pass", last_.pass},
                           {"loss", last_.loss},
                           {"samples_per_second", known(samples_per_second_)},
                           {"seconds_left", known(seconds_left())}}));
  } else if (terminal_) {
    redraw();
  } else {
    sink_.write(progress_line(std::string::npos) + "\n");
  }
}

void Progress::redraw() {
  // Over the old line, in one write, then what is left of it is erased: nothing ever blinks. One
  // column stays free, because some terminals wrap when the last one is filled.
  const auto width = static_cast<size_t>(std::max(1, sink_.width() - 1));
  sink_.write(fmt::format("\r{}{}", progress_line(width), kEraseToEndOfLine));
  line_drawn_ = true;
}

std::string Progress::bar() const {
  constexpr int kCells = 20;
  const double done = static_cast<double>(last_.step) /
                      static_cast<double>(std::max<int64_t>(1, options_.total_steps));
  const int filled = static_cast<int>(std::clamp(done, 0.0, 1.0) * kCells);
  std::string cells(static_cast<size_t>(filled), '=');
  if (filled < kCells) cells += '>';
  cells.resize(kCells, ' ');
  return fmt::format("[{}]", cells);
}

std::string Progress::progress_line(size_t width) const {
  struct Field {
    std::string text;
    int importance;  // the least important goes first when the window is narrow
  };
  std::array<Field, 6> fields;
  const int64_t total = options_.total_steps;
  fields[0] = {total > 0 && width != std::string::npos ? bar() : "", 1};
  fields[1] = {options_.total_passes > 0
                   ? fmt::format("pass {:.2f}/{:g}", last_.pass, options_.total_passes)
                   : fmt::format("pass {:.2f}", last_.pass),
               2};
  fields[2] = {fmt::format("step {}", with_commas(static_cast<uint64_t>(last_.step))), 6};
  if (total > 0) fields[2].text += "/" + with_commas(static_cast<uint64_t>(total));
  if (any_step_) fields[3] = {fmt::format("loss {}", number(last_.loss)), 5};
  if (samples_per_second_ >= 0) {
    const auto rounded = static_cast<uint64_t>(std::llround(samples_per_second_));
    fields[4] = {with_commas(rounded) + " samples/s", 3};
  }
  const double left = seconds_left();
  if (!doing_.empty()) {
    fields[5] = {doing_, 4};
  } else if (left >= 0) {
    fields[5] = {human_seconds(left) + " left", 4};
  }

  for (int drop = 1; drop <= 6; ++drop) {
    std::string line;
    for (const auto& field : fields) {
      if (field.text.empty() || field.importance < drop) continue;
      line += (line.empty() ? "" : "  ") + field.text;
    }
    if (line.size() <= width) return line;
    if (drop == 6) return line.substr(0, width);
  }
  return "";
}

void Progress::busy(std::string_view doing) {
  if (silent()) return;
  const Moment now = clock_.now();
  if (doing_.empty() && any_step_) time_since_ += now - since_;
  doing_ = one_line(doing);
  since_ = now;
  if (on_terminal() && sink_.keeps_up()) redraw();
}

void Progress::resume() {
  if (doing_.empty()) return;
  doing_.clear();
  since_ = clock_.now();
}

void Progress::print_line(std::string_view text) {
  sink_.write(
      fmt::format("{}{}{}\n", line_drawn_ ? "\r" : "", text, line_drawn_ ? kEraseToEndOfLine : ""));
  line_drawn_ = false;
}

void Progress::eval(const EvalLine& report) {
  resume();
  if (silent()) return;
  if (options_.mode == ProgressMode::kJson) {
    ordered_json metrics = ordered_json::object();
    for (const auto& metric : report.metrics) metrics[std::string(metric.name)] = metric.value;
    sink_.write(json_line({{"event", "eval"},
                           {"step", report.step},
                           {"pass", report.pass},
                           {"test", metrics},
                           {"best", report.best}}));
    return;
  }
  std::string line = fmt::format("pass {:.2f}  step {}  test:", report.pass,
                                 with_commas(static_cast<uint64_t>(report.step)));
  for (size_t i = 0; i < report.metrics.size(); ++i) {
    line += fmt::format("{} {} {}", i == 0 ? "" : ",", one_line(report.metrics[i].name),
                        number(report.metrics[i].value));
  }
  if (report.best) {
    const bool colour = sink_.has_colour();
    line += fmt::format("  {}best so far{}", colour ? kGreen : "", colour ? kPlain : "");
  }
  print_line(line);
}

void Progress::message(std::string_view text) {
  if (silent()) return;
  if (options_.mode == ProgressMode::kJson) {
    sink_.write(json_line({{"event", "message"}, {"text", text}}));
  } else {
    print_line(one_line(text));
  }
}

// What a quiet run says: "300 steps, loss 0.2345, accuracy 0.9123, weights ab12 in runs/x".
std::string Progress::result_line(const nlohmann::json& result) {
  if (!result.contains("run_dir") || !result.contains("weights_hash")) return "";
  std::string line = fmt::format("{} steps", with_commas(result.value("steps", uint64_t{0})));
  const auto test = result.value("test", nlohmann::json::object());
  for (const auto& [name, value] : test.items()) {
    if (value.is_number()) line += fmt::format(", {} {}", name, number(value.get<double>()));
  }
  return line + fmt::format(", weights {} in {}", result["weights_hash"].get<std::string>(),
                            result["run_dir"].get<std::string>());
}

void Progress::finish(const nlohmann::json& result) {
  if (finished_) return;
  resume();
  measure(clock_.now());
  if (options_.mode == ProgressMode::kJson) {
    ordered_json line;
    line["event"] = "result";
    for (const auto& [key, value] : result.items()) line[key] = value;
    sink_.write(json_line(line));
  } else if (options_.mode == ProgressMode::kQuiet) {
    if (const auto line = result_line(result); !line.empty()) print_line(line);
  } else if (options_.mode == ProgressMode::kNormal) {
    const int64_t steps = last_.step - options_.first_step;
    const double took = seconds(clock_.now() - start_);
    std::string line = fmt::format("{} steps in {}", with_commas(static_cast<uint64_t>(steps)),
                                   human_seconds(took));
    if (training_time_ > Duration(0)) {
      const double rate = static_cast<double>(samples_) / seconds(training_time_);
      line += fmt::format(", {} samples/s", with_commas(static_cast<uint64_t>(std::llround(rate))));
    }
    print_line(line);
    // What a person needs next: where it is, and whether two runs are the same.
    if (result.contains("run_dir") && result.contains("weights_hash")) {
      print_line(fmt::format("weights {} in {}", result["weights_hash"].get<std::string>(),
                             result["run_dir"].get<std::string>()));
    }
  }
  finished_ = true;
}

}  // namespace muster::track
