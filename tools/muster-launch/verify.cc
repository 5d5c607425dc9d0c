// verify: trains a job twice, undisturbed on one worker and with faults on several, and compares.
//
// The faults are real: signals to real processes of a real `muster train --workers N`, which knows
// nothing of it. Who is in, and as which process, its coordinator says; how far the job is, its
// metrics say, where each line has the time of its commit.
#include "tools/muster-launch/verify.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "muster/base/text.h"
#include "muster/config/load.h"
#include "muster/launch/fault_plan.h"
#include "muster/launch/process.h"
#include "muster/roster/coordinator.h"
#include "muster/track/metrics.h"
#include "muster/track/run_directory.h"

#include "tools/muster/job_sources.h"
#include "tools/muster/worker_process.h"

namespace muster::cli {
namespace {

using Json = nlohmann::ordered_json;
using launch::Fault;
using launch::FaultKind;
using std::chrono::milliseconds;

constexpr auto kLook = milliseconds(2);
constexpr int kDiffers = 9;  // docs/exit-codes.md

double now_seconds(const Clock& clock) { return seconds(clock.wall().time_since_epoch()); }

// Processes that must not outlive us.
class Children {
 public:
  explicit Children(const launch::HeldSignals& held) : held_(held) {}
  ~Children() {
    for (const pid_t pid : running_) {
      kill(-pid, SIGCONT);
      kill(-pid, SIGKILL);
      kill(pid, SIGKILL);
    }
    for (const pid_t pid : running_) {
      while (!launch::reap(pid)) pause_a_bit();
    }
  }
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  Result<pid_t> start(const std::string& program, const std::vector<std::string>& arguments,
                      const launch::Streams& streams) {
    MUSTER_TRY(const pid_t pid, launch::spawn(program, arguments, held_, streams));
    running_.insert(pid);
    return pid;
  }
  // How it ended, if it has. Takes note of all others that have, too.
  std::optional<launch::Ending> ended(pid_t pid) {
    for (auto running = running_.begin(); running != running_.end();) {
      const auto ending = launch::reap(*running);
      if (ending) endings_[*running] = *ending;
      running = ending ? running_.erase(running) : std::next(running);
    }
    const auto found = endings_.find(pid);
    return found == endings_.end() ? std::nullopt : std::optional(found->second);
  }
  // Whether somebody wants us to end.
  bool interrupted() {
    const timespec at_once{};
    const int number = sigtimedwait(&held_.set(), nullptr, &at_once);
    return number == SIGINT || number == SIGTERM || number == SIGHUP;
  }
  static void pause_a_bit() {
    const timespec a_bit{0, std::chrono::nanoseconds(kLook).count()};
    nanosleep(&a_bit, nullptr);
  }

 private:
  const launch::HeldSignals& held_;
  std::set<pid_t> running_;
  std::map<pid_t, launch::Ending> endings_;
};

// The commits of a run as they come, read from its metrics file. Whoever takes over recording
// replaces the file, so it is read anew then.
class Commits {
 public:
  explicit Commits(std::string path) : path_(std::move(path)) {}

  void look() {
    struct stat now{};
    if (stat(path_.c_str(), &now) != 0) return;
    if (now.st_ino != inode_ || now.st_size < offset_) {
      inode_ = now.st_ino;
      offset_ = 0;
      times_.clear();
    }
    if (now.st_size == offset_) return;
    std::ifstream file(path_, std::ios::binary);
    file.seekg(offset_);
    for (std::string line; std::getline(file, line);) {
      if (file.eof()) break;  // its end is not written yet
      offset_ += static_cast<int64_t>(line.size()) + 1;
      const auto record = nlohmann::json::parse(line, nullptr, false);
      if (!record.is_object() || !record.contains("time")) continue;
      times_[record["step"].get<uint64_t>()] = record["time"].get<double>();
    }
  }
  uint64_t newest() const { return times_.empty() ? 0 : times_.rbegin()->first; }
  const std::map<uint64_t, double>& times() const { return times_; }

 private:
  std::string path_;
  ino_t inode_ = 0;
  int64_t offset_ = 0;
  std::map<uint64_t, double> times_;  // by step
};

// Something that was done to the job.
struct Happened {
  std::string name;
  FaultKind kind = FaultKind::kKill;
  std::string whom;
  double when = 0;  // seconds since 1970
  uint64_t step = 0;
  double held_up = -1;  // seconds that the others lost by it; -1: not known
};

struct Plan {
  std::string self;    // this program
  std::string worker;  // the other one
  std::string folder;
  std::vector<std::string> job;  // the words after `train` that say what is trained
  int workers = 4;
  double lease = 2;
  int lanes = 8;
  bool calm = false;
  std::vector<Fault> faults;
};

// One disturbed run.
class Disturbance {
 public:
  Disturbance(const Plan& plan, Children& children, Context& context)
      : plan_(plan),
        children_(children),
        context_(context),
        run_(plan.folder + "/disturbed"),
        commits_(run_ + "/metrics.jsonl") {}

  // Returns the exit code of `muster train`.
  Result<int> carry_out() {
    std::vector<std::string> words = {"train"};
    words.insert(words.end(), plan_.job.begin(), plan_.job.end());
    for (const auto& word :
         {std::string("--run-dir"), run_, std::string("--workers"), std::to_string(plan_.workers),
          std::string("--quiet"), std::string("--worker"), plan_.worker}) {
      words.push_back(word);
    }
    launch::Streams streams;
    streams.read_nothing = true;
    MUSTER_TRY(const pid_t trainer, children_.start(plan_.self, words, streams));
    began_ = now_seconds(context_.clock);
    std::vector<Fault> waiting = plan_.faults;
    std::optional<launch::Ending> ending;
    while (!(ending = children_.ended(trainer))) {
      if (children_.interrupted()) return Error(ErrorKind::kInterrupted, "told to stop");
      commits_.look();
      continue_stopped(false);
      note_aimed();
      hit_one(waiting);
      replenish();
      Children::pause_a_bit();
    }
    continue_stopped(true);
    commits_.look();
    left_ = waiting.size();
    measure();
    return ending->signal != 0 ? 128 + ending->signal : ending->exit_code;
  }

  const std::string& run() const { return run_; }
  std::vector<Happened>& happened() { return happened_; }
  size_t left() const { return left_; }
  double step_seconds() const { return step_seconds_; }

 private:
  struct Stopped {
    pid_t process;
    double until;
  };

  // The members, as far as they are processes of this machine.
  std::vector<roster::WorkerStatus> members() {
    if (address_.empty()) {
      std::ifstream file(run_ + "/coordinator.json");
      const auto object = nlohmann::json::parse(file, nullptr, false);
      if (!object.is_object() || !object.contains("address")) return {};
      address_ = object["address"].get<std::string>();
      name_ = std::filesystem::canonical(run_).filename().string();
    }
    auto report = roster::fetch_status(address_, milliseconds(500));
    if (!report.ok()) return {};
    std::vector<roster::WorkerStatus> in;
    for (auto& worker : report->workers) {
      if (worker.process > 0 && worker.standing == "member") in.push_back(std::move(worker));
    }
    return in;
  }

  static bool of_launcher(const roster::WorkerStatus& worker) {
    return !worker.member.key.id.starts_with("joiner-");
  }

  // Calm: the next fault waits until everybody is in again and the job gets on.
  bool ready() {
    if (!plan_.calm || happened_.empty()) return true;
    if (commits_.newest() < happened_.back().step + kCalmSteps) return false;
    return now_seconds(context_.clock) > happened_.back().when + kCalmSeconds &&
           members().size() >= static_cast<size_t>(plan_.workers);
  }

  // The first one whose time has come and that is possible now, as things are.
  void hit_one(std::vector<Fault>& waiting) {
    if (waiting.empty() || commits_.newest() < waiting.front().step || !ready()) return;
    for (auto fault = waiting.begin(); fault != waiting.end(); ++fault) {
      if (commits_.newest() < fault->step) return;
      if (!hit(*fault)) continue;
      waiting.erase(fault);
      return;
    }
  }

  // Who left does not come back, nor does a joiner that was killed. So that there are enough for
  // the faults to come, others take their place.
  void replenish() {
    if (address_.empty()) return;
    std::erase_if(joiners_, [&](pid_t pid) { return children_.ended(pid).has_value(); });
    if (plan_.workers - left_by_plan_ + std::ssize(joiners_) >= plan_.workers) return;
    (void)start_joiner();
  }

  // False: not now.
  bool hit(const Fault& fault) {
    auto in = members();
    // One thing at a time for each.
    std::erase_if(in, [&](const auto& worker) {
      return is_stopped(worker.process) || is_aimed(worker.process);
    });
    if (in.empty()) return false;
    // Somewhere within the step, not always right after the commit that we saw.
    const auto wait = static_cast<long>(fault.draw % 5000) * 1000;
    const timespec within{0, wait};
    nanosleep(&within, nullptr);
    auto& victim = in[(fault.draw >> 16) % in.size()];
    switch (fault.kind) {
      case FaultKind::kKill:
        return strike(fault, {victim}, SIGKILL);
      case FaultKind::kPair:
        if (in.size() < 3) return false;
        std::swap(victim, in.front());
        return strike(fault, {in[0], in[1]}, SIGKILL);
      case FaultKind::kMost:
        if (in.size() < 2) return false;
        std::swap(victim, in.back());
        in.pop_back();
        return strike(fault, in, SIGKILL);
      case FaultKind::kAimed:
        return aim(fault, in, victim);
      case FaultKind::kStop:
        if (in.size() < 2) return false;
        stopped_.push_back({static_cast<pid_t>(victim.process),
                            now_seconds(context_.clock) + plan_.lease + 0.5 +
                                static_cast<double>(fault.draw % 1000) / 1000});
        return strike(fault, {victim}, SIGSTOP);
      case FaultKind::kLeave: {
        const auto own = std::ranges::count_if(in, of_launcher);
        if (in.size() < 2 || (own < 2 && of_launcher(victim))) return false;
        if (!strike(fault, {victim}, SIGTERM)) return false;
        if (of_launcher(victim)) ++left_by_plan_;
        return true;
      }
      case FaultKind::kJoin:
        return join(fault, in.size());
    }
    return true;
  }

  bool strike(const Fault& fault, const std::vector<roster::WorkerStatus>& victims, int signal) {
    std::string whom;
    const double when = now_seconds(context_.clock);
    bool hit = false;
    for (const auto& victim : victims) {
      hit |= ::kill(static_cast<pid_t>(victim.process), signal) == 0;
      whom += fmt::format("{}{}", whom.empty() ? "" : ", ", victim.member.key.id);
    }
    if (hit) note({fault.name(), fault.kind, whom, when, commits_.newest()});
    return hit;
  }

  // Some points are only passed when something happens to another worker.
  bool aim(const Fault& fault, std::vector<roster::WorkerStatus>& in,
           const roster::WorkerStatus& any) {
    const bool by_another = fault.point == FaultPoint::kForming ||
                            fault.point == FaultPoint::kRecovery ||
                            fault.point == FaultPoint::kTransfer;
    if (by_another && in.size() < 3) return false;
    // Only the first one writes checkpoints.
    const auto& victim = fault.point == FaultPoint::kCheckpoint ? in.front() : any;
    const auto process = static_cast<pid_t>(victim.process);
    if (::kill(process, fault_signal(fault.point)) != 0) return false;
    aimed_.push_back({fault, victim.member.key.id, process});
    if (!by_another) return true;
    for (const auto& other : in) {
      if (other.process == victim.process) continue;
      return strike(Fault{}, {other}, SIGKILL);
    }
    return true;
  }

  void note_aimed() {
    std::erase_if(aimed_, [&](const Aimed& aimed) {
      if (::kill(aimed.process, 0) == 0) return false;
      note({aimed.fault.name(), FaultKind::kAimed, aimed.whom, now_seconds(context_.clock),
            commits_.newest()});
      return true;
    });
  }

  bool join(const Fault& fault, size_t present) {
    if (present >= static_cast<size_t>(plan_.lanes)) return false;
    const auto id = start_joiner();
    if (id.ok()) {
      note({fault.name(), fault.kind, *id, now_seconds(context_.clock), commits_.newest()});
    }
    return id.ok();
  }

  Result<std::string> start_joiner() {
    const auto id = fmt::format("joiner-{}", ++joined_);
    launch::Streams streams;
    streams.read_nothing = true;
    MUSTER_TRY(const pid_t pid,
               children_.start(plan_.worker,
                               {"train", "--run", run_, "--display", "quiet", "--coordinator",
                                address_, "--id", id, "--job-name", name_},
                               streams));
    joiners_.push_back(pid);
    return id;
  }

  bool is_stopped(int64_t process) const {
    return std::ranges::any_of(stopped_, [&](const auto& s) { return s.process == process; });
  }

  bool is_aimed(int64_t process) const {
    return std::ranges::any_of(aimed_, [&](const auto& a) { return a.process == process; });
  }

  void continue_stopped(bool all) {
    const double now = now_seconds(context_.clock);
    std::erase_if(stopped_, [&](const Stopped& stopped) {
      if (!all && now < stopped.until) return false;
      ::kill(stopped.process, SIGCONT);
      return true;
    });
  }

  void note(Happened what) {
    context_.console.line(fmt::format("{:>8.2f} s  step {:>6}  {:<20} worker {}",
                                      what.when - began_, what.step, what.name, what.whom));
    (void)context_.console.flush();
    happened_.push_back(std::move(what));
  }

  // How long each fault held the job up: the longest pause between commits around it, less a usual
  // step. Two of them, because the commit under way may still succeed after the fault.
  void measure() {
    std::vector<double> times;
    for (const auto& [step, time] : commits_.times()) times.push_back(time);
    std::vector<double> pauses;
    for (size_t i = 1; i < times.size(); ++i) pauses.push_back(times[i] - times[i - 1]);
    if (pauses.empty()) return;
    auto sorted = pauses;
    std::ranges::sort(sorted);
    step_seconds_ = sorted[sorted.size() / 2];
    for (auto& what : happened_) {
      const auto after = std::ranges::upper_bound(times, what.when) - times.begin();
      double longest = -1;
      for (auto i = after; i < std::min<std::ptrdiff_t>(after + 2, std::ssize(times)); ++i) {
        if (i > 0) longest = std::max(longest, pauses[static_cast<size_t>(i - 1)]);
      }
      if (longest >= 0) what.held_up = std::max(0.0, longest - step_seconds_);
    }
  }

  static constexpr uint64_t kCalmSteps = 20;
  static constexpr double kCalmSeconds = 1;
  struct Aimed {
    Fault fault;
    std::string whom;
    pid_t process;
  };

  const Plan& plan_;
  Children& children_;
  Context& context_;
  std::string run_;
  Commits commits_;
  std::string address_;
  std::string name_;
  double began_ = 0;
  std::vector<Stopped> stopped_;
  std::vector<Aimed> aimed_;
  std::vector<Happened> happened_;
  std::vector<pid_t> joiners_;  // that are alive
  int joined_ = 0;              // how many ever were
  int left_by_plan_ = 0;        // of those that the launcher started
  size_t left_ = 0;
  double step_seconds_ = 0;
};

// What a run came to, without what time has to do with.
struct Came {
  Json result;
  std::vector<nlohmann::json> records;
};

Result<Came> outcome_of(const std::string& path, FileSystem& files) {
  Came outcome;
  MUSTER_TRY(const auto run, track::RunDirectory::open(files, path));
  const auto result = run.read_result();
  if (!result) {
    return Error(ErrorKind::kInternal, "'{}' has no result: its log says why", path);
  }
  outcome.result = *result;
  MUSTER_TRY(auto metrics, track::read_metrics(files, run.metrics_file()));
  for (auto& record : metrics.records) {
    record.erase("seconds");
    record.erase("time");
    outcome.records.push_back(std::move(record));
  }
  return outcome;
}

// What differs, a phrase each; empty: nothing.
std::vector<std::string> differences(const Came& a, const Came& b) {
  std::vector<std::string> found;
  for (const char* const key : {"weights_hash", "steps", "samples", "ledger", "test",
                                "redone_steps", "skipped_steps", "best_step", "ended"}) {
    if (a.result.value(key, Json()) == b.result.value(key, Json())) continue;
    found.push_back(fmt::format("{}: {} undisturbed, {} disturbed", key,
                                a.result.value(key, Json()).dump(),
                                b.result.value(key, Json()).dump()));
  }
  const size_t lines = std::min(a.records.size(), b.records.size());
  for (size_t i = 0; i < lines; ++i) {
    if (a.records[i] == b.records[i]) continue;
    found.push_back(fmt::format("metrics, line {}: {} undisturbed, {} disturbed", i + 1,
                                a.records[i].dump(), b.records[i].dump()));
    break;
  }
  if (a.records.size() != b.records.size()) {
    found.push_back(fmt::format("metrics: {} lines undisturbed, {} disturbed", a.records.size(),
                                b.records.size()));
  }
  return found;
}

struct Spread {
  size_t count = 0;
  double median = 0, worst99 = 0, worst = 0;
};

Spread spread_of(const std::vector<Happened>& happened, FaultKind kind) {
  std::vector<double> values;
  for (const auto& what : happened) {
    if (what.kind == kind && what.held_up >= 0) values.push_back(what.held_up);
  }
  if (values.empty()) return {};
  std::ranges::sort(values);
  const auto at = [&](double share) {
    const auto last = static_cast<double>(values.size() - 1);
    return values[static_cast<size_t>(std::lround(std::ceil(share * last)))];
  };
  return {values.size(), at(0.5), at(0.99), values.back()};
}

constexpr std::array<std::pair<FaultKind, const char*>, 7> kShown = {{
    {FaultKind::kKill, "kill"},
    {FaultKind::kAimed, "kill at a point"},
    {FaultKind::kPair, "two killed"},
    {FaultKind::kMost, "all but one killed"},
    {FaultKind::kStop, "stop"},
    {FaultKind::kLeave, "leave"},
    {FaultKind::kJoin, "join"},
}};

void tell_times(const Disturbance& disturbance, const std::vector<Happened>& happened,
                Console& console) {
  console.line("");
  console.line(fmt::format("the others were held up for (less a step of {:.1f} ms):",
                           1000 * disturbance.step_seconds()));
  for (const auto& [kind, name] : kShown) {
    const Spread spread = spread_of(happened, kind);
    if (spread.count == 0) continue;
    console.line(fmt::format(
        "  {:<20} {:>4} times: median {:>6.0f} ms, 99 % {:>6.0f} ms, longest "
        "{:>6.0f} ms",
        name, spread.count, 1000 * spread.median, 1000 * spread.worst99, 1000 * spread.worst));
  }
}

Json report_json(const std::vector<std::string>& differ, const Came& disturbed,
                 const Disturbance& disturbance, const std::vector<Happened>& happened) {
  Json times = Json::object();
  for (const auto& [kind, name] : kShown) {
    const Spread spread = spread_of(happened, kind);
    if (spread.count == 0) continue;
    times[name] = {{"count", spread.count},
                   {"median", spread.median},
                   {"p99", spread.worst99},
                   {"longest", spread.worst}};
  }
  Json timeline = Json::array();
  for (const auto& what : happened) {
    timeline.push_back({{"time", what.when},
                        {"step", what.step},
                        {"fault", what.name},
                        {"worker", what.whom},
                        {"held_up", what.held_up}});
  }
  return {{"equal", differ.empty()},
          {"differences", differ},
          {"weights_hash", disturbed.result.value("weights_hash", Json())},
          {"faults", happened.size()},
          {"faults_left", disturbance.left()},
          {"step_seconds", disturbance.step_seconds()},
          {"held_up", times},
          {"timeline", timeline}};
}

Result<std::string> make_folder(const std::string& wanted) {
  if (!wanted.empty()) {
    std::error_code failed;
    std::filesystem::create_directories(wanted, failed);
    if (failed) return io_error(failed.value(), fmt::format("cannot make '{}'", wanted));
    return wanted;
  }
  std::string pattern = (std::filesystem::temp_directory_path() / "muster-verify-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) return io_error(errno, "cannot make a folder for runs");
  return pattern;
}

Status train_undisturbed(const Plan& plan, Children& children, bool quiet) {
  std::vector<std::string> words = {"train"};
  words.insert(words.end(), plan.job.begin(), plan.job.end());
  for (const auto& word : {std::string("--run-dir"), plan.folder + "/undisturbed",
                           std::string("--worker"), plan.worker}) {
    words.push_back(word);
  }
  if (quiet) words.emplace_back("--quiet");
  launch::Streams streams;
  streams.read_nothing = true;
  MUSTER_TRY(const pid_t pid, children.start(plan.self, words, streams));
  std::optional<launch::Ending> ending;
  while (!(ending = children.ended(pid))) {
    if (children.interrupted()) return Error(ErrorKind::kInterrupted, "told to stop");
    Children::pause_a_bit();
  }
  if (*ending == launch::Ending{}) return {};
  return Error(launch::kind_of(*ending).value_or(ErrorKind::kInternal),
               "the undisturbed run failed, so there is nothing to compare with");
}

}  // namespace

Outcome verify(const VerifyArguments& arguments, Context& context) {
  MUSTER_TRY(const auto sources, job_sources(arguments.job, arguments.set, context.files));
  MUSTER_TRY(const auto loaded, config::load_job(sources));
  Plan plan;
  MUSTER_TRY(plan.faults, launch::parse_faults(arguments.faults));
  MUSTER_TRY(plan.worker, find_worker(WorkerPlaces::of_process(arguments.worker)));
  MUSTER_TRY(plan.self, find_program("muster"));
  MUSTER_TRY(plan.folder, make_folder(arguments.folder));
  plan.workers = arguments.workers;
  plan.calm = arguments.calm;
  plan.lease = loaded.job.workers.lease;
  plan.lanes = static_cast<int>(loaded.job.lanes);
  plan.job = {arguments.job};
  // Both runs get the same job; every step has its line, and no slot is ever given up.
  auto sets = arguments.set;
  for (const char* const set : {"track.every=1 steps", "workers.restarts=100000"}) {
    sets.emplace_back(set);
  }
  for (const auto& set : sets) {
    plan.job.emplace_back("-s");
    plan.job.push_back(set);
  }
  const bool json = arguments.format == Format::kJson;
  // Inherited by the workers: fault_point.h.
  setenv("MUSTER_FAULTS", "1", 1);  // NOLINT(concurrency-mt-unsafe): there is one thread yet

  const launch::HeldSignals held;
  Children children(held);
  if (!json) context.console.line("undisturbed, on one worker:");
  MUSTER_RETURN_IF_ERROR(context.console.flush());
  MUSTER_RETURN_IF_ERROR(train_undisturbed(plan, children, json || arguments.quiet));
  MUSTER_TRY(const auto calm, outcome_of(plan.folder + "/undisturbed", context.files));
  launch::schedule_faults(plan.faults, arguments.seed, calm.result.value("steps", uint64_t{0}));

  if (!json) {
    context.console.line(fmt::format("\ndisturbed, on {} workers, {} faults, seed {}:",
                                     plan.workers, plan.faults.size(), arguments.seed));
  }
  MUSTER_RETURN_IF_ERROR(context.console.flush());
  // The timeline belongs to people.
  std::FILE* const nowhere = json ? std::fopen("/dev/null", "w") : nullptr;
  Console silent(nowhere, nowhere, {});
  Context quiet{json ? silent : context.console, context.files, context.clock, context.words};
  Disturbance disturbance(plan, children, quiet);
  auto code = disturbance.carry_out();
  if (nowhere != nullptr) std::fclose(nowhere);
  if (!code.ok()) return std::move(code).error();
  auto disturbed = outcome_of(disturbance.run(), context.files);
  if (*code != 0 || !disturbed.ok()) {
    return Error(ErrorKind::kInternal,
                 "the disturbed run did not come to its end (exit code {}); its logs are in {}",
                 *code, disturbance.run());
  }
  const auto differ = differences(calm, *disturbed);
  if (json) {
    context.console.line(
        report_json(differ, *disturbed, disturbance, disturbance.happened()).dump());
  } else {
    tell_times(disturbance, disturbance.happened(), context.console);
    context.console.line("");
    for (const auto& difference : differ) context.console.line("differs: " + difference);
    context.console.line(
        differ.empty()
            ? fmt::format("equal, bit for bit: weights {}, ledger {}, {} lines of metrics",
                          disturbed->result.value("weights_hash", ""),
                          disturbed->result.value("ledger", ""), disturbed->records.size())
            : fmt::format("NOT equal; both runs are in {}", plan.folder));
  }
  if (disturbance.left() > 0) {
    return Error(ErrorKind::kUsage,
                 "the job ended with {} of {} faults left; give it more steps, or fewer faults",
                 disturbance.left(), plan.faults.size());
  }
  if (!differ.empty()) return kDiffers;
  if (arguments.folder.empty()) {
    std::error_code ignored;
    std::filesystem::remove_all(plan.folder, ignored);
  }
  return 0;
}

}  // namespace muster::cli
