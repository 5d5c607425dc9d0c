#include "muster/track/background_sink.h"

#include <utility>

namespace muster::track {

BackgroundSink::BackgroundSink(Sink& sink) : sink_(sink), thread_("screen", [this] { run(); }) {}

BackgroundSink::~BackgroundSink() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void BackgroundSink::write(std::string_view text) {
  {
    const std::lock_guard lock(mutex_);
    waiting_ += text;
  }
  changed_.notify_one();
}

bool BackgroundSink::keeps_up() const {
  const std::lock_guard lock(mutex_);
  return waiting_.size() + writing_ < kBacklog;
}

void BackgroundSink::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || !waiting_.empty(); });
    if (waiting_.empty()) return;  // what was written before the stop still goes out
    const std::string text = std::exchange(waiting_, {});
    writing_ = text.size();
    lock.unlock();
    sink_.write(text);
    lock.lock();
    writing_ = 0;
  }
}

}  // namespace muster::track
