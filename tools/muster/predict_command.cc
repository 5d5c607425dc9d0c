#include "tools/muster/predict_command.h"

#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <optional>

#include <nlohmann/json.hpp>

#include "muster/base/text.h"
#include "muster/base/thread.h"
#include "muster/config/source.h"
#include "muster/launch/local_starter.h"
#include "muster/launch/supervisor.h"
#include "muster/parts/parts_directory.h"

#include "tools/muster/find_run.h"
#include "tools/muster/out_file.h"
#include "tools/muster/status_line.h"
#include "tools/muster/worker_process.h"

namespace muster::cli {
namespace {

using namespace std::chrono_literals;

// What a worker waits for, if it has said so a moment ago (DoingFile in muster/train/worker.cc).
std::string doing_of(const std::string& path, FileSystem& files) {
  struct stat facts{};
  if (::stat(path.c_str(), &facts) != 0 || std::time(nullptr) - facts.st_mtime > 2) return "";
  const auto text = files.read(path);
  return text.ok() ? *text : "";
}

uint64_t samples_of(const parts::PartPlan& plan, const std::vector<bool>& done) {
  uint64_t samples = 0;
  for (size_t part = 0; part < done.size(); ++part) {
    if (done[part]) samples += plan.borders[part + 1] - plan.borders[part];
  }
  return samples;
}

// How far the workers are: on a terminal, in one line.
class Watch {
 public:
  Watch(const parts::PartsDirectory& directory, std::vector<std::string> ids, FileSystem& files)
      : directory_(directory), ids_(std::move(ids)), files_(files) {}

  std::optional<Moment> look(Moment now) {
    if (!line_.shown()) return std::nullopt;
    if (now >= next_) {
      next_ = now + 300ms;
      line_.show(text(now));
    }
    return next_;
  }
  void clear() { line_.clear(); }

  bool all_done() {
    const auto done = count();
    return done && plan_ && *done == plan_->samples();
  }
  // Samples that are done; nothing: the workers have not said yet into which parts they are cut.
  std::optional<uint64_t> count() {
    if (!plan_) {
      auto plan = directory_.plan();
      if (!plan.ok() || !*plan) return std::nullopt;
      plan_ = **std::move(plan);
    }
    const auto done = directory_.done(*plan_);
    if (!done.ok()) return std::nullopt;
    return samples_of(*plan_, *done);
  }

 private:
  std::string text(Moment now) {
    std::string waiting;
    for (const auto& id : ids_) {
      if (!waiting.empty()) break;
      waiting = doing_of(fmt::format("{}/{}.doing", directory_.workers(), id), files_);
    }
    const auto done = count();
    if (!done) return waiting.empty() ? "opening the data" : waiting;
    if (!first_) {
      first_ = done;
      since_ = now;
    }
    const uint64_t all = plan_->samples();
    if (*done == all) return "joining the parts";
    std::string text =
        fmt::format("predicting: {} of {} samples", with_commas(*done), with_commas(all));
    const double rate = static_cast<double>(*done - std::min(*done, *first_)) /
                        std::max(seconds(now - since_), 0.1);
    if (rate > 0) {
      text += fmt::format(", {}/s, {} left", with_commas(static_cast<uint64_t>(rate)),
                          human_seconds(static_cast<double>(all - *done) / rate));
    }
    return waiting.empty() ? text : fmt::format("{}; {}", text, waiting);
  }

  const parts::PartsDirectory& directory_;
  const std::vector<std::string> ids_;
  FileSystem& files_;
  StatusLine line_;
  Moment next_;
  std::optional<parts::PartPlan> plan_;
  std::optional<uint64_t> first_;  // done before this command, or before it first looked
  Moment since_;
};

std::string own_sentence(const std::string& last_words) {
  WorkerEnd end;
  end.errors = last_words;
  return end.last_message();
}

std::string describe(const launch::WorkerFailure& failure) {
  const std::string own = own_sentence(failure.last_words);
  return fmt::format("worker {} {}{}", failure.id, failure.reason,
                     own.empty() ? "" : fmt::format(" ({})", own));
}

Outcome tell_end(const launch::JobEnd& end, const std::string& progress, bool json,
                 Context& context) {
  if (end.stopped_by != 0) {
    context.console.error(ErrorKind::kInterrupted,
                          fmt::format("stopped by {}{}; the same command continues",
                                      launch::signal_name(end.stopped_by), progress),
                          json);
    return 128 + end.stopped_by;
  }
  if (!end.failure) {
    return Error(ErrorKind::kInternal, "all workers have left before all parts were done");
  }
  const auto& failure = *end.failure;
  const std::string who = fmt::format("worker {}", failure.id);
  if (const auto death = launch::exit_message(failure.ending, who, "the same command continues")) {
    context.console.error(death->kind, death->sentence, json);
    return death->exit_code;
  }
  const std::string own = own_sentence(failure.last_words);
  context.console.error(launch::kind_of(failure.ending).value_or(ErrorKind::kInternal),
                        own.empty() ? fmt::format("{} {}", who, failure.reason) : own, json);
  return failure.ending.exit_code;
}

Error checkpoint_is_gone(const parts::PartsDirectory& directory, const std::string& step,
                         const track::RunDirectory& run) {
  return Error(ErrorKind::kCheckpoint,
               "'{}' has parts of predictions by the checkpoint of step {}, which is not in "
               "'{}'; remove the directory to begin anew with another checkpoint, or write to "
               "another file",
               directory.path(), step, run.checkpoints());
}

// The step that all workers load, those that are started again too, unless the person named one:
// that of the parts that are there, else the best or newest one now.
Result<std::string> choose_step(const PredictArguments& arguments,
                                const parts::PartsDirectory& directory,
                                const track::RunDirectory& run, FileSystem& files) {
  std::string which = arguments.checkpoint;
  if (which.empty()) {
    MUSTER_TRY(which, default_checkpoint(run, files));
  }
  if (which != "best" && which != "newest") return which;
  MUSTER_TRY(const auto plan, directory.plan());
  if (!plan) return step_of_checkpoint(run, which, files);
  const auto begun = plan->facts.find("checkpoint");
  if (begun == plan->facts.end() || !begun->is_number_integer()) return which;
  const std::string step = std::to_string(begun->get<int64_t>());
  MUSTER_TRY(const bool there, has_checkpoint(run, step, files));
  if (!there) return checkpoint_is_gone(directory, step, run);
  return step;
}

// Each worker has its share of the cores, unless the job says otherwise. No effect on the result.
void add_threads(const config::Job& job, int64_t workers, std::vector<std::string>& words) {
  if (job.threads > 0) return;
  const int64_t share = std::max<int64_t>(usable_cores() / workers, 1);
  words.insert(words.end(), {"-s", fmt::format("threads={}", share)});
}

}  // namespace

Result<config::Job> load_predict_job(const PredictArguments& arguments,
                                     const track::RunDirectory& run, FileSystem& files) {
  return load_run_job(run, arguments.set,
                      {"data.test", "eval.batch", "threads", "workers.restarts", "data.memory",
                       "data.requests", "data.cache", "data.cache_size"},
                      "the model predicts as it was trained", files,
                      {arguments.data, arguments.data_format});
}

void add_predict_words(const PredictArguments& arguments, std::vector<std::string>& words) {
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {option, value});
  };
  add("--data", arguments.data);
  add("--format", arguments.data_format);
  if (arguments.no_labels) words.emplace_back("--no-labels");
  for (const auto& set : arguments.set) add("-s", set);
  add("--layer", arguments.layer);
  if (arguments.raw) words.emplace_back("--raw");
}

Result<std::string> output_format_of(const std::string& out) {
  if (config::is_url(out)) {
    return Error(ErrorKind::kUsage, "--out: '{}' is a URL; name a file of this machine", out);
  }
  const std::string extension = std::filesystem::path(out).extension().string();
  if (extension == ".csv") return std::string("csv");
  if (extension == ".jsonl") return std::string("jsonl");
  if (extension == ".parquet") return std::string("parquet");
  return Error(ErrorKind::kUsage,
               "--out: '{}' must end with .csv, .jsonl or .parquet, which say what is written",
               out);
}

Outcome predict_to_file(const PredictArguments& arguments, Context& context) {
  const bool json = arguments.format == Format::kJson;
  MUSTER_TRY(const auto output, output_format_of(arguments.out));
  const bool workers_join = output == "parquet";
  MUSTER_RETURN_IF_ERROR(check_out_file(context.files, arguments.out, arguments.force));
  MUSTER_TRY(const auto run, find_run(arguments.run, context.files));
  MUSTER_TRY(const auto job, load_predict_job(arguments, run, context.files));
  if (job.data.test.format.empty()) {
    return Error(ErrorKind::kUsage, "{} has no test data; name data with --data", run_name(run));
  }
  MUSTER_TRY(const auto worker, find_worker(WorkerPlaces::of_process(arguments.worker)));
  std::optional<launch::HeldSignals> held;
  held.emplace();
  const Moment began = context.clock.now();
  MUSTER_TRY(const auto directory,
             parts::PartsDirectory::open(context.files, arguments.out + ".parts"));
  MUSTER_TRY(const auto lock, directory.lock());
  MUSTER_TRY(const auto step, choose_step(arguments, directory, run, context.files));
  std::vector<std::string> words = {"predict", "--run",   run.path(),       "--checkpoint",
                                    step,      "--parts", directory.path(), "--output-format",
                                    output};
  add_threads(job, arguments.workers, words);
  add_predict_words(arguments, words);

  launch::SupervisorOptions options;
  for (int64_t i = 0; i < arguments.workers; ++i) options.ids.push_back(std::to_string(i));
  Watch watch(directory, options.ids, context.files);
  const uint64_t before = watch.count().value_or(0);
  options.restarts.most = job.workers.restarts;
  options.restarts.errors_end_job = true;
  options.finished = [&] { return watch.all_done() && (!workers_join || directory.has_result()); };
  options.look = [&](Moment now) { return watch.look(now); };
  options.on_restart = [&](const launch::WorkerFailure& failure) {
    watch.clear();
    context.console.note(describe(failure));
  };
  MUSTER_RETURN_IF_ERROR(context.console.flush());
  launch::LocalStarter starter({worker, words, directory.workers()}, *held);
  const launch::Waker waker;
  MUSTER_TRY(const auto end,
             launch::Supervisor(std::move(options), starter, *held, waker, context.clock).run());
  held.reset();
  watch.clear();
  // A directory may be complete from before. If its plan is another one, no worker says that this
  // command is done: what they say comes first.
  if (!end.finished || end.failure || end.stopped_by != 0) {
    const auto done = watch.count();
    // Nothing that would have to be computed again.
    if (!done && !context.files.exists(directory.indexes())) (void)directory.remove();
    // A run that still trains has removed it while a worker was started again.
    if (done && end.failure && launch::kind_of(end.failure->ending) == ErrorKind::kCheckpoint) {
      MUSTER_TRY(const bool there, has_checkpoint(run, step, context.files));
      if (!there) return checkpoint_is_gone(directory, step, run);
    }
    return tell_end(end, done ? fmt::format(" with {} samples done", with_commas(*done)) : "", json,
                    context);
  }

  MUSTER_TRY(const auto plan, directory.plan());
  MUSTER_RETURN_IF_ERROR(workers_join ? directory.publish(arguments.out)
                                      : directory.join(*plan, arguments.out));
  MUSTER_RETURN_IF_ERROR(directory.remove());
  const double took = seconds(context.clock.now() - began);
  if (json) {
    const nlohmann::ordered_json object = {{"file", arguments.out},
                                           {"run", run_name(run)},
                                           {"step", plan->facts["checkpoint"]},
                                           {"samples", plan->samples()},
                                           {"seconds", took}};
    context.console.line(object.dump());
    return 0;
  }
  context.console.line(
      fmt::format("wrote {}: {} samples{} in {}", arguments.out, with_commas(plan->samples()),
                  before > 0 ? fmt::format(", {} of them before,", with_commas(before)) : "",
                  human_seconds(took)));
  return 0;
}

}  // namespace muster::cli
