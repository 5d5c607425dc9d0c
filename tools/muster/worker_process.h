// The worker is another program: it loads libtorch, this one does not. Here it is found and
// started; how it ended is put into words by muster/launch/ending.h.
//
// While a worker runs, this process is only its doorkeeper. The worker is in a process group of its
// own, so nothing typed at the terminal reaches it directly; what reaches us is passed on, once:
//
//   SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH   as they are, each time
//   SIGTSTP (Ctrl-Z)    stops the worker, then us, so that the shell takes over
//   SIGCONT (fg, bg)    continues the worker
//
// Signals that were ignored when we started (nohup, a background job of a script) stay ignored. If
// we are killed, the worker sees it by MUSTER_LAUNCHER_PID and leaves.
//
// Must be called while the process has one thread: signals are waited for, not handled.
#pragma once

#include <string>
#include <vector>

#include "muster/base/result.h"
#include "muster/launch/ending.h"

namespace muster::cli {

// Where to look for muster-worker, in this order. Empty: not there.
struct WorkerPlaces {
  std::string given;        // --worker
  std::string environment;  // MUSTER_WORKER
  std::string own_folder;   // of the muster executable
  std::string path;         // PATH

  static WorkerPlaces of_process(std::string given);
};

// A program of ours that is beside this one or on PATH.
Result<std::string> find_program(const std::string& name);

// The worker to start. A place that was named but has no program is an error, not skipped.
Result<std::string> find_worker(const WorkerPlaces& places);

// How a worker ended, and what it wrote.
struct WorkerEnd : launch::Ending {
  std::string output;  // to standard output
  std::string errors;  // to standard error

  // Of what it wrote to standard error.
  std::string last_line() const;
  // The same without our name in front, in which it speaks.
  std::string last_message() const;
};

// Runs the program to its end with our standard streams.
Result<launch::Ending> run_worker(const std::string& program,
                                  const std::vector<std::string>& arguments);

// The same for a program that answers a question: it reads nothing, and what it writes is kept.
Result<WorkerEnd> capture_worker(const std::string& program,
                                 const std::vector<std::string>& arguments);

}  // namespace muster::cli
