// What happens to a run besides training: one JSON object per line in events.jsonl, for those who
// draw a picture of it afterwards (`muster report`). The launcher writes them, `muster coordinator`
// does, and for a job of one worker `muster`, or the program if it trains without `muster`
// (docs/python.md); other workers do not. Each has "time", in seconds since 1970, and "event":
//
//   start    somebody begins to train, or goes on: "command", "workers" (0: they will join), and
//            of its machine and program "host", "system", "processor", "cores", "memory",
//            "version", "commit"
//   roster   a roster was issued: "roster" (its number for people), "step" (about), "reason",
//            "waiting", "removed" (ids) and "members": {id: {"lanes": "0-3", "host": ...}}. Only
//            what differs from the roster before; with "all": true everything
//   gone     a member is no longer one: "worker", "cause" (roster/types.h), "reason"
//   exit     a worker process of this launcher has ended: "worker", "how"
//   server   of parameter servers: "text"
//   note     whatever else: "text"
//   end      that attempt is over: "finished", and "stopped_by" (a signal) or "reason". Missing if
//            whoever would have written it was killed
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "muster/base/clock.h"
#include "muster/base/file_system.h"
#include "muster/base/result.h"

namespace muster::track {

// Safe for concurrent use.
class RunEventLog {
 public:
  // Creates the file or goes on at its end.
  static Result<std::unique_ptr<RunEventLog>> open(FileSystem& files, const std::string& path,
                                                   const Clock& clock);
  // One that writes nothing, for a run whose file cannot be opened: training does not depend on it.
  static std::unique_ptr<RunEventLog> discard(const Clock& clock);
  // `event` is an object with "event". What cannot be written (a full disk) is missing in the file;
  // later events are written again.
  void write(const nlohmann::ordered_json& event);
  // Nothing is written after it: when a coordinator ends, workers seem to be lost.
  void write_last(const nlohmann::ordered_json& event);

 private:
  RunEventLog(std::unique_ptr<WritableFile> file, const Clock& clock)
      : file_(std::move(file)), clock_(clock) {}
  std::mutex mutex_;
  std::unique_ptr<WritableFile> file_;  // guarded by mutex_; null after the last event
  bool torn_ = false;                   // guarded by mutex_; the last line may be incomplete
  const Clock& clock_;
};

struct RunEvent {
  struct Member {
    std::string lanes;
    std::string host;
    bool operator==(const Member&) const = default;
  };
  double time = 0;  // is_plausible_time
  std::string kind;
  int64_t step = -1;     // of roster
  int64_t roster = 0;    // of roster
  bool waiting = false;  // of roster
  std::string worker;    // of gone and exit
  std::string cause;     // of gone
  // reason, how or text, whichever the kind has.
  std::string text;
  // Of roster: the members that differ from the roster before, and those that are in it no longer.
  // Not all of them: a run with hundreds of workers may have tens of thousands of rosters.
  std::map<std::string, Member> members;
  std::vector<std::string> removed;
  bool all = false;       // the rosters before do not matter: `members` are all
  nlohmann::json fields;  // of start and end: as it was written
};

// Whether seconds since 1970 are a time before the year 2200. Others would not fit into what counts
// nanoseconds.
bool is_plausible_time(double seconds);

// In the order in which they were written. None if there is no such file; what is no event is left
// out, and what is missing in one is at its default.
Result<std::vector<RunEvent>> read_run_events(FileSystem& files, const std::string& path);

// Makes `members` those of this roster from those of the one before.
void apply_roster(const RunEvent& event, std::map<std::string, RunEvent::Member>& members);

}  // namespace muster::track
