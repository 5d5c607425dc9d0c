#include "muster/train/recorder.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "muster/base/check.h"
#include "muster/ps/net/job_setup.h"
#include "muster/train/due.h"
#include "muster/train/numerics/job_fingerprint.h"

namespace muster::train {
namespace {

constexpr const char* kTest = "test";  // marks the line of an evaluation
constexpr int64_t kFewBits = 8;        // fewer than that get a warning

nlohmann::json to_json(const std::vector<std::pair<std::string, double>>& values) {
  auto object = nlohmann::json::object();
  for (const auto& [name, value] : values) object[name] = value;
  return object;
}

}  // namespace

Recorder::Recorder(Session& session, const RecorderParts& parts)
    : session_(session),
      parts_(parts),
      store_(*parts.files, parts.run->checkpoints(),
             static_cast<int>(session.job().checkpoint.keep), session.job().checkpoint.best,
             parts.saving),
      writer_(store_, *parts.log,
              [copy = parts.copy] {
                if (copy != nullptr) copy->changed();
              }),
      last_report_(parts.clock->now()),
      last_save_(parts.clock->now()) {
  if (!parts_.takes_over) return;
  MUSTER_CHECK(parts_.copy != nullptr, "only from a copy can be taken over");
  parts_.copy->set_take_over([this](const std::string& history) { return take_over(history); });
}

Recorder::~Recorder() {
  if (parts_.takes_over) parts_.copy->set_take_over({});
}

void Recorder::set_rollback(const roster::Rollback& rollback) {
  const std::lock_guard lock(metrics_mutex_);
  rollback_ = rollback;
}

Status Recorder::begin(uint64_t roster) {
  roster_ = roster;
  const auto& counters = session_.arena().counters();
  if (!on()) {
    MUSTER_RETURN_IF_ERROR(open(counters.step));
    if (parts_.copy != nullptr) {
      parts_.copy->begin(roster, counters.step);
      // A wrong address is told at once, not after the first hour. Of several workers, the others
      // wait for this one.
      if (roster == 0) {
        MUSTER_RETURN_IF_ERROR(parts_.copy->wait_until_claimed(parts_.keep_waiting));
      }
    }
  }
  if (step_is_untold()) MUSTER_RETURN_IF_ERROR(step({0, parts_.clock->wall()}));
  if (counters.evaluation.step != counters.step || told_test_ >= counters.step) return {};
  return evaluated(session_.last_evaluation());
}

bool Recorder::is_due_now() const {
  return is_due(session_.job().track.every,
                progressed(session_.arena().counters(), session_.train_samples()));
}

bool Recorder::step_is_untold() const {
  const int64_t step = session_.arena().counters().step;
  return step > 0 && told_step_ < step && is_due_now();
}

Status Recorder::open(int64_t step) {
  MUSTER_TRY(const auto snapshots, store_.list());
  const bool here = std::ranges::any_of(snapshots, [&](const auto& s) { return s.step == step; });
  saved_step_ = here ? step : -1;
  last_save_ = parts_.clock->now();
  MUSTER_RETURN_IF_ERROR(roster_ == 0 ? store_.discard_after(step)
                                      : store_.discard_after(step, roster_));
  if (roster_ == 0) MUSTER_RETURN_IF_ERROR(store_.finish_rollback());
  note_progress();
  MUSTER_RETURN_IF_ERROR(open_metrics(step));
  note_progress();
  if (session_.job().track.tensorboard) MUSTER_RETURN_IF_ERROR(open_events(step));
  if (roster_ == 0) {
    MUSTER_RETURN_IF_ERROR(
        parts_.run->write_status(track::RunState::kRunning, "", step, *parts_.clock));
  }
  const auto& job = session_.job();
  track::ProgressOptions options;
  options.mode = parts_.display;
  options.first_step = step;
  if (first_step_ >= 0) {
    options.first_step = first_step_;
    options.began = began_;
  }
  options.total_steps = session_.total_steps();
  options.total_passes = job.passes;
  options.time_limit = std::chrono::nanoseconds(static_cast<int64_t>(job.time * 1e9));
  progress_ = std::make_unique<track::Progress>(*parts_.screen, *parts_.clock, options);
  for (const auto& notice : std::exchange(notices_, {})) progress_->message(notice);
  return {};
}

Status Recorder::open_metrics(int64_t step) {
  const auto file = parts_.run->metrics_file();
  MUSTER_TRY(auto metrics, track::MetricsWriter::open(*parts_.files, file));
  if (roster_ == 0) MUSTER_RETURN_IF_ERROR(metrics.truncate_after(step));
  {
    const std::lock_guard lock(metrics_mutex_);
    metrics_ = std::make_unique<track::MetricsWriter>(std::move(metrics));
    begun_at_ = step;
    kept_.clear();
    for (const auto& line : lines_) kept_ += line;
    std::error_code failed;
    own_begin_ = parts_.takes_over ? std::filesystem::file_size(file, failed) : 0;
    if (failed) own_begin_ = 0;
  }
  // Many more lines than late workers can have appended out of order.
  constexpr size_t kEnd = 256 << 10;
  MUSTER_TRY(const auto there, track::read_metrics(*parts_.files, file, kEnd));
  told_step_ = told_test_ = 0;
  // A worker alone has no rosters, but its records follow those of earlier rollbacks.
  for (const auto& record : there.records) {
    if (roster_ == 0) rollback_.number = std::max(rollback_.number, track::rollback_of(record));
  }
  for (const auto& record : there.records) {
    // One that a rollback made void does not tell.
    if (track::rollback_of(record) < rollback_.number &&
        record["step"].get<int64_t>() > static_cast<int64_t>(rollback_.step)) {
      continue;
    }
    // On a host with a directory of its own, lines of later steps may be of a past that was left.
    if (parts_.takes_over && record["step"].get<int64_t>() > step) continue;
    int64_t& told = record.contains(kTest) ? told_test_ : told_step_;
    told = std::max(told, record["step"].get<int64_t>());
  }
  return {};
}

Status Recorder::take_over(const std::string& history) {
  const std::lock_guard lock(metrics_mutex_);
  if (metrics_ == nullptr) {
    return Error(ErrorKind::kInterrupted, "this worker does not record any more");
  }
  const auto file = parts_.run->metrics_file();
  MUSTER_TRY(const auto text, parts_.files->read(file));
  // What was in the file before is in the history, or of a past that was left.
  std::string more = kept_;
  if (own_begin_ < text.size()) more.append(text, own_begin_);
  const auto whole = track::continue_metrics(history, more, begun_at_, rollback_.number,
                                             static_cast<int64_t>(rollback_.step));
  MUSTER_RETURN_IF_ERROR(write_file_atomically(*parts_.files, file, whole));
  // The file that is open is no longer at this name.
  MUSTER_TRY(auto metrics, track::MetricsWriter::open(*parts_.files, file));
  *metrics_ = std::move(metrics);
  own_begin_ = 0;
  parts_.log->info("the history of the run up to step {} was taken over from {}", begun_at_,
                   parts_.copy->to());
  return {};
}

Status Recorder::open_events(int64_t step) {
  MUSTER_TRY(auto events,
             track::EventFileWriter::create(*parts_.files, parts_.run->path(), *parts_.clock));
  events_ = std::make_unique<track::EventFileWriter>(std::move(events));
  const int64_t keep = step_is_untold() ? step - 1 : step;
  return keep > 0 ? events_->resume_after(keep) : Status();
}

void Recorder::end() {
  if (!on()) return;
  if (auto written = writer_.wait(); !written.ok()) {
    parts_.log->warning("{}", written.error().message());
  }
  if (parts_.copy != nullptr) parts_.copy->end();
  progress_.reset();
  events_.reset();
  const std::lock_guard lock(metrics_mutex_);
  metrics_.reset();
}

void Recorder::warn(const std::string& text) {
  parts_.log->warning("{}", text);
  if (on()) {
    progress_->message(text);
  } else {
    notices_.push_back(text);
  }
}

void Recorder::message(const std::string& text) {
  if (on()) progress_->message(text);
}

void Recorder::note_progress() const {
  if (parts_.saving) parts_.saving();
}

double Recorder::pass() const {
  return static_cast<double>(session_.arena().counters().samples) /
         static_cast<double>(session_.train_samples());
}

void Recorder::report_data() {
  for (const auto& line : session_.fetched()) parts_.log->info("{}", line);
  last_report_ = parts_.clock->now();
}

void Recorder::watch_data() {
  constexpr auto kEvery = std::chrono::minutes(10);
  if (!warned_of_cache_) {
    if (const auto problem = session_.cache_problem(); !problem.empty()) {
      warned_of_cache_ = true;
      warn(problem);
    }
  }
  const auto passes = static_cast<int64_t>(pass());
  if (passes == reported_pass_ && parts_.clock->now() - last_report_ < kEvery) return;
  reported_pass_ = passes;
  report_data();
}

// Each block once. A worker that does not record tells its log alone, so that the terminal is not
// told again if it takes over.
void Recorder::tell_of_damage() {
  for (const auto& what : session_.take_damage()) parts_.log->warning("data.train: {}", what);
  const uint64_t count = session_.arena().counters().replaced.count;
  told_replaced_ = std::min(told_replaced_, count);  // after a rollback it may be less
  if (told_replaced_ == count) return;
  for (const auto& block : session_.replaced_blocks(told_replaced_)) {
    const auto text =
        fmt::format("data.train: {} is damaged; its samples are replaced by others", block);
    if (on()) {
      warn(text);
    } else {
      parts_.log->warning("{}", text);
    }
  }
  told_replaced_ = count;
}

Status Recorder::step(const StepTimes& times) {
  waits_since_.reset();
  watch_data();
  tell_of_damage();
  const auto& counters = session_.arena().counters();
  if (first_step_ < 0) {
    first_step_ = counters.step - counters.last.steps;
    began_ = parts_.clock->now() -
             std::chrono::duration_cast<Duration>(std::chrono::duration<double>(times.seconds));
  }
  if (parts_.takes_over && is_due_now()) keep_line(step_line(times));
  if (!on()) return {};
  const auto report = session_.last_step();
  progress_->step({counters.step, pass(), report.loss, static_cast<int64_t>(report.samples)});
  if (report.redone) parts_.log->debug("step {} was redone with wider scales", counters.step);
  if (report.skipped) warn(fmt::format("step {} was skipped: not finite", counters.step));
  if (report.gradient_bits >= 0) warn_of_few_bits(report.gradient_bits);
  if (parts_.copy != nullptr) {
    if (const auto notice = parts_.copy->take_notice()) progress_->message(*notice);
  }
  if (!is_due_now()) return {};
  // Events first: what the metrics tell, nobody looks after again.
  if (events_ != nullptr) {
    const std::array<track::Scalar, 2> scalars = {{{"train/loss", static_cast<float>(report.loss)},
                                                   {"train/lr", static_cast<float>(report.lr)}}};
    MUSTER_RETURN_IF_ERROR(events_->add(counters.step, scalars));
  }
  if (counters.step <= told_step_) return {};
  told_step_ = counters.step;
  return write_line(step_line(times));
}

nlohmann::json Recorder::step_line(const StepTimes& times) const {
  const auto& counters = session_.arena().counters();
  const auto report = session_.last_step();
  nlohmann::json line = {{"step", counters.step},
                         {"pass", pass()},
                         {"loss", report.loss},
                         {"lr", report.lr},
                         {"seconds", times.seconds},
                         {"samples", counters.samples},
                         {"time", seconds(times.when.time_since_epoch())}};
  // Whoever records: a line that is written twice must have the same fields.
  if (roster_ != 0 || parts_.takes_over) line["waited"] = times.waited;
  if (report.gradient_norm >= 0) line["gradient_norm"] = report.gradient_norm;
  if (report.gradient_bits >= 0) line["gradient_bits"] = report.gradient_bits;
  if (counters.replaced.count > 0) line["replaced"] = counters.replaced.samples;
  return line;
}

// Many more than there are between two checkpoints, as long as the copy is not far behind.
void Recorder::keep_line(const nlohmann::json& line) {
  constexpr size_t kMost = size_t{8} << 20;
  auto marked = line;
  track::set_rollback(marked, rollback_.number);
  lines_.push_back(marked.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  lines_size_ += lines_.back().size();
  while (lines_size_ > kMost) {
    lines_size_ -= lines_.front().size();
    lines_.pop_front();
  }
}

Status Recorder::links(const comm::Links& links) {
  if (!on()) return {};
  message(fmt::format("links between workers: {:.1f} Mbit/s each way, {:.2f} ms delay",
                      8e-6 * links.rate, 1e3 * links.delay));
  return write_line({{"step", session_.arena().counters().step},
                     {"links", {{"rate", links.rate}, {"delay", links.delay}}}});
}

void Recorder::warn_of_few_bits(int64_t bits) {
  if (bits >= kFewBits || std::exchange(warned_of_few_bits_, true)) return;
  warn(fmt::format(
      "step {}: rounding to fixed point left the largest gradient of a block of weights with {} "
      "bits, so smaller ones may be lost. After one step with gradients much larger than usual "
      "this passes; if gradient_bits in the metrics stays below {}, use fewer lanes or "
      "sync.rounding: stochastic",
      session_.arena().counters().step, bits, kFewBits));
}

void Recorder::evaluating() {
  if (on()) progress_->busy("evaluating");
}

void Recorder::waiting(const std::string& what) {
  constexpr auto kShort = std::chrono::milliseconds(300);  // not worth a word
  constexpr auto kShown = std::chrono::milliseconds(200);
  constexpr auto kLogged = std::chrono::seconds(10);
  const Moment now = parts_.clock->now();
  if (!waits_since_) {
    waits_since_ = now;
    next_wait_shown_ = now + kShort;
    next_wait_logged_ = now + kLogged;
  }
  if (now >= next_wait_logged_) {
    // Where nothing is redrawn, one line must do.
    const bool first = next_wait_logged_ == *waits_since_ + kLogged;
    if (on() && first) progress_->message(what);
    next_wait_logged_ = now + kLogged;
    parts_.log->warning("{}", what);
  }
  if (!on() || now < next_wait_shown_) return;
  next_wait_shown_ = now + kShown;
  progress_->busy(what);
}

Status Recorder::evaluated(const EvalReport& report) {
  waits_since_.reset();
  const auto& counters = session_.arena().counters();
  if (parts_.takes_over) keep_line({{"step", counters.step}, {kTest, to_json(report.values)}});
  if (!on()) return {};
  std::vector<track::Metric> shown;
  for (const auto& [name, v] : report.values) shown.push_back({name, v});
  progress_->eval({counters.step, pass(), shown, counters.best.step == counters.step});
  if (events_ != nullptr) {
    std::vector<std::string> tags;
    for (const auto& [name, v] : report.values) tags.push_back("test/" + name);
    std::vector<track::Scalar> scalars;
    for (size_t i = 0; i < tags.size(); ++i) {
      scalars.push_back({tags[i], static_cast<float>(report.values[i].second)});
    }
    MUSTER_RETURN_IF_ERROR(events_->add(counters.step, scalars));
  }
  if (counters.step <= told_test_) return {};
  told_test_ = counters.step;
  return write_line({{"step", counters.step}, {kTest, to_json(report.values)}});
}

Status Recorder::write_line(nlohmann::json line) {
  track::set_rollback(line, rollback_.number);
  const std::lock_guard lock(metrics_mutex_);
  return metrics_->write(line);
}

Status Recorder::save(bool best, double seconds) {
  if (!on()) return {};
  const Arena& arena = session_.arena();
  const auto& counters = arena.counters();
  MUSTER_TRY(const auto fingerprint, session_.fingerprint());
  nlohmann::json meta = {{"job", session_.job().name},
                         {"samples", counters.samples},
                         {"weights_hash", arena.weights_hash().hex()},
                         {"seconds", seconds},
                         {"trusted", session_.auditor().trusted()}};
  if (!fingerprint.empty()) meta["fingerprint"] = to_json(fingerprint);
  if (counters.evaluation.step >= 0) {
    meta["test"] = to_json(session_.last_evaluation().values);
    meta["test_step"] = counters.evaluation.step;
  }
  if (roster_ != 0) store_.keep_for_rollback(session_.auditor().trusted());
  // Metrics first: whoever resumes from this snapshot needs all lines up to its step.
  {
    const std::lock_guard lock(metrics_mutex_);
    MUSTER_RETURN_IF_ERROR(metrics_->sync());
  }
  note_progress();
  MUSTER_TRY(auto* buffer, writer_.begin());
  buffer->reserve(arena.bytes().size());
  for (auto& t : arena.model_views(arena.bytes())) {
    buffer->add_model(std::move(t.name), t.dtype, std::move(t.shape), t.data);
  }
  for (auto& t : arena.state_views(arena.bytes())) {
    buffer->add_state(std::move(t.name), t.dtype, std::move(t.shape), t.data);
  }
  if (session_.rows() != nullptr) {
    MUSTER_TRY(const auto shards, session_.rows()->save(counters.step));
    for (size_t i = 0; i < shards.size(); ++i) {
      buffer->add_state(ps::rows_name(i), ckpt::DType::U8, {static_cast<int64_t>(shards[i].size())},
                        std::as_bytes(std::span(shards[i])));
    }
  }
  saved_step_ = counters.step;
  last_save_ = parts_.clock->now();
  writer_.submit({.step = saved_step_, .roster = roster_, .best = best, .meta = std::move(meta)});
  return {};
}

Status Recorder::flush() { return writer_.wait(); }

Result<bool> Recorder::finish_copy(std::optional<Duration> limit) {
  if (parts_.copy == nullptr) return true;
  constexpr auto kShort = std::chrono::seconds(1);  // not worth a word
  if (!copy_awaited_since_) copy_awaited_since_ = parts_.clock->now();
  return parts_.copy->wait_until_sent(limit, [&](const std::string& problem) {
    note_progress();
    if (told_of_copy_ || parts_.clock->now() - *copy_awaited_since_ < kShort) return;
    told_of_copy_ = true;
    message(fmt::format("sending the last checkpoint to {}{}", parts_.copy->to(),
                        problem.empty() ? "" : ": " + problem));
  });
}

Result<bool> Recorder::send_copy(std::optional<Duration> limit) {
  if (!on() || finished_) return true;
  auto sent = finish_copy(limit);
  if (sent.ok()) return sent;
  return Error(sent.error().kind(),
               "training is complete and saved in {0}, but {1}; `muster resume {0}` sends what is "
               "missing",
               parts_.run->path(), sent.error().message());
}

Status Recorder::finish(const nlohmann::json& result) {
  if (!on() || std::exchange(finished_, true)) return {};
  MUSTER_RETURN_IF_ERROR(parts_.run->write_result(result));
  note_progress();
  MUSTER_RETURN_IF_ERROR(parts_.run->write_status(track::RunState::kFinished, "",
                                                  session_.arena().counters().step, *parts_.clock));
  progress_->finish(result);
  return {};
}

bool Recorder::send_result(Duration limit) {
  if (!on() || !finished_ || parts_.copy == nullptr) return true;
  if (!std::exchange(result_announced_, true)) parts_.copy->changed();
  const auto sent = finish_copy(limit);
  if (sent.ok()) return *sent;
  parts_.log->warning("the result is not in the copy: {}", sent.error().message());
  return true;
}

Status Recorder::interrupt(int signal, const nlohmann::json& result) {
  if (!on() || std::exchange(finished_, true)) return {};
  const int64_t step = session_.arena().counters().step;
  MUSTER_RETURN_IF_ERROR(parts_.run->write_status(
      track::RunState::kInterrupted, fmt::format("signal {}", signal), step, *parts_.clock));
  // A worker alone waits until it is told to stop a second time; several have less than 3 s.
  constexpr auto kOfSeveral = std::chrono::seconds(1);
  const auto limit = roster_ == 0 ? std::nullopt : std::optional<Duration>(kOfSeveral);
  const auto sent = finish_copy(limit);
  if (!sent.ok()) {
    warn(sent.error().message());
  } else if (!*sent) {
    warn(fmt::format("the newest checkpoint is not in '{}' yet", parts_.copy->to()));
  }
  progress_->message(fmt::format(
      "stopped at step {}, {}; {}", step,
      saved() ? "everything is saved"
              : "in the middle of a round or before the weights of a step were read: what was done "
                "since the last checkpoint is lost",
      parts_.resumable ? fmt::format("go on with: muster resume {}", parts_.run->path())
                       : fmt::format("{} cannot be resumed, because its program is in no file "
                                     "that could be started again",
                                     parts_.run->path())));
  progress_->finish(result);
  return {};
}

}  // namespace muster::train
