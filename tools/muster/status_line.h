// One line on a terminal's standard error, redrawn; nothing elsewhere.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace muster::cli {

class StatusLine {
 public:
  StatusLine() : shown_(isatty(STDERR_FILENO) != 0) {}
  ~StatusLine() { clear(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  bool shown() const { return shown_; }
  void show(const std::string& text) {
    if (!shown_) return;
    fmt::print(stderr, "\r{}\x1b[K", text);
    std::fflush(stderr);
    drawn_ = true;
  }
  // The same, at most five times a second; text() is called only then.
  template <typename Text>
  void show_now_and_then(const Text& text) {
    const auto now = std::chrono::steady_clock::now();
    if (now - shown_last_ < std::chrono::milliseconds(200)) return;
    shown_last_ = now;
    show(text());
  }
  void clear() {
    if (std::exchange(drawn_, false)) fmt::print(stderr, "\r\x1b[K");
  }

 private:
  const bool shown_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point shown_last_;
};

}  // namespace muster::cli
