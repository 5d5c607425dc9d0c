// The processes that `muster verify` starts: none of them outlives it, however it ends.
//
// No threads: everything is looked at from one loop, every few milliseconds.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "muster/launch/process.h"

namespace muster::cli {

class Children {
 public:
  explicit Children(const launch::HeldSignals& held) : held_(held) {}
  // Tells those that still run to stop, because they have children of their own to take along, and
  // kills who has not gone after as long as a job may take to stop.
  ~Children();
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  // It reads nothing, whatever `streams` says.
  Result<pid_t> start(const std::string& program, const std::vector<std::string>& arguments,
                      launch::Streams streams = {});
  // Kills it and waits for its end: it says nothing more. For one without children of its own.
  void kill_now(pid_t pid);
  // How it ended, if it has.
  std::optional<launch::Ending> ended(pid_t pid);
  // Waits for its end, calling `meanwhile` again and again. kInterrupted if somebody wants us to
  // stop first; stopped_by() then says by which signal.
  template <typename F>
  Result<launch::Ending> wait(pid_t pid, F meanwhile) {
    while (true) {
      if (const auto ending = ended(pid)) return *ending;
      MUSTER_RETURN_IF_ERROR(check_signals());
      meanwhile();
      pause_a_bit();
    }
  }
  int stopped_by() const { return stopped_by_; }

 private:
  void reap_all();
  Status check_signals();
  static void pause_a_bit();

  const launch::HeldSignals& held_;
  std::set<pid_t> running_;
  std::map<pid_t, launch::Ending> endings_;
  int stopped_by_ = 0;
};

}  // namespace muster::cli
