// A sink whose writer never waits.
//
// A terminal that is stopped (Ctrl-S, a scrolled-back tmux) and a pipe whose reader is busy block
// whoever writes to them. That must not be the thread that trains, so what it writes is put into a
// queue, and a thread called `screen` writes it.
//
// Nothing is dropped here: what is in the queue gets out whole and in order, however late. So that
// the queue stays short, whoever writes what is only true for a moment (a progress line) asks
// keeps_up() before and leaves it out while kBacklog of older text waits. What must be seen (an
// evaluation, the result) is written all the same; there is little of it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>

#include "muster/base/thread.h"
#include "muster/track/sink.h"

namespace muster::track {

// For one thread, besides its own.
class BackgroundSink final : public Sink {
 public:
  // Enough that a reader who is only a moment late misses nothing.
  static constexpr size_t kBacklog = 16 << 10;

  // `sink` must outlive it, and nobody else may write to it meanwhile.
  explicit BackgroundSink(Sink& sink);
  // Waits until all is written: the result of a run is not lost because its reader is slow.
  ~BackgroundSink() override;
  BackgroundSink(const BackgroundSink&) = delete;
  BackgroundSink& operator=(const BackgroundSink&) = delete;

  void write(std::string_view text) override;
  bool keeps_up() const override;
  // These only ask the system, which answers at once even if the terminal is stopped.
  bool is_terminal() const override { return sink_.is_terminal(); }
  bool has_colour() const override { return sink_.has_colour(); }
  int width() const override { return sink_.width(); }

 private:
  void run();

  Sink& sink_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string waiting_;  // guarded by mutex_
  size_t writing_ = 0;   // guarded by mutex_; bytes that the thread is about to write
  bool stop_ = false;    // guarded by mutex_
  Thread thread_;        // last: it uses all of the above
};

}  // namespace muster::track
