#include "muster/train/recorder.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "muster/train/due.h"

namespace muster::train {
namespace {

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
             static_cast<int>(session.job().checkpoint.keep), session.job().checkpoint.best),
      writer_(store_, *parts.log),
      last_save_(parts.clock->now()) {}

Recorder::~Recorder() = default;

Status Recorder::begin(uint64_t roster, const DoneStep* last) {
  roster_ = roster;
  if (on()) return {};
  const int64_t step = session_.arena().counters().step;
  MUSTER_TRY(const auto snapshots, store_.list());
  const bool here = std::ranges::any_of(snapshots, [&](const auto& s) { return s.step == step; });
  saved_step_ = here ? step : -1;
  last_save_ = parts_.clock->now();
  MUSTER_RETURN_IF_ERROR(store_.discard_after(step));
  MUSTER_RETURN_IF_ERROR(open_outputs(last != nullptr ? step - 1 : step));
  MUSTER_RETURN_IF_ERROR(
      parts_.run->write_status(track::RunState::kRunning, "", step, *parts_.clock));
  const auto& job = session_.job();
  track::ProgressOptions options;
  options.mode = parts_.display;
  options.first_step = step;
  options.total_steps = session_.total_steps();
  options.total_passes = job.passes;
  options.time_limit = std::chrono::nanoseconds(static_cast<int64_t>(job.time * 1e9));
  progress_ = std::make_unique<track::Progress>(*parts_.screen, *parts_.clock, options);
  for (const auto& notice : std::exchange(notices_, {})) progress_->message(notice);
  if (last == nullptr) return {};
  MUSTER_RETURN_IF_ERROR(this->step(*last));
  if (session_.arena().counters().eval_step != step) return {};
  return evaluated(session_.last_evaluation());
}

void Recorder::end() {
  if (!on()) return;
  if (auto written = writer_.wait(); !written.ok()) {
    parts_.log->warning("{}", written.error().message());
  }
  progress_.reset();
  events_.reset();
  metrics_.reset();
}

Status Recorder::open_outputs(int64_t keep_through) {
  MUSTER_TRY(auto metrics, track::MetricsWriter::open(*parts_.files, parts_.run->metrics_file()));
  metrics_ = std::make_unique<track::MetricsWriter>(std::move(metrics));
  MUSTER_RETURN_IF_ERROR(metrics_->truncate_after(keep_through));
  if (!session_.job().track.tensorboard) return {};
  MUSTER_TRY(auto events,
             track::EventFileWriter::create(*parts_.files, parts_.run->path(), *parts_.clock));
  events_ = std::make_unique<track::EventFileWriter>(std::move(events));
  if (keep_through > 0) MUSTER_RETURN_IF_ERROR(events_->resume_after(keep_through));
  return {};
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

double Recorder::pass() const {
  return static_cast<double>(session_.arena().counters().samples) /
         static_cast<double>(session_.train_samples());
}

Status Recorder::step(const DoneStep& done) {
  if (!on()) return {};
  const auto& report = done.report;
  const auto& counters = session_.arena().counters();
  progress_->step({counters.step, pass(), report.loss, static_cast<int64_t>(report.samples)});
  if (report.redone) parts_.log->debug("step {} was redone with wider scales", counters.step);
  if (report.skipped) warn(fmt::format("step {} was skipped: not finite", counters.step));
  const Progressed at{counters.step, counters.samples, report.samples, session_.train_samples()};
  if (!is_due(session_.job().track.every, at)) return {};
  nlohmann::json line = {{"step", counters.step},
                         {"pass", pass()},
                         {"loss", report.loss},
                         {"lr", report.lr},
                         {"seconds", done.seconds},
                         {"samples", counters.samples},
                         {"time", seconds(done.when.time_since_epoch())}};
  if (report.gradient_norm >= 0) line["gradient_norm"] = report.gradient_norm;
  MUSTER_RETURN_IF_ERROR(metrics_->write(line));
  if (events_ == nullptr) return {};
  const std::array<track::Scalar, 2> scalars = {{{"train/loss", static_cast<float>(report.loss)},
                                                 {"train/lr", static_cast<float>(report.lr)}}};
  return events_->add(counters.step, scalars);
}

void Recorder::evaluating() {
  if (on()) progress_->busy("evaluating");
}

Status Recorder::evaluated(const EvalReport& report) {
  if (!on()) return {};
  const auto& counters = session_.arena().counters();
  std::vector<track::Metric> shown;
  for (const auto& [name, v] : report.values) shown.push_back({name, v});
  progress_->eval({counters.step, pass(), shown, counters.best_step == counters.step});
  MUSTER_RETURN_IF_ERROR(
      metrics_->write({{"step", counters.step}, {"test", to_json(report.values)}}));
  if (events_ == nullptr) return {};
  std::vector<std::string> tags;
  for (const auto& [name, v] : report.values) tags.push_back("test/" + name);
  std::vector<track::Scalar> scalars;
  for (size_t i = 0; i < tags.size(); ++i) {
    scalars.push_back({tags[i], static_cast<float>(report.values[i].second)});
  }
  return events_->add(counters.step, scalars);
}

Status Recorder::save(bool best, double seconds) {
  if (!on()) return {};
  const Arena& arena = session_.arena();
  const auto& counters = arena.counters();
  nlohmann::json meta = {{"job", session_.job().name},
                         {"samples", counters.samples},
                         {"weights_hash", arena.weights_hash().hex()},
                         {"seconds", seconds}};
  if (counters.eval_step >= 0) {
    meta["test"] = to_json(session_.last_evaluation().values);
    meta["test_step"] = counters.eval_step;
  }
  saved_step_ = counters.step;
  last_save_ = parts_.clock->now();
  // Metrics first: whoever resumes from this snapshot needs all lines up to its step.
  MUSTER_RETURN_IF_ERROR(metrics_->sync());
  MUSTER_TRY(auto* buffer, writer_.begin());
  buffer->reserve(arena.bytes().size());
  for (auto& t : arena.model_views(arena.bytes())) {
    buffer->add_model(std::move(t.name), t.dtype, std::move(t.shape), t.data);
  }
  for (auto& t : arena.state_views(arena.bytes())) {
    buffer->add_state(std::move(t.name), t.dtype, std::move(t.shape), t.data);
  }
  writer_.submit({.step = saved_step_, .roster = roster_, .best = best, .meta = std::move(meta)});
  return {};
}

Status Recorder::flush() { return writer_.wait(); }

Status Recorder::finish(const nlohmann::json& result) {
  if (!on() || std::exchange(finished_, true)) return {};
  MUSTER_RETURN_IF_ERROR(parts_.run->write_result(result));
  MUSTER_RETURN_IF_ERROR(parts_.run->write_status(track::RunState::kFinished, "",
                                                  session_.arena().counters().step, *parts_.clock));
  progress_->finish(result);
  return {};
}

Status Recorder::interrupt(int signal, const nlohmann::json& result) {
  if (!on() || std::exchange(finished_, true)) return {};
  const int64_t step = session_.arena().counters().step;
  MUSTER_RETURN_IF_ERROR(parts_.run->write_status(
      track::RunState::kInterrupted, fmt::format("signal {}", signal), step, *parts_.clock));
  progress_->message(
      fmt::format("stopped at step {}, everything is saved; go on with: muster resume {}", step,
                  parts_.run->path()));
  progress_->finish(result);
  return {};
}

}  // namespace muster::train
