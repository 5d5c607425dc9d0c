// A process that hangs: the threads that compute stand still, those that send heartbeats do not.
//
// This is what a deadlock, a stuck device or a file system that does not answer looks like from
// outside. The threads are stopped one by one (ptrace); they continue when the object is destroyed
// or this process ends. The process can be killed meanwhile.
//
// Used by one thread, the one that made it.
#pragma once

#include <sys/types.h>

#include <string_view>
#include <vector>

#include "muster/base/result.h"

#include "tools/muster-launch/verify/children.h"

namespace muster::cli {

// Whether a thread of a worker takes part in computing a step: the main thread, the lanes, the sum.
bool computes(std::string_view thread_name, bool is_main);

class HungProcess {
 public:
  // `child`: whether the process is a child of ours, whose end we hear of anyway. An error if it is
  // gone, or this system does not let us stop threads of others.
  static Result<HungProcess> make(pid_t process, bool child);
  HungProcess(HungProcess&& other) noexcept;
  HungProcess& operator=(HungProcess&& other) noexcept;
  ~HungProcess();

  pid_t process() const { return process_; }
  // Whether it has ended. Its parent does not hear of its end before this was called.
  bool ended();

 private:
  HungProcess(pid_t process, bool child) : process_(process), child_(child) {}
  void let_go();

  pid_t process_;
  bool child_;
  std::vector<pid_t> threads_;  // that are stopped
};

// kUsage, saying so, if this system does not let us stop threads of others.
Status check_tracing(Children& children);

}  // namespace muster::cli
