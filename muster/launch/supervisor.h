// Keeps the workers of a job going: starts one in each slot, sees each end within a millisecond and
// says so, starts again (restarts.h), passes signals on, and ends everything when it is time.
//
//   SIGINT, SIGTERM, SIGHUP   stop the job: every worker gets SIGCONT and `stop_signal` (save,
//                             leave), nobody is started again; who is left after `patience` is
//                             killed
//   a SIGINT while stopping   kills at once
//   SIGTSTP, SIGCONT          stop and continue the workers, then us
//   SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH   to every worker, as they are
//
// A worker that the coordinator removed because it hangs or is faulty (kill_requests.h) is killed,
// and started again like any other that was killed. Workers removed for other reasons are left
// alone: one that was suspended or lost its connection rejoins by itself.
//
// One loop waits for signals (SIGCHLD is one), for a Waker and for the next moment when something
// is due; it never polls in vain. It prints nothing: whoever calls it does.
//
// Threads: none of its own. Used by the thread that made HeldSignals.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "muster/base/clock.h"
#include "muster/base/result.h"
#include "muster/launch/kill_requests.h"
#include "muster/launch/process.h"
#include "muster/launch/restarts.h"
#include "muster/launch/starter.h"

namespace muster::launch {

// One thing that went wrong: a worker, or another process of the job, that ended otherwise than it
// should.
struct WorkerFailure {
  static constexpr const char* kWorker = "worker";

  std::string id;
  Moment when;
  Ending ending;
  std::string reason;          // behind "worker ID ": how it ended, and what that led to
  std::string last_words;      // the last lines of its standard error; may be empty
  std::string role = kWorker;  // stands in front of the id
};

struct SupervisorOptions {
  std::vector<std::string> ids;  // one slot each
  RestartOptions restarts;
  // From the order to stop, or the end of the job, to SIGKILL. Everything is over 3 s after Ctrl-C.
  Duration patience = std::chrono::milliseconds(2700);
  int stop_signal = SIGINT;  // what workers are told with: SIGTERM only takes them out of the job
  // How long after SIGKILL to wait for the kernel to be done with them.
  Duration after_kill = std::chrono::milliseconds(200);

  // All are called in run()'s thread; empty ones are not.
  // A worker has ended. `process`: see Process::worker_process.
  std::function<void(const std::string& id, int64_t process, const std::string& how)> on_exit;
  // A worker failed, and is started again.
  std::function<void(const WorkerFailure& failure)> on_restart;
  // What happens, a sentence at a time, for the log.
  std::function<void(const std::string& sentence)> on_event;
  // Whether the job is finished: asked when a worker left with 0.
  std::function<bool()> finished;
  // Whether the workers have ended the job, finished or not: asked when a worker failed that would
  // be started again. There is nothing left to do for it, and its failure is that of the job.
  std::function<bool()> ended;
  // Whether the job makes sense with so many slots, others being given up. Empty: with one.
  std::function<bool(size_t slots)> can_go_on;
  // Workers that the coordinator removed because they hang, since it was last asked. Asked each
  // time round the loop; whoever adds one wakes the Waker.
  std::function<std::vector<KillRequest>()> take_kill_requests;
  // Called each time round the loop; returns when it wants to be called again at the latest.
  std::function<std::optional<Moment>(Moment now)> look;
  // A signal that the workers get and that stops or continues everything (SIGTSTP, SIGCONT): for
  // processes of the job that run() did not start.
  std::function<void(int number)> pass_on;
  // The failure of a process without which the job cannot continue, and which run() did not start.
  // It ends the job. Asked after each look().
  std::function<std::optional<WorkerFailure>()> take_failure;
};

// Makes a supervisor's loop go round. Safe for concurrent use.
class Waker {
 public:
  Waker();
  ~Waker();
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;
  void wake() const;
  // For the supervisor: readable after wake() until rest().
  int fd() const { return fd_; }
  void rest() const;

 private:
  int fd_;
};

struct JobEnd {
  bool finished = false;
  int stopped_by = 0;  // the signal that stopped the job; 0: none
  // What ended the job, or went wrong while it was being stopped.
  std::optional<WorkerFailure> failure;
  std::vector<std::string> killed;  // who did not leave in time
  bool hurried = false;             // and not because of the time, but of a second SIGINT
  size_t unfinished_leavers = 0;    // left as asked, one by one, until nobody was left
};

class Supervisor {
 public:
  // All must outlive it.
  Supervisor(SupervisorOptions options, Starter& starter, const HeldSignals& held,
             const Waker& waker, const Clock& clock);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Runs the job to its end. An error if the first round could not be started; nobody is left
  // behind then either. Once.
  Result<JobEnd> run();

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace muster::launch
