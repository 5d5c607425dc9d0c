// A coordinator in a process of its own, whose processor time and memory can be read.
#pragma once

#include <sys/types.h>

#include <string>

#include "muster/base/result.h"
#include "muster/roster/types.h"

namespace muster::roster {

class CoordinatorProcess {
 public:
  // Forks: to be called while there is one thread, and before anything of gRPC.
  // `show_events`: it writes what happens to standard error.
  static Result<CoordinatorProcess> start(const Options& options, bool show_events);
  CoordinatorProcess(CoordinatorProcess&& other) noexcept;
  CoordinatorProcess& operator=(CoordinatorProcess&&) = delete;
  // Ends it.
  ~CoordinatorProcess();

  const std::string& address() const { return address_; }
  double processor_seconds() const;  // used so far
  uint64_t memory_bytes() const;     // resident
  int threads() const;

 private:
  CoordinatorProcess(pid_t process, int pipe, std::string address)
      : process_(process), pipe_(pipe), address_(std::move(address)) {}
  pid_t process_ = 0;
  int pipe_ = -1;
  std::string address_;
};

}  // namespace muster::roster
