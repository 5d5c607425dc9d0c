#include "tools/muster-launch/verify/training.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "muster/launch/restarts.h"
#include "muster/track/run_directory.h"

#include "tools/muster-launch/coordinator_file.h"
#include "tools/muster-launch/slots.h"

namespace muster::cli {
namespace {

constexpr int64_t kRestarts = 100000;  // no slot is ever given up

std::string run_name(const std::string& run) {
  std::error_code failed;
  return std::filesystem::canonical(run, failed).filename().string();
}

// `muster train --workers N`.
class LaunchedTraining final : public Training {
 public:
  LaunchedTraining(const DisturbPlan& plan, Children& children)
      : plan_(plan), children_(children) {}

  Status start(const launch::Streams& streams) override {
    std::vector<std::string> words = {"train"};
    words.insert(words.end(), plan_.job.begin(), plan_.job.end());
    words.insert(words.end(),
                 {"--run-dir", plan_.run, "--workers", fmt::format("{}", plan_.workers), "--quiet",
                  "--worker", plan_.worker, "--listen", plan_.host + ":0"});
    if (plan_.sites > 0) words.insert(words.end(), {"--sites", fmt::format("{}", plan_.sites)});
    MUSTER_TRY(launcher_, children_.start(plan_.muster, words, streams));
    return {};
  }
  std::optional<int> look() override {
    const auto ending = children_.ended(launcher_);
    return ending ? std::optional(exit_code_of(*ending)) : std::nullopt;
  }
  pid_t coordinator() const override { return launcher_; }
  bool restart_coordinator(double) override { return false; }
  bool is_child(pid_t) const override { return false; }

 private:
  const DisturbPlan& plan_;
  Children& children_;
  pid_t launcher_ = 0;
};

// `muster coordinator`, and workers that we start.
class OwnTraining final : public Training {
 public:
  OwnTraining(const DisturbPlan& plan, Children& children, FileSystem& files, const Clock& clock)
      : plan_(plan), children_(children), files_(files), clock_(clock), slots_(plan.workers) {
    restarts_.most = kRestarts;
    for (size_t i = 0; i < slots_.size(); ++i) {
      slots_[i].id = fmt::format("{}", i);
      if (plan.sites > 0) {
        slots_[i].site = site_of(static_cast<int64_t>(i), plan.workers, plan.sites);
      }
    }
  }
  ~OwnTraining() override {
    if (log_ >= 0) close(log_);
  }
  OwnTraining(const OwnTraining&) = delete;
  OwnTraining& operator=(const OwnTraining&) = delete;

  Status start(const launch::Streams& streams) override {
    streams_ = streams;
    // What it advises (how to join) is not for whoever watches a verification.
    const std::string path = plan_.run + ".coordinator.err";
    log_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log_ < 0) return io_error(errno, fmt::format("cannot make '{}'", path));
    std::vector<std::string> words = {"coordinator"};
    words.insert(words.end(), plan_.job.begin(), plan_.job.end());
    words.insert(words.end(), {"--run-dir", plan_.run, "--listen", plan_.host + ":0"});
    return start_coordinator(words);
  }

  std::optional<int> look() override {
    look_at_coordinator();
    if (address_.empty()) address_ = coordinator_address(plan_.run);
    if (address_.empty()) return exit_code_;
    for (auto& slot : slots_) look_at(slot);
    const bool running =
        std::ranges::any_of(slots_, [](const Slot& slot) { return slot.process != 0 || slot.due; });
    if (running && !exit_code_) return std::nullopt;
    // Nobody is left who could say anything new.
    if (coordinator_ != 0) children_.kill_now(std::exchange(coordinator_, 0));
    return exit_code_ ? *exit_code_ : is_finished() ? 0 : 1;
  }

  pid_t coordinator() const override { return coordinator_; }

  bool restart_coordinator(double seconds) override {
    if (coordinator_ == 0 || address_.empty()) return false;
    children_.kill_now(std::exchange(coordinator_, 0));
    back_at_ = clock_.now() + from_seconds(seconds);
    return true;
  }

  bool is_child(pid_t worker) const override {
    return std::ranges::find(slots_, worker, &Slot::process) != slots_.end();
  }

 private:
  struct Slot {
    std::string id;
    std::string site;   // empty: none
    pid_t process = 0;  // 0: none runs
    launch::SlotHistory history;
    std::optional<launch::Verdict> due = launch::Verdict{};  // a start that waits for its time,
    Moment due_at;                                           // this one
  };

  static Duration from_seconds(double seconds) {
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  }

  Status start_coordinator(const std::vector<std::string>& words) {
    launch::Streams streams = streams_;
    streams.err = log_;
    MUSTER_TRY(coordinator_, children_.start(plan_.muster, words, streams));
    return {};
  }

  void look_at_coordinator() {
    if (coordinator_ != 0) {
      const auto ending = children_.ended(coordinator_);
      if (!ending) return;
      coordinator_ = 0;
      exit_code_ = exit_code_of(*ending);  // nobody asked it to
    } else if (back_at_ && clock_.now() >= *back_at_) {
      back_at_.reset();
      if (!start_coordinator({"coordinator", plan_.run, "--listen", address_}).ok()) exit_code_ = 1;
    }
  }

  // By the rules of a launcher.
  void look_at(Slot& slot) {
    const Moment now = clock_.now();
    if (slot.process != 0) {
      const auto ending = children_.ended(slot.process);
      if (!ending) return;
      slot.process = 0;
      auto verdict = launch::after_end(now, slot.history, *ending, restarts_);
      if (verdict.then == launch::Then::kAgain) {
        slot.due_at = now + verdict.after;
        slot.due = std::move(verdict);
      } else if (verdict.then != launch::Then::kLeft) {
        exit_code_ = exit_code_of(*ending);
      }
    }
    if (!slot.due || now < slot.due_at || exit_code_) return;
    launch::note_restart(now, slot.history, *std::exchange(slot.due, {}), restarts_);
    const auto started =
        children_.start(plan_.worker, worker_words(plan_, address_, slot.id, slot.site), streams_);
    if (started.ok()) {
      slot.process = *started;
    } else {
      exit_code_ = static_cast<int>(started.error().kind());
    }
  }

  bool is_finished() const {
    const auto run = track::RunDirectory::open(files_, plan_.run);
    return run.ok() && run->read_status().state == track::RunState::kFinished;
  }

  const DisturbPlan& plan_;
  Children& children_;
  FileSystem& files_;
  const Clock& clock_;
  launch::RestartOptions restarts_;
  launch::Streams streams_;
  int log_ = -1;  // for what the coordinator writes to standard error
  std::string address_;
  pid_t coordinator_ = 0;
  std::optional<Moment> back_at_;  // when the next coordinator is due
  std::vector<Slot> slots_;
  std::optional<int> exit_code_;  // of what failed first
};

}  // namespace

std::unique_ptr<Training> make_training(const DisturbPlan& plan, Children& children,
                                        FileSystem& files, const Clock& clock) {
  if (launch::has_kind(plan.faults, launch::FaultKind::kRestart)) {
    return std::make_unique<OwnTraining>(plan, children, files, clock);
  }
  return std::make_unique<LaunchedTraining>(plan, children);
}

std::vector<std::string> worker_words(const DisturbPlan& plan, const std::string& coordinator,
                                      const std::string& id, const std::string& site) {
  std::vector<std::string> words = {
      "train", "--run", plan.run,     "--display",        "none",   "--coordinator", coordinator,
      "--id",  id,      "--job-name", run_name(plan.run), "--host", plan.host};
  if (!site.empty()) words.insert(words.end(), {"--site", site});
  const auto servers = servers_address(plan.run);
  if (!servers.empty()) words.insert(words.end(), {"--servers", servers});
  return words;
}

std::string coordinator_address(const std::string& run) {
  std::ifstream file(run + "/coordinator.json");
  const auto object = nlohmann::json::parse(file, nullptr, false);
  return object.is_object() ? object.value("address", "") : "";
}

}  // namespace muster::cli
