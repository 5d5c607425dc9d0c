#include "muster/train/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "muster/train/due.h"
#include "muster/train/weights_file.h"

namespace muster::train {
namespace {

nlohmann::json to_json(const std::vector<std::pair<std::string, double>>& values) {
  auto object = nlohmann::json::object();
  for (const auto& [name, value] : values) object[name] = value;
  return object;
}

}  // namespace

Trainer::Trainer(Session& session, track::RunDirectory& run, TrainerEnvironment environment)
    : session_(session),
      run_(run),
      env_(std::move(environment)),
      store_(*env_.files, run.checkpoints(), static_cast<int>(session.job().checkpoint.keep),
             session.job().checkpoint.best),
      writer_(store_, *env_.log) {
  const auto& job = session_.job();
  const auto& metrics = session_.plan().loss.metrics;
  best_by_ = !job.best_by.empty() ? job.best_by : metrics.empty() ? "loss" : metrics[0].name;
  for (const auto& metric : metrics) {
    if (metric.name == best_by_) higher_is_better_ = metric.higher_is_better;
  }
}

Trainer::~Trainer() = default;

Status Trainer::start() {
  const auto& from = session_.job().model.init_from;
  if (!from.empty()) {
    MUSTER_TRY(const auto file, open_weights(*env_.files, from, session_.job().runs));
    const size_t loaded = session_.arena().load_matching(file);
    const size_t all = session_.arena().tensors().size();
    if (loaded == 0) {
      return Error(
          ErrorKind::kCheckpoint,
          "model.init_from: nothing in '{}' has the name and shape of anything in this model",
          from);
    }
    env_.log->info("initial weights: {} of {} tensors from {}", loaded, all, from);
    if (loaded < all) {
      warn(fmt::format("model.init_from: {} of {} tensors are not in '{}' and start afresh",
                       all - loaded, all, from));
    }
  }
  return open_outputs();
}

Status Trainer::resume() {
  std::vector<std::string> notes;
  MUSTER_TRY(auto snapshot, store_.load_newest(&notes));
  for (const auto& note : notes) warn(note);
  if (!snapshot) {
    env_.log->info("no checkpoint yet: starting from the beginning");
    return start();
  }
  MUSTER_RETURN_IF_ERROR(load(*snapshot));
  MUSTER_RETURN_IF_ERROR(store_.discard_after(snapshot->step));
  env_.log->info("resuming after step {}", snapshot->step);
  return open_outputs();
}

Status Trainer::load(const ckpt::Snapshot& snapshot) {
  Arena& arena = session_.arena();
  MUSTER_RETURN_IF_ERROR(arena.load_model(snapshot.model));
  MUSTER_RETURN_IF_ERROR(arena.load_state(snapshot.state));
  if (arena.counters().step != snapshot.step) {
    return Error(ErrorKind::kCheckpoint, "'{}' says step {} but its state is of step {}",
                 snapshot.path, snapshot.step, arena.counters().step);
  }
  seconds_before_ = snapshot.meta.value("seconds", 0.0);
  saved_step_ = snapshot.step;
  if (snapshot.meta.contains("test")) {
    const auto& stored = snapshot.meta["test"];
    const auto restore = [&](const std::string& name) {
      // Not finite is stored as null.
      const bool number = stored.contains(name) && stored[name].is_number();
      last_eval_.values.emplace_back(name, number ? stored[name].get<double>() : std::nan(""));
    };
    restore("loss");
    for (const auto& metric : session_.plan().loss.metrics) restore(metric.name);
    last_eval_step_ = snapshot.meta.value("test_step", int64_t{-1});
  }
  return {};
}

Status Trainer::open_outputs() {
  const int64_t step = session_.arena().counters().step;
  MUSTER_TRY(auto metrics, track::MetricsWriter::open(*env_.files, run_.metrics_file()));
  metrics_ = std::make_unique<track::MetricsWriter>(std::move(metrics));
  MUSTER_RETURN_IF_ERROR(metrics_->truncate_after(step));
  if (session_.job().track.tensorboard) {
    MUSTER_TRY(auto events, track::EventFileWriter::create(*env_.files, run_.path(), *env_.clock));
    events_ = std::make_unique<track::EventFileWriter>(std::move(events));
    if (step > 0) MUSTER_RETURN_IF_ERROR(events_->resume_after(step));
  }
  return {};
}

void Trainer::warn(const std::string& message) {
  env_.log->warning("{}", message);
  if (progress_ != nullptr) {
    progress_->message(message);
  } else {
    notices_.push_back(message);
  }
}

bool Trainer::is_better(double value) const {
  const auto& counters = session_.arena().counters();
  if (!std::isfinite(value)) return false;
  if (counters.best_step < 0) return true;
  const double gain = higher_is_better_ ? value - counters.best : counters.best - value;
  return gain > session_.job().early_stop.least;
}

bool Trainer::finished() const {
  const auto& job = session_.job();
  const auto& counters = session_.arena().counters();
  if (session_.total_steps() > 0 && counters.step >= session_.total_steps()) return true;
  return job.early_stop.patience > 0 && counters.stale_evals >= job.early_stop.patience;
}

Result<TrainSummary> Trainer::train(track::Progress& progress) {
  progress_ = &progress;
  for (const auto& notice : notices_) progress.message(notice);
  TrainSummary summary;
  const auto& job = session_.job();
  const auto& counters = session_.arena().counters();
  started_ = last_save_ = last_eval_time_ = env_.clock->now();
  const auto elapsed = [&] { return seconds(env_.clock->now() - started_); };

  while (!finished()) {
    summary.signal = env_.stop_signal();
    if (summary.signal != 0) {
      summary.reason = EndReason::kSignal;
      break;
    }
    if (job.time > 0 && seconds_before_ + elapsed() >= job.time) {
      summary.reason = EndReason::kTime;
      break;
    }
    MUSTER_RETURN_IF_ERROR(step());
  }
  if (summary.reason == EndReason::kDone && counters.step < session_.total_steps()) {
    summary.reason = EndReason::kEarlyStop;
  }
  // Whoever is told to leave wants to be gone: evaluate only at a real end.
  if (summary.reason != EndReason::kSignal && session_.has_test() &&
      last_eval_step_ != counters.step) {
    MUSTER_RETURN_IF_ERROR(evaluate());
  }
  if (saved_step_ != counters.step) MUSTER_RETURN_IF_ERROR(save(false));
  MUSTER_RETURN_IF_ERROR(writer_.wait());
  summary.weights_hash = session_.arena().weights_hash().hex();
  summary.counters = counters;
  summary.seconds = elapsed();
  summary.test = last_eval_.values;
  return summary;
}

Status Trainer::step() {
  const auto& job = session_.job();
  const auto& counters = session_.arena().counters();
  const Moment before = env_.clock->now();
  MUSTER_TRY(const auto report, session_.step());
  const Moment now = env_.clock->now();
  MUSTER_RETURN_IF_ERROR(record_step(report, seconds(now - before)));

  Progressed at{counters.step, counters.samples, report.samples, session_.train_samples()};
  at.seconds_since = seconds(now - last_eval_time_);
  bool best = false;
  if (session_.has_test() && is_due(job.eval.every, at)) {
    const int64_t best_before = counters.best_step;
    MUSTER_RETURN_IF_ERROR(evaluate());
    best = counters.best_step != best_before;
    last_eval_time_ = env_.clock->now();
  }
  at.seconds_since = seconds(env_.clock->now() - last_save_);
  if (is_due(job.checkpoint.every, at) || (best && job.checkpoint.best)) {
    MUSTER_RETURN_IF_ERROR(save(best));
  }
  return {};
}

Status Trainer::record_step(const StepReport& report, double seconds) {
  const auto& counters = session_.arena().counters();
  progress_->step({counters.step, pass(), report.loss, static_cast<int64_t>(report.samples)});
  if (report.redone) env_.log->debug("step {} was redone with wider scales", counters.step);
  if (report.skipped) warn(fmt::format("step {} was skipped: not finite", counters.step));
  const Progressed at{counters.step, counters.samples, report.samples, session_.train_samples()};
  if (!is_due(session_.job().track.every, at)) return {};
  nlohmann::json line = {{"step", counters.step}, {"pass", pass()},
                         {"loss", report.loss},   {"lr", report.lr},
                         {"seconds", seconds},    {"samples", counters.samples}};
  if (report.gradient_norm >= 0) line["gradient_norm"] = report.gradient_norm;
  MUSTER_RETURN_IF_ERROR(metrics_->write(line));
  if (events_ == nullptr) return {};
  const std::array<track::Scalar, 2> scalars = {{{"train/loss", static_cast<float>(report.loss)},
                                                 {"train/lr", static_cast<float>(report.lr)}}};
  return events_->add(counters.step, scalars);
}

double Trainer::pass() const {
  return static_cast<double>(session_.arena().counters().samples) /
         static_cast<double>(session_.train_samples());
}

Status Trainer::evaluate() {
  Counters& counters = session_.arena().counters();
  progress_->busy("evaluating");
  MUSTER_TRY(last_eval_, session_.evaluate());
  last_eval_step_ = counters.step;
  const double value = last_eval_.at(best_by_);
  if (is_better(value)) {
    counters.best = value;
    counters.best_step = counters.step;
    counters.stale_evals = 0;
  } else {
    counters.stale_evals += 1;
  }
  std::vector<track::Metric> shown;
  for (const auto& [name, v] : last_eval_.values) shown.push_back({name, v});
  progress_->eval({counters.step, pass(), shown, counters.best_step == counters.step});
  MUSTER_RETURN_IF_ERROR(
      metrics_->write({{"step", counters.step}, {"test", to_json(last_eval_.values)}}));
  if (events_ == nullptr) return {};
  std::vector<std::string> tags;
  for (const auto& [name, v] : last_eval_.values) tags.push_back("test/" + name);
  std::vector<track::Scalar> scalars;
  for (size_t i = 0; i < tags.size(); ++i) {
    scalars.push_back({tags[i], static_cast<float>(last_eval_.values[i].second)});
  }
  return events_->add(counters.step, scalars);
}

Status Trainer::save(bool best) {
  const Arena& arena = session_.arena();
  nlohmann::json meta = {{"job", session_.job().name},
                         {"samples", arena.counters().samples},
                         {"weights_hash", arena.weights_hash().hex()},
                         {"seconds", seconds_before_ + seconds(env_.clock->now() - started_)}};
  if (last_eval_step_ >= 0) {
    meta["test"] = to_json(last_eval_.values);
    meta["test_step"] = last_eval_step_;
  }
  saved_step_ = arena.counters().step;
  last_save_ = env_.clock->now();
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
  writer_.submit({.step = saved_step_, .best = best, .meta = std::move(meta)});
  return {};
}

}  // namespace muster::train
