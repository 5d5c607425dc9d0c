// Where progress is written, behind an interface so that tests see the screen.
#pragma once

#include <string_view>

namespace muster::track {

class Sink {
 public:
  virtual ~Sink() = default;
  // All of `text` at once, so that a terminal never shows half an update. Errors are dropped.
  virtual void write(std::string_view text) = 0;
  // False while much of what was written before is still on its way; then leave out what is not
  // needed.
  virtual bool keeps_up() const { return true; }
  // Whether a line can be redrawn.
  virtual bool is_terminal() const = 0;
  virtual bool has_colour() const = 0;
  // Columns, now: windows change.
  virtual int width() const = 0;
};

// A file descriptor, which stays the caller's.
class FdSink final : public Sink {
 public:
  // A terminal if it is one and `term` (the variable TERM) does not say that it cannot move its
  // cursor; in colour if `no_color` (the variable NO_COLOR) is empty as well.
  FdSink(int fd, std::string_view term, std::string_view no_color);
  // Standard output, with this process's environment. Call it before there are other threads.
  static FdSink standard_output();

  void write(std::string_view text) override;
  bool is_terminal() const override { return terminal_; }
  bool has_colour() const override { return colour_; }
  int width() const override;

 private:
  int fd_;
  bool terminal_;
  bool colour_;
};

}  // namespace muster::track
