// Sends the copy of a run behind the training: a thread with a CopyWriter.
//
// Nothing here makes training wait, but for wait_until_claimed() when a run starts and
// wait_until_sent() when it ends. Checkpoints are read from the run directory, so a slow network
// needs no memory; those that are superseded before their turn are not sent. While the store is
// away the thread tries again; other errors (permissions) are told, and tried again after a while.
//
// Threads: one, "muster-copy". All functions are for the thread that owns the object, except
// changed(), which any may call.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "muster/base/clock.h"
#include "muster/base/file_system.h"
#include "muster/base/log.h"
#include "muster/base/result.h"
#include "muster/base/thread.h"
#include "muster/copy/copy_writer.h"
#include "muster/store/retry.h"

namespace muster::copy {

class CopySender {
 public:
  // The files and the log must outlive it.
  CopySender(std::unique_ptr<store::RetryStore> store, FileSystem& files, CopyOptions options,
             Log& log);
  // Gives up what is under way.
  ~CopySender();
  CopySender(const CopySender&) = delete;
  CopySender& operator=(const CopySender&) = delete;

  // What makes the metrics of the run directory continue those of the copy, if another directory
  // was recorded in before (CopyWriter::claim). Called by this object's thread. When this returns,
  // it is not being called any more, unless it was set again. Before begin().
  void set_take_over(CopyWriter::TakeOver take_over);
  // This process records from `step` on: claims the copy (CopyWriter::claim), and sends what the
  // copy has not.
  void begin(uint64_t roster, int64_t step);
  // It does not any more. What is being sent may still become part of the copy.
  void end();
  // A checkpoint was written.
  void changed();

  // Until the claim of begin() has succeeded, or failed. `keep_waiting` is called every 50 ms;
  // false ends it with an error of kind kInterrupted. May be empty.
  Status wait_until_claimed(const std::function<bool()>& keep_waiting = {});
  // Until the copy has all that the run directory has; also returns if another process has taken
  // over, or after end(). False: it has not after `limit`. An error is that of the last attempt,
  // and of a kind that no other attempt would change. `waiting` is called every 50 ms, with what
  // the store waits for, or "".
  Result<bool> wait_until_sent(std::optional<Duration> limit,
                               const std::function<void(const std::string& problem)>& waiting);

  // Something a person should know, once: another process has taken over, or why nothing is sent.
  std::optional<std::string> take_notice();
  const std::string& to() const { return writer_.options().to; }

 private:
  struct Task {
    uint64_t begun = 0;
    bool claim = false;  // first
    uint64_t roster = 0;
    int64_t step = 0;
  };
  void run();
  Result<CopyWriter::Outcome> work(const Task& task);
  bool is_idle() const { return !active_ || (!pending_ && !busy_); }

  const std::unique_ptr<store::RetryStore> store_;
  Log& log_;
  const SystemClock clock_;
  CopyWriter writer_;  // the thread's only

  std::mutex take_over_mutex_;  // held while it is called
  CopyWriter::TakeOver take_over_;

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  bool stop_ = false;
  bool active_ = false;   // between begin() and end(), and not taken over
  bool claimed_ = false;  // since begin()
  bool pending_ = false;  // something may have to be sent
  bool busy_ = false;     // the thread is sending
  uint64_t begun_ = 0;    // how often
  uint64_t roster_ = 0;
  int64_t step_ = 0;
  Moment next_attempt_;
  std::optional<Error> error_;  // of the last attempt, unless it is no longer of interest
  bool failed_ = false;         // the last attempt
  std::string told_;            // the last error that was told
  bool told_unremoved_ = false;
  std::optional<std::string> notice_;

  Thread thread_;  // last: it uses all of the above
};

}  // namespace muster::copy
