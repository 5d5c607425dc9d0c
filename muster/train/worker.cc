#include "muster/train/worker.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <thread>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "muster/base/fault_point.h"
#include "muster/base/text.h"
#include "muster/config/load.h"
#include "muster/config/rounds.h"
#include "muster/config/source.h"
#include "muster/config/table.h"
#include "muster/copy/copy_reader.h"
#include "muster/copy/copy_sender.h"
#include "muster/data/fetcher.h"
#include "muster/model/pt2_net.h"
#include "muster/pt2/treatment.h"
#include "muster/roster/coordinator.h"
#include "muster/store/open.h"
#include "muster/track/background_sink.h"
#include "muster/track/run_identity.h"
#include "muster/track/sink.h"
#include "muster/train/membership/membership.h"
#include "muster/train/numerics/fingerprint.h"
#include "muster/train/numerics/job_fingerprint.h"
#include "muster/train/numerics/probe.h"
#include "muster/train/predict.h"
#include "muster/train/predict_parts.h"
#include "muster/train/replay.h"
#include "muster/train/signals.h"
#include "muster/train/state/weights_file.h"
#include "muster/train/trainer.h"

namespace muster::train {
namespace {

using nlohmann::json;

struct Arguments {
  std::string run;
  std::string job;
  std::string written;  // the job file as the person wrote it, whose lines errors name
  std::vector<std::string> coordinators;
  std::string id = "0";
  std::string host = "127.0.0.1";
  std::string site;
  std::string servers;
  std::string name;
  bool resume = false;
  bool accept_other_data = false;
  std::string display = "normal";
  std::string checkpoint = "best";
  std::vector<std::string> sets;
  std::string output = "table";
  std::string samples = "0-9";
  std::string from = "test";
  int threads = 0;
  bool has_prompt = false;
  GenerateOptions generate;
  std::string data;    // other test data; empty: the job's
  std::string format;  // of that
  bool no_labels = false;
  PredictOptions predict;
  std::string parts;  // a directory of parts to compute; empty: samples are printed
  std::string output_format = "csv";
};

// A resolved job has everything in it; the environment had its say when it was made.
Result<config::Sources> resolved_sources(FileSystem& files, const std::string& path,
                                         const std::vector<std::string>& sets) {
  MUSTER_TRY(auto sources, config::gather_sources(files, path, sets));
  sources.environment.clear();
  return sources;
}

// `written`: the file that the job at `path` was resolved from, or "".
Result<config::Job> load_job(FileSystem& files, const std::string& path,
                             const std::vector<std::string>& sets,
                             const std::string& written = "") {
  MUSTER_TRY(const auto sources, resolved_sources(files, path, sets));
  MUSTER_TRY(auto loaded, config::load_job(sources));
  if (!written.empty()) {
    const auto text = files.read(written);
    if (text.ok()) config::borrow_places(loaded.job, *text, written);
  }
  return std::move(loaded.job);
}

track::ProgressMode display_mode(const std::string& name) {
  if (name == "json") return track::ProgressMode::kJson;
  if (name == "quiet") return track::ProgressMode::kQuiet;
  if (name == "none") return track::ProgressMode::kNone;
  return track::ProgressMode::kNormal;
}

// Tells of what takes long while data is opened: in the log, and on a terminal in a line that is
// redrawn, and erased at the end.
class OpeningLine {
 public:
  OpeningLine(Log& log, bool shown) : log_(log), shown_(shown && isatty(STDERR_FILENO) != 0) {}
  ~OpeningLine() {
    if (drawn_) fmt::print(stderr, "\r\x1b[K");
  }
  OpeningLine(const OpeningLine&) = delete;
  OpeningLine& operator=(const OpeningLine&) = delete;

  void tell(const std::string& what) {
    log_.info("{}", what);
    if (!shown_) return;
    fmt::print(stderr, "\r{}\x1b[K", what);
    std::fflush(stderr);
    drawn_ = true;
  }

 private:
  Log& log_;
  const bool shown_;
  bool drawn_ = false;
};

// Whether a command that looks at a run names other test data: with --data, or with -s.
bool has_other_data(const Arguments& args) {
  const auto names_data = [](const std::string& set) {
    const auto key = trim(std::string_view(set).substr(0, set.find('=')));
    return key == "data.test" || key == "data.test.path";
  };
  return !args.data.empty() || std::ranges::any_of(args.sets, names_data);
}

// For commands that look at a run: with the indexes of its data. That of other data is not kept
// there: it would be found again when there are more files at the same address.
Registries with_indexes(const Registries& registries, const Arguments& args) {
  Registries result = registries;
  result.places.indexes = args.run + "/index";
  if (has_other_data(args)) result.places.test_indexes = "";
  return result;
}

copy::CopyOptions copy_options(const config::Job& job, const track::RunDirectory& run,
                               bool own_directory) {
  return {.to = job.checkpoint.to,
          .run_directory = run.path(),
          .keep = static_cast<int>(job.checkpoint.keep),
          .keep_best = job.checkpoint.best,
          .own_directory = own_directory};
}

// What sends checkpoints to checkpoint.to; null if the job has none.
std::unique_ptr<copy::CopySender> open_copy(const config::Job& job, const track::RunDirectory& run,
                                            bool own_directory, FileSystem& files,
                                            const Clock& clock, Log& log) {
  if (job.checkpoint.to.empty()) return nullptr;
  store::RetryOptions retries;
  retries.hedges = 0;  // it hardly reads
  return std::make_unique<copy::CopySender>(
      std::make_unique<store::RetryStore>(store::open_store(), clock, retries), files,
      copy_options(job, run, own_directory), log);
}

// The run directory of a worker of several.
struct RunPlace {
  bool is_launchers = true;  // not one that a worker has made on this host
  RunOffer offer;            // what the coordinator said of the run; may be empty
};

// What the coordinator says of the run. One that is being restarted is waited for.
Result<RunOffer> ask_for_run(const std::vector<std::string>& coordinators, const Clock& clock) {
  constexpr auto kPatience = std::chrono::seconds(60);
  constexpr auto kAnswerTakes = std::chrono::seconds(5);
  constexpr auto kPause = std::chrono::milliseconds(200);
  const Moment began = clock.now();
  while (true) {
    std::optional<Error> last;
    for (const auto& address : coordinators) {
      auto offer = roster::fetch_offer(address, kAnswerTakes);
      if (offer.ok()) return offer;
      last = std::move(offer).error();
    }
    if (last && clock.now() - began >= kPatience) return *std::move(last);
    std::this_thread::sleep_for(kPause);
  }
}

// What the metrics of an earlier attempt tell of steps after the newest checkpoint here, this one
// may tell otherwise: it may have another schedule (-s passes=...).
Status cut_metrics(FileSystem& files, const std::string& directory) {
  const std::string metrics = directory + "/metrics.jsonl";
  if (!files.exists(metrics)) return {};
  ckpt::SnapshotStore store(files, directory + "/checkpoints", 1, false);
  MUSTER_TRY(const auto snapshots, store.list());
  MUSTER_TRY(auto writer, track::MetricsWriter::open(files, metrics));
  return writer.truncate_after(snapshots.empty() ? 0 : snapshots.back().step);
}

// Finds the run directory of one of several workers, or makes it: with checkpoint.to a host need
// not share that of the launcher (track/run_identity.h).
Result<RunPlace> find_directory(const Arguments& args, FileSystem& files, const Clock& clock) {
  RunPlace place;
  MUSTER_TRY(place.offer, ask_for_run(args.coordinators, clock));
  if (place.offer.run.empty()) {
    if (files.exists(args.run + "/job.yaml")) return place;
    return Error(ErrorKind::kUsage,
                 "there is no run directory '{}' on this machine: put it on storage that all "
                 "machines share, or set checkpoint.to, with which each machine may have its own "
                 "(jobs with tables cannot)",
                 args.run);
  }
  MUSTER_TRY(place.is_launchers, track::make_ready(files, args.run, place.offer,
                                                   [&] { return cut_metrics(files, args.run); }));
  return place;
}

// Looks at the copy before others wait for this worker.
Result<CopySource> look_at_copy(copy::CopyReader& reader, const RunPlace& place,
                                const track::RunDirectory& run, FileSystem& files,
                                const Clock& clock, Log& log) {
  constexpr auto kPatience = std::chrono::seconds(30);
  constexpr auto kPause = std::chrono::milliseconds(500);
  CopySource source;
  source.reader = &reader;
  source.is_needed = !place.is_launchers;
  const Moment began = clock.now();
  while (true) {
    auto seen = reader.look();
    if (!seen.ok()) {
      if (source.is_needed) return std::move(seen).error();
      log.warning("{}", seen.error().message());
      return source;
    }
    source.seen = *std::move(seen);
    if (source.is_needed && source.seen.lost) {
      return Error(ErrorKind::kRefused,
                   "the run directory on this machine is not the launcher's, and the copy that it "
                   "belongs to is not in '{}': without it nothing tells whether its checkpoints "
                   "are those of the run. Name the place of the copy in checkpoint.to, or move "
                   "'{}' away",
                   reader.to(), run.path());
    }
    if (!source.is_needed || source.seen.exists || !place.offer.has_checkpoint) return source;
    // The run was begun without a copy. Some worker may be about to make it.
    ckpt::SnapshotStore store(files, run.checkpoints(), 1, false);
    MUSTER_TRY(const auto snapshots, store.list());
    if (!snapshots.empty()) return source;
    if (clock.now() - began >= kPatience) {
      return Error(ErrorKind::kRefused,
                   "the run has checkpoints in the launcher's directory, this machine has a "
                   "directory of its own, and there is no copy in '{}' yet: resume the run where "
                   "it is with `muster resume`, which makes the copy",
                   reader.to());
    }
    std::this_thread::sleep_for(kPause);
  }
}

// One training run in a directory that `muster` has made, or find_directory(). Returns the exit
// code.
Result<int> train_in(const Arguments& args, Registries registries, track::RunDirectory& run,
                     const RunPlace& place, FileSystem& files, const Clock& clock, Log& log) {
  registries.servers = args.servers;
  MUSTER_TRY(const auto signals, StopSignals::listen(/*hangups=*/args.coordinators.empty()));
  MUSTER_TRY(auto job, load_job(files, run.job_file(), {}, args.written));
  if (config::has_tables(job) && args.servers.empty() && !args.coordinators.empty()) {
    return Error(
        ErrorKind::kJob,
        "several workers need their tables on parameter servers, and --servers is missing: start "
        "them with `muster train --workers` or --hosts, or with `muster join`");
  }
  std::optional<OpeningLine> opening;
  opening.emplace(log, args.display == "normal");
  auto& places = registries.places;
  places.indexes = run.indexes();
  places.keep_waiting = [&signals] { return signals->received() == 0; };
  places.tell = [&](const std::string& what) {
    if (opening) opening->tell(what);
  };
  MUSTER_TRY(const auto session, Session::open(std::move(job), registries));
  // Opens test data that is read by blocks.
  MUSTER_RETURN_IF_ERROR(session->begin_fingerprint());
  opening.reset();

  auto standard_output = track::FdSink::standard_output();
  // So that a stopped terminal does not stop the training. Its end waits for the reader, but by
  // then all is on the disk.
  track::BackgroundSink sink(standard_output);
  const auto& trained = session->job();
  const bool takes_over =
      !args.coordinators.empty() && !trained.checkpoint.to.empty() && !config::has_tables(trained);
  std::unique_ptr<Membership> membership;
  const auto progress = [&membership] {
    if (membership != nullptr) membership->progress();
  };
  std::unique_ptr<copy::CopyReader> reader;
  CopySource source;
  if (takes_over) {
    store::RetryOptions retries;
    retries.hedges = 0;
    retries.list_timeout = std::chrono::seconds(place.is_launchers ? 5 : 20);
    reader = std::make_unique<copy::CopyReader>(
        std::make_unique<store::RetryStore>(store::open_store(), clock, retries), files,
        copy_options(trained, run, !place.is_launchers), progress);
    MUSTER_TRY(source, look_at_copy(*reader, place, run, files, clock, log));
  }
  if (!args.coordinators.empty()) {
    MembershipOptions options;
    options.coordinators = args.coordinators;
    options.job = args.name.empty() ? session->job().name : args.name;
    options.id = args.id;
    options.host = args.host;
    options.site = args.site;
    options.process = getpid();
    MUSTER_TRY(membership, Membership::join(*session, std::move(options), clock, log));
  }
  const auto copy = open_copy(session->job(), run, !place.is_launchers, files, clock, log);
  Recorder recorder(*session,
                    {&run, &files, &clock, &log, &sink, display_mode(args.display), progress,
                     copy.get(), [&signals] { return signals->received() == 0; }, takes_over,
                     registries.own_lanes == nullptr || registries.own_lanes->resumable});
  TrainerEnvironment environment{&files, &clock, &log, [&] { return signals->received(); }};
  environment.accept_other_data = args.accept_other_data;
  environment.copy = std::move(source);
  Trainer trainer(*session, recorder, environment, membership.get());
  if (membership == nullptr) MUSTER_RETURN_IF_ERROR(trainer.prepare());
  MUSTER_TRY(const auto summary, trainer.train());
  if (registries.own_lanes != nullptr) {
    const bool ended = summary.reason != EndReason::kSignal && summary.reason != EndReason::kLeft;
    registries.own_lanes->trained(summary.counters.step, ended);
  }
  return summary.reason == EndReason::kSignal ? 128 + summary.signal : 0;
}

Result<int> run_train(const Arguments& args, const Registries& registries) {
  const auto files = posix_file_system();
  const SystemClock clock;
  const bool alone = args.coordinators.empty();
  RunPlace place;
  if (!alone) {
    MUSTER_TRY(place, find_directory(args, *files, clock));
  }
  MUSTER_TRY(auto run, track::RunDirectory::open(*files, args.run));
  // Of several workers the launcher holds the lock for all.
  std::optional<track::RunLock> lock;
  if (alone) {
    MUSTER_TRY(lock, run.lock());
  } else {
    MUSTER_RETURN_IF_ERROR(files->create_directories(run.worker_logs()));
  }
  const auto log_file = alone ? run.log_file() : run.worker_log(args.id);
  MUSTER_TRY(auto log, Log::to_file(log_file, LogLevel::kInfo, false));
  auto code = train_in(args, registries, run, place, *files, clock, log);
  if (!code.ok()) {
    log.write(LogLevel::kInfo, "failed: " + code.error().message());
    // The first error is the one to tell; if the status cannot be written either, the lock and the
    // log still show what happened. Of several workers the launcher says how the job ended.
    if (alone) {
      (void)run.write_status(track::RunState::kFailed, code.error().message(), 0, clock);
    }
  }
  return code;
}

// The job of a run, with other test data if the command names some.
Result<config::Job> job_of_run(FileSystem& files, const track::RunDirectory& run,
                               const Arguments& args) {
  MUSTER_TRY(const auto sources, resolved_sources(files, run.job_file(), args.sets));
  MUSTER_TRY(auto loaded, args.data.empty()
                              ? config::load_job(sources)
                              : config::load_job_with_data(sources, args.data, args.format));
  if (args.no_labels) MUSTER_RETURN_IF_ERROR(config::remove_labels(loaded.job.data.test));
  return std::move(loaded.job);
}

// A session with a checkpoint's weights.
Result<std::unique_ptr<Session>> open_trained(FileSystem& files, const Arguments& args,
                                              const Registries& registries) {
  MUSTER_TRY(const auto run, track::RunDirectory::open(files, args.run));
  MUSTER_TRY(auto job, job_of_run(files, run, args));
  MUSTER_TRY(const auto snapshot, open_snapshot(files, run.checkpoints(), args.checkpoint));
  MUSTER_TRY(auto session, Session::open(std::move(job), registries));
  MUSTER_RETURN_IF_ERROR(check_model_file(session->model_file_hash(), snapshot.meta));
  MUSTER_RETURN_IF_ERROR(session->arena().load_model(snapshot.model));
  if (session->rows() != nullptr) {
    MUSTER_TRY(auto shards, saved_rows(snapshot.state));
    MUSTER_RETURN_IF_ERROR(session->rows()->load(std::move(shards), 0));
  }
  session->arena().counters().step = snapshot.step;
  return session;
}

Status check_has_test(const Session& session) {
  if (session.has_test()) return {};
  return Error(ErrorKind::kJob, "the job has no data.test; name data with --data");
}

Result<int> run_eval(const Arguments& args, const Registries& registries) {
  const auto files = posix_file_system();
  const auto with = with_indexes(registries, args);
  MUSTER_TRY(const auto session, open_trained(*files, args, with));
  MUSTER_RETURN_IF_ERROR(check_has_test(*session));
  MUSTER_TRY(const auto report, session->evaluate());
  const int64_t step = session->arena().counters().step;
  if (args.output == "json") {
    json test = json::object();
    for (const auto& [name, value] : report.values) test[name] = value;
    std::puts(json{{"step", step},
                   {"samples", report.samples},
                   {"test", test},
                   {"weights_hash", session->arena().weights_hash().hex()}}
                  .dump()
                  .c_str());
    return 0;
  }
  fmt::print("checkpoint of step {}, {} samples\n", step, with_commas(report.samples));
  for (const auto& [name, value] : report.values) fmt::print("  {:<12} {:.6g}\n", name, value);
  return 0;
}

// "0-9", "3", "1,5,8-10"
Result<std::vector<uint64_t>> parse_samples(const std::string& text) {
  std::vector<uint64_t> samples;
  for (const auto& part : split(text, ',')) {
    unsigned long long first = 0, last = 0;
    char rest = 0;
    const int n = std::sscanf(part.c_str(), "%llu-%llu%c", &first, &last, &rest);
    if (n == 1 && part.find('-') == std::string::npos) last = first;
    if (n < 1 || n > 2 || last < first || last - first > 100000) {
      return Error(ErrorKind::kUsage, "--samples {}: say a number, or a range such as 0-9", text);
    }
    for (auto s = first; s <= last; ++s) samples.push_back(s);
  }
  return samples;
}

// What a worker waits for, in a file that the process that started it looks at. Safe for concurrent
// use.
class DoingFile {
 public:
  DoingFile(FileSystem& files, std::string path) : files_(files), path_(std::move(path)) {}

  // Now and then; "": nothing any more.
  void tell(const std::string& what) {
    const auto now = std::chrono::steady_clock::now();
    const std::lock_guard lock(mutex_);
    if (what == told_ || (!what.empty() && now - when_ < std::chrono::milliseconds(200))) return;
    told_ = what;
    when_ = now;
    auto file = files_.create(path_);
    if (!file.ok()) return;  // only a line on a screen
    (void)(*file)->append(what);
    (void)(*file)->close();
  }

 private:
  FileSystem& files_;
  const std::string path_;
  std::mutex mutex_;
  std::string told_;                            // guarded by mutex_
  std::chrono::steady_clock::time_point when_;  // guarded by mutex_
};

PredictOptions what_to_predict(const Arguments& args) {
  PredictOptions what = args.predict;
  what.labels = !args.no_labels;
  return what;
}

Result<int> run_predict_parts(const Arguments& args, const Registries& registries) {
  const auto output = find_output_format(args.output_format);
  MUSTER_CHECK(output.has_value(), "checked by the command line");
  // Before data is opened, which may take long.
  MUSTER_RETURN_IF_ERROR(check_output(*output));
  const auto files = posix_file_system();
  MUSTER_TRY(auto directory, parts::PartsDirectory::open(*files, args.parts));
  DoingFile doing(*files, fmt::format("{}/{}.doing", directory.workers(), args.id));
  auto with = with_indexes(registries, args);
  // Made by one worker; and a command that continues takes the same one.
  if (has_other_data(args)) with.places.test_indexes = directory.indexes();
  with.places.tell = [&](const std::string& what) { doing.tell(what); };
  MUSTER_TRY(const auto session, open_trained(*files, args, with));
  MUSTER_RETURN_IF_ERROR(check_has_test(*session));
  MUSTER_TRY(const auto* dataset, session->test_data());
  doing.tell("");
  PartOptions options{.what = what_to_predict(args), .output = *output};
  options.keep_waiting = [&] {
    if (const auto* fetcher = dataset->fetcher()) doing.tell(fetcher->waiting());
    return true;
  };
  MUSTER_RETURN_IF_ERROR(predict_parts(*session, *dataset, directory, options));
  return 0;
}

Result<int> run_predict(const Arguments& args, const Registries& registries) {
  if (!args.parts.empty()) return run_predict_parts(args, registries);
  const auto files = posix_file_system();
  const auto with = with_indexes(registries, args);
  MUSTER_TRY(const auto session, open_trained(*files, args, with));
  if (args.has_prompt) {
    MUSTER_TRY(const auto text, generate_text(*session, args.generate));
    std::puts(args.output == "json" ? json{{"text", text}}.dump().c_str() : text.c_str());
    return 0;
  }
  MUSTER_TRY(const auto samples, parse_samples(args.samples));
  const data::Dataset* dataset = &session->train_data();
  if (args.from == "test") {
    MUSTER_RETURN_IF_ERROR(check_has_test(*session));
    MUSTER_TRY(dataset, session->test_data());
  }
  MUSTER_TRY(const auto rows, predict_samples(*session, *dataset, samples, what_to_predict(args)));
  if (args.output == "json" || args.predict.raw || !args.predict.layer.empty()) {
    std::puts(json(rows).dump().c_str());
    return 0;
  }
  for (const auto& row : rows) {
    if (row.contains("class")) {
      fmt::print("sample {:>6}: class {:>3} ({:5.1f} %){}\n", row["sample"].get<uint64_t>(),
                 row["class"].get<int64_t>(), 100 * row["probability"].get<double>(),
                 !row.contains("label")
                     ? ""
                     : fmt::format(", labelled {}{}", row["label"].get<int64_t>(),
                                   row["class"] == row["label"] ? "" : "   <- differs"));
    } else {
      fmt::print(
          "sample {:>6}: {:.6g}{}\n", row["sample"].get<uint64_t>(), row["value"].get<double>(),
          row.contains("target") ? fmt::format(", target {:.6g}", row["target"].get<double>())
                                 : "");
    }
  }
  return 0;
}

Result<int> run_replay(const Arguments& args, const Registries& registries) {
  const auto files = posix_file_system();
  MUSTER_TRY(const auto run, track::RunDirectory::open(*files, args.run));
  MUSTER_TRY(auto job, load_job(*files, run.job_file(), {}));
  if (!config::is_asynchronous(job.sync)) {
    return Error(ErrorKind::kUsage,
                 "the run was trained with sync.strategy {}{}: it gives the same bits each time, "
                 "and `muster verify` shows it. A replay is for asynchronous modes of "
                 "sync.strategy server",
                 job.sync.strategy,
                 config::is_on_servers(job.sync.strategy) ? " and sync.mode sync" : "");
  }
  MUSTER_TRY(const auto snapshot, open_snapshot(*files, run.checkpoints(), args.checkpoint));
  const bool shown = args.output != "json" && isatty(STDERR_FILENO) != 0;
  auto told = std::chrono::steady_clock::now();
  const auto progress = [&](int64_t done, int64_t all) {
    const auto now = std::chrono::steady_clock::now();
    if (!shown || (done < all && now - told < std::chrono::milliseconds(200))) return;
    told = now;
    fmt::print(stderr, "\rreplaying: {} of {} pushes{}", done, all, done == all ? "\n" : "");
  };
  MUSTER_TRY(const auto shards, saved_rows(snapshot.state));
  MUSTER_TRY(auto result, replay(std::move(job), with_indexes(registries, args), *files, shards,
                                 snapshot.step, progress));
  // What was told at the end of the run.
  const auto told_result = run.read_result();
  if (told_result && told_result->value("steps", int64_t{-1}) == result.step) {
    result.told = told_result->value("weights_hash", "");
  }
  const double bytes = static_cast<double>(result.record_bytes) /
                       static_cast<double>(std::max<int64_t>(result.pushes, 1));
  if (args.output == "json") {
    std::puts(json{{"step", result.step},
                   {"pushes", result.pushes},
                   {"record_bytes", result.record_bytes},
                   {"mean_staleness", result.mean_staleness},
                   {"most_staleness", result.most_staleness},
                   {"told", result.told},
                   {"saved", result.saved},
                   {"replayed", result.replayed},
                   {"equal", result.equal()}}
                  .dump()
                  .c_str());
  } else {
    fmt::print(
        "step {}: {} pushes; record {:.1f} bytes a push; {:.1f} updates late on average, {} at "
        "most\n",
        result.step, result.pushes, bytes, result.mean_staleness, result.most_staleness);
    if (!result.told.empty()) fmt::print("told      {}\n", result.told);
    fmt::print("saved     {}\nreplayed  {}\n{}\n", result.saved, result.replayed,
               result.equal()
                   ? "equal"
                   : "NOT equal; was the run trained on another kind of machine, or resumed "
                     "with another number of steps?");
  }
  constexpr int kDiffers = 9;
  return result.equal() ? 0 : kDiffers;
}

// What stands in the place of nodes of model.file, a sentence for each kind.
Result<std::vector<std::string>> replaced_nodes(const config::ModelOptions& options) {
  if (options.file.empty()) return std::vector<std::string>();
  MUSTER_TRY(const auto file, pt2::File::open(options.file));
  MUSTER_TRY(const auto plan, model::plan_file(file, options));
  return pt2::describe(file.program(), plan);
}

Result<int> run_check(const Arguments& args, const Registries& registries) {
  const auto files = posix_file_system();
  MUSTER_TRY(auto job, load_job(*files, args.job, {}, args.written));
  MUSTER_TRY(const auto session, Session::open(std::move(job), registries));
  MUSTER_RETURN_IF_ERROR(session->try_forward());
  if (session->has_test()) {
    MUSTER_TRY(const auto* test, session->test_data());
    MUSTER_RETURN_IF_ERROR(session->check_evaluation(*test));
  }
  uint64_t parameters = 0;
  uint64_t sides = 0;    // rows and columns of all matrices, for what powersgd sends
  uint64_t vectors = 0;  // parameters that are in no matrix
  std::vector<std::string> frozen;
  for (const auto& tensor : session->arena().tensors()) {
    if (tensor.info.role == optim::Role::kStatistic) continue;
    parameters += tensor.size();
    if (tensor.info.role == optim::Role::kFrozen) {
      frozen.push_back(tensor.info.name);
      continue;
    }
    if (tensor.shape.size() < 2 || tensor.size() == 0) {
      vectors += tensor.size();
    } else {
      const auto rows = static_cast<uint64_t>(tensor.shape[0]);
      sides += rows + tensor.size() / rows;
    }
  }
  MUSTER_TRY(const auto replaced, replaced_nodes(session->job().model));
  json facts = {
      {"parameters", parameters},        {"matrix_sides", sides},
      {"vector_parameters", vectors},    {"train_samples", session->train_samples()},
      {"steps", session->total_steps()}, {"state_bytes", session->arena().bytes().size()}};
  if (!session->job().model.file.empty()) facts["replaced"] = replaced;
  if (!session->job().model.file.empty() && !frozen.empty()) facts["frozen"] = frozen;
  std::puts(facts.dump().c_str());
  return 0;
}

void add_commands(CLI::App& app, Arguments& args) {
  app.require_subcommand(1);
  auto* train = app.add_subcommand("train", "train in a run directory");
  train->add_option("--run", args.run)->required();
  train->add_flag("--resume", args.resume);
  train->add_flag("--accept-other-data", args.accept_other_data,
                  "resume although the data have changed since the checkpoint");
  train->add_option("--coordinator", args.coordinators, "where the others meet; alone without it")
      ->delimiter(',');
  train->add_option("--id", args.id, "of this worker's slot");
  train->add_option("--host", args.host, "where other workers reach this machine");
  train->add_option("--servers", args.servers, "where the job's parameter servers are registered");
  train->add_option("--site", args.site, "whose workers compute replicas together");
  train->add_option("--job-name", args.name, "as the coordinator knows the job");
  train->add_option("--written", args.written, "the job file that the run's was resolved from");
  train->add_option("--display", args.display)
      ->check(CLI::IsMember({"normal", "quiet", "none", "json"}));
  const auto trained = [&](CLI::App* command) {
    command->add_option("--run", args.run)->required();
    command->add_option("--checkpoint", args.checkpoint);
    command->add_option("-s", args.sets);
    command->add_option("-o", args.output)->check(CLI::IsMember({"table", "json"}));
  };
  const auto other_data = [&](CLI::App* command) {
    auto* data = command->add_option("--data", args.data, "in place of the job's test data");
    command->add_option("--format", args.format, "of that data")->needs(data);
  };
  auto* eval = app.add_subcommand("eval", "evaluate a checkpoint on the test data");
  trained(eval);
  other_data(eval);
  trained(app.add_subcommand("replay", "compute an asynchronous run again"));
  auto* predict = app.add_subcommand("predict", "show what a checkpoint says");
  trained(predict);
  other_data(predict);
  predict->add_flag("--no-labels", args.no_labels, "the test data has none");
  predict->add_option("--layer", args.predict.layer);
  auto* parts = predict->add_option("--parts", args.parts, "compute parts in this directory");
  predict->add_option("--output-format", args.output_format)
      ->check(CLI::IsMember({"csv", "jsonl", "parquet"}))
      ->needs(parts);
  predict->add_option("--id", args.id, "of this worker's slot")->needs(parts);
  predict->add_option("--samples", args.samples);
  predict->add_option("--from", args.from)->check(CLI::IsMember({"test", "train"}));
  predict->add_flag("--raw", args.predict.raw);
  predict->add_option("--prompt", args.generate.prompt)->each([&](const std::string&) {
    args.has_prompt = true;
  });
  predict->add_option("--length", args.generate.length);
  predict->add_option("--temperature", args.generate.temperature);
  predict->add_option("--seed", args.generate.seed);
  auto* check = app.add_subcommand("check", "open the data and build the model");
  check->add_option("--job", args.job)->required();
  check->add_option("--written", args.written, "the job file that it was resolved from");
  auto* probe = app.add_subcommand("probe", "what this machine can do, as JSON");
  probe->add_option("--threads", args.threads);
}

// A worker must not outlive the command that started it and would have stopped it.
void follow_launcher() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): there are no other threads yet
  const char* launcher = std::getenv("MUSTER_LAUNCHER_PID");
  if (launcher == nullptr) return;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  // It may have gone before we asked.
  if (std::to_string(getppid()) != launcher) raise(SIGTERM);
}

}  // namespace

Result<config::Job> job_of_worker(int argc, char** argv) {
  Arguments args;
  CLI::App app;
  add_commands(app, args);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return Error(ErrorKind::kUsage, "{}", e.what());
  }
  const auto files = posix_file_system();
  if (!args.job.empty()) return load_job(*files, args.job, {});
  if (!args.coordinators.empty()) {
    const SystemClock clock;
    MUSTER_TRY(const auto place, find_directory(args, *files, clock));
    (void)place;
  }
  MUSTER_TRY(const auto run, track::RunDirectory::open(*files, args.run));
  return load_job(*files, run.job_file(), {});
}

int worker_main(int argc, char** argv, const Registries& registries) {
  prepare_process();
  follow_launcher();
  arm_fault_points();
  // A reader that goes away (`muster train ... | head`) ends its own reading, not the run.
  signal(SIGPIPE, SIG_IGN);
  Arguments args;
  CLI::App app(
      "Muster's worker: computes lanes. Started by `muster`, which is what you want to use.");
  add_commands(app, args);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : static_cast<int>(ErrorKind::kUsage);
  }
  const auto run = [&]() -> Result<int> {
    MUSTER_TRY(const auto gloo, check_gloo());
    (void)gloo;
    if (app.got_subcommand("train")) return run_train(args, registries);
    if (app.got_subcommand("eval")) return run_eval(args, registries);
    if (app.got_subcommand("predict")) return run_predict(args, registries);
    if (app.got_subcommand("replay")) return run_replay(args, registries);
    if (app.got_subcommand("check")) return run_check(args, registries);
    std::puts(probe(args.threads).dump().c_str());
    return 0;
  };
  const auto code = run();
  if (code.ok()) return *code;
  if (args.display == "json" || args.output == "json") {
    const json error = {
        {"error",
         {{"kind", error_kind_name(code.error().kind())}, {"message", code.error().message()}}}};
    std::puts(error.dump().c_str());
  }
  fmt::print(stderr, "muster: {}\n", code.error().message());
  return static_cast<int>(code.error().kind());
}

}  // namespace muster::train
