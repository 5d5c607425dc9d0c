// The processes that `muster verify` starts: none of them outlives it, however it ends.
//
// No threads: everything is looked at from one loop, every few milliseconds.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "muster/launch/process.h"

namespace muster::cli {

// As a shell says it: 128 plus the signal, if it was killed.
inline int exit_code_of(const launch::Ending& ending) {
  return ending.signal != 0 ? 128 + ending.signal : ending.exit_code;
}

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
  // Calls `look` again and again until it returns something. kInterrupted if somebody wants us to
  // stop first; stopped_by() then says by which signal.
  template <typename F>
  auto until(F look) -> Result<typename std::invoke_result_t<F>::value_type> {
    while (true) {
      if (auto found = look()) return *std::move(found);
      MUSTER_RETURN_IF_ERROR(check_signals());
      pause_a_bit();
    }
  }
  // Waits for its end, calling `meanwhile` again and again.
  template <typename F>
  Result<launch::Ending> wait(pid_t pid, F meanwhile) {
    return until([&] {
      auto ending = ended(pid);
      if (!ending) meanwhile();
      return ending;
    });
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
