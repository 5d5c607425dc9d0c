// One line on a terminal's standard error, redrawn; nothing elsewhere.
#pragma once

#include <unistd.h>

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
  void clear() {
    if (std::exchange(drawn_, false)) fmt::print(stderr, "\r\x1b[K");
  }

 private:
  const bool shown_;
  bool drawn_ = false;
};

}  // namespace muster::cli
