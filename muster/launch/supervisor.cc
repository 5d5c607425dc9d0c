#include "muster/launch/supervisor.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "muster/base/one_signal.h"

namespace muster::launch {
namespace {

constexpr int kLastWords = 20;

struct Slot {
  std::string id;
  SlotHistory history;
  std::unique_ptr<Process> process;      // null: none runs
  Moment spawned;                        // before that process was started
  std::optional<Verdict> due;            // a restart that waits for its time,
  Moment due_at;                         // this one
  std::optional<WorkerFailure> failure;  // the first since it last worked for a while
  bool given_up = false;
};

}  // namespace

class Supervisor::Loop {
 public:
  Loop(SupervisorOptions options, Starter& starter, const HeldSignals& held, const Waker& waker,
       const Clock& clock)
      : options_(std::move(options)), starter_(starter), waker_(waker), clock_(clock) {
    signals_ = signalfd(-1, &held.set(), SFD_CLOEXEC | SFD_NONBLOCK);
    MUSTER_CHECK(signals_ >= 0, "no file descriptor is left for signals");
    for (auto& id : options_.ids) slots_.emplace_back().id = id;
  }
  ~Loop() { ::close(signals_); }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  Result<JobEnd> run() {
    for (auto& slot : slots_) {
      auto started = start(slot);
      if (started.ok()) continue;
      end_all();
      return std::move(started).error();
    }
    while (!over()) {
      wait(next_moment());
      hear_signals();
      // Before bury() and start_due(): a report must not meet the replacement of the process that
      // it is about.
      kill_removed();
      bury();
      const Moment now = clock_.now();
      // The news that the job is finished may come a moment after the worker that brought it.
      if (!stopping_ && end_.unfinished_leavers > 0 && finished()) finish();
      start_due(now);
      keep_alive(now);
      if (kill_at_ && now >= *kill_at_) kill_rest();
    }
    end_.finished = end_.finished || finished();
    return std::move(end_);
  }

 private:
  // ---- Waiting.

  bool over() const {
    const bool nobody = std::ranges::none_of(
        slots_, [](const Slot& slot) { return slot.process != nullptr || slot.due.has_value(); });
    return nobody || (abandon_at_ && clock_.now() >= *abandon_at_);
  }

  std::optional<Moment> next_moment() {
    std::optional<Moment> next;
    // First: what it finds out may end the job.
    if (options_.look) next = options_.look(clock_.now());
    hear_failure();
    const auto consider = [&](std::optional<Moment> moment) {
      if (moment && (!next || *moment < *next)) next = moment;
    };
    for (const auto& slot : slots_) {
      if (slot.due) consider(slot.due_at);
    }
    if (wants_keepalive()) consider(keepalive_at_);
    consider(kill_at_);
    consider(abandon_at_);
    return next;
  }

  void wait(std::optional<Moment> until) const {
    std::array<pollfd, 2> polled = {pollfd{signals_, POLLIN, 0}, pollfd{waker_.fd(), POLLIN, 0}};
    timespec timeout{};
    if (until) {
      const auto left = std::max(Duration{0}, *until - clock_.now());
      const auto whole = std::chrono::floor<std::chrono::seconds>(left);
      timeout.tv_sec = whole.count();
      timeout.tv_nsec = (left - whole).count();
    }
    (void)ppoll(polled.data(), polled.size(), until ? &timeout : nullptr, nullptr);
    waker_.rest();
  }

  // ---- Signals.

  void hear_signals() {
    signalfd_siginfo info{};
    while (::read(signals_, &info, sizeof(info)) == sizeof(info)) {
      hear(static_cast<int>(info.ssi_signo));
    }
  }

  void hear(int number) {
    switch (number) {
      case SIGCHLD:
        break;
      case SIGINT:
      case SIGTERM:
      case SIGHUP:
        if (asked_ && clock_.now() - *asked_ < kOneSignal) break;
        if (stopping_ && number == SIGINT && (asked_ || end_.finished)) {
          say("SIGINT while stopping: whoever is left is killed");
          end_.hurried = true;
          kill_rest();
        }
        asked_ = clock_.now();
        if (stopping_) break;
        end_.stopped_by = number;
        say(fmt::format("{}: the job is being stopped", signal_name(number)));
        stop();
        break;
      case SIGTSTP:
        if (stopping_) break;  // its end is near, and must not wait for `fg`
        send_all(SIGTSTP);
        if (options_.pass_on) options_.pass_on(SIGTSTP);
        raise(SIGSTOP);  // returns when somebody continues us; SIGCONT then waits in the queue
        break;
      default:
        send_all(number);
        if (number == SIGCONT && options_.pass_on) options_.pass_on(SIGCONT);
    }
  }

  void send_all(int number) {
    for (auto& slot : slots_) {
      if (slot.process) slot.process->send(number);
    }
  }

  // ---- Starting.

  Status start(Slot& slot) {
    // Before it is there: it may hang, and be removed, before this thread continues.
    const Moment begun = clock_.now();
    auto process = starter_.start(slot.id);
    if (!process.ok()) return std::move(process).error();
    slot.process = *std::move(process);
    slot.spawned = begun;
    if (slot.history.restarts.empty()) slot.history.started = clock_.now();
    say(fmt::format("worker {} is started: process {}", slot.id, slot.process->pid()));
    return {};
  }

  void start_due(Moment now) {
    for (auto& slot : slots_) {
      if (!slot.due || now < slot.due_at) continue;
      note_restart(now, slot.history, *std::exchange(slot.due, {}), options_.restarts);
      const auto started = start(slot);
      if (!started.ok()) {
        // Like a worker that ended at once.
        const auto kind = static_cast<int>(started.error().kind());
        judge(slot, Ending{kind, 0}, started.error().message());
      }
    }
  }

  // ---- Keepalives.

  bool wants_keepalive() const {
    return std::ranges::any_of(
        slots_, [](const Slot& slot) { return slot.process && slot.process->wants_keepalive(); });
  }

  void keep_alive(Moment now) {
    if (now < keepalive_at_) return;
    keepalive_at_ = now + kKeepalive;
    for (auto& slot : slots_) {
      if (slot.process && slot.process->wants_keepalive()) slot.process->keep_alive();
    }
  }

  // ---- Removed workers whose processes must end.

  void kill_removed() {
    if (!options_.take_kill_requests) return;
    for (const auto& removed : options_.take_kill_requests()) {
      const auto slot =
          std::ranges::find_if(slots_, [&](const Slot& one) { return is_of(one, removed); });
      if (slot == slots_.end()) continue;  // somebody else started it, or it has ended meanwhile
      say(fmt::format("worker {} is killed: the coordinator removed it because {}", removed.id,
                      removed.reason));
      slot->process->send(SIGKILL);
    }
  }

  // The pid of a worker on another machine is not known here; there the time decides.
  static bool is_of(const Slot& slot, const KillRequest& removed) {
    if (slot.id != removed.id || !slot.process || removed.when < slot.spawned) return false;
    const int64_t process = slot.process->worker_process();
    return process == 0 || process == removed.process;
  }

  // ---- Ends.

  void bury() {
    for (auto& slot : slots_) {
      if (!slot.process) continue;
      const auto seen = reap(slot.process->pid());
      if (!seen) continue;
      const Ending ending = slot.process->ending(*seen);
      const int64_t process = slot.process->worker_process();
      slot.process.reset();
      if (options_.on_exit) options_.on_exit(slot.id, process, ending_text(ending));
      judge(slot, ending, starter_.last_words(slot.id, kLastWords));
    }
  }

  void judge(Slot& slot, const Ending& ending, std::string last_words) {
    const Moment now = clock_.now();
    Verdict verdict = after_end(now, slot.history, ending, options_.restarts);
    if (verdict.then == Then::kAgain && !finished() && options_.ended && options_.ended()) {
      verdict = {Then::kEndJob, Duration{0}, 0, 0, ending_text(ending)};
    }
    const bool failed = verdict.then == Then::kAgain || verdict.then == Then::kGiveUp ||
                        verdict.then == Then::kEndJob;
    WorkerFailure failure{slot.id, now, ending, verdict.reason, std::move(last_words)};
    if (stopping_) {
      failure.reason = ending_text(ending);
      say(fmt::format("worker {} {}", slot.id, failure.reason));
      // Whoever was killed or caught before it could listen did what it was told.
      if (failed && ending.signal == 0 && !end_.failure) end_.failure = std::move(failure);
      return;
    }
    say(fmt::format("worker {} {}", slot.id, verdict.reason));
    if (failed && (!slot.failure || verdict.in_a_row == 1)) slot.failure = failure;
    switch (verdict.then) {
      case Then::kAgain:
        if (options_.on_restart) options_.on_restart(failure);
        slot.due_at = now + verdict.after;
        slot.due = std::move(verdict);
        break;
      case Then::kLeft:
        if (finished()) {
          finish();
        } else {
          ++end_.unfinished_leavers;
        }
        break;
      case Then::kStopped:
        end_.stopped_by = SIGINT;
        stop();
        break;
      case Then::kGiveUp:
        give_up(slot);
        break;
      case Then::kEndJob:
        end_.failure = std::move(failure);
        stop();
        break;
    }
  }

  // Of a process that is not in a slot.
  void hear_failure() {
    if (stopping_ || !options_.take_failure) return;
    auto failure = options_.take_failure();
    if (!failure) return;
    say(fmt::format("{} {} has failed, and the job needs it", failure->role, failure->id));
    end_.failure = std::move(failure);
    stop();
  }

  // A slot is lost; the job goes on with the others if there are enough.
  void give_up(Slot& lost) {
    lost.given_up = true;
    const auto left = static_cast<size_t>(std::ranges::count_if(
        slots_, [](const Slot& slot) { return slot.process != nullptr || slot.due.has_value(); }));
    const bool enough = options_.can_go_on ? options_.can_go_on(left) : left > 0;
    if (enough && left > 0) return;
    // What came first says more than what came last.
    for (const auto& slot : slots_) {
      if (!slot.given_up) continue;
      if (!end_.failure || slot.failure->when < end_.failure->when) end_.failure = slot.failure;
    }
    stop();
  }

  // ---- The end of the job.

  bool finished() const { return options_.finished && options_.finished(); }

  void finish() {
    end_.finished = true;
    say("the job is finished");
    close_down();
  }

  void stop() {
    close_down();
    send_all(SIGCONT);
    send_all(options_.stop_signal);
  }

  void close_down() {
    stopping_ = true;
    for (auto& slot : slots_) slot.due.reset();
    if (!kill_at_) kill_at_ = clock_.now() + options_.patience;
  }

  void kill_rest() {
    if (abandon_at_) return;
    kill_at_.reset();
    abandon_at_ = clock_.now() + options_.after_kill;
    for (auto& slot : slots_) {
      if (!slot.process) continue;
      say(fmt::format("worker {} is killed", slot.id));
      end_.killed.push_back(slot.id);
      slot.process->send(SIGKILL);
    }
  }

  // The first round did not come about.
  void end_all() {
    close_down();
    kill_rest();
    while (!over()) {
      wait(abandon_at_);
      hear_signals();
      bury();
    }
  }

  void say(const std::string& sentence) const {
    if (options_.on_event) options_.on_event(sentence);
  }

  const SupervisorOptions options_;
  Starter& starter_;
  const Waker& waker_;
  const Clock& clock_;
  int signals_ = -1;
  std::vector<Slot> slots_;
  Moment keepalive_at_;               // when the next keepalives are due
  bool stopping_ = false;             // nobody is started any more
  std::optional<Moment> asked_;       // when a person or a scheduler said so, the last time
  std::optional<Moment> kill_at_;     // with stopping_, until it was done
  std::optional<Moment> abandon_at_;  // after that
  JobEnd end_;
};

Waker::Waker() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  MUSTER_CHECK(fd_ >= 0, "no file descriptor is left");
}
Waker::~Waker() { ::close(fd_); }

void Waker::wake() const {
  const uint64_t one = 1;
  (void)!::write(fd_, &one, sizeof(one));
}

void Waker::rest() const {
  uint64_t count = 0;
  (void)!::read(fd_, &count, sizeof(count));
}

Supervisor::Supervisor(SupervisorOptions options, Starter& starter, const HeldSignals& held,
                       const Waker& waker, const Clock& clock)
    : loop_(std::make_unique<Loop>(std::move(options), starter, held, waker, clock)) {}
Supervisor::~Supervisor() = default;

Result<JobEnd> Supervisor::run() { return loop_->run(); }

}  // namespace muster::launch
