// The log: what happened, for the person who reads the run directory afterwards. Progress on the
// terminal and metrics are not log lines; see muster/track.
//
// There is no global logger: whoever writes gets a Log& from its owner. Safe for concurrent use.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "muster/base/result.h"

namespace spdlog {
class logger;
}

namespace muster {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

class Log {
 public:
  // Drops everything. For tests and tools that have nobody to tell.
  Log();
  // Appends to `path`, one line per message with UTC time and level; warnings and errors also go to
  // standard error if `mirror`.
  static Result<Log> to_file(const std::string& path, LogLevel least, bool mirror);
  static Log to_stderr(LogLevel least);
  ~Log();
  Log(Log&&) noexcept;
  Log& operator=(Log&&) noexcept;

  template <typename... Args>
  void debug(fmt::format_string<Args...> format, Args&&... args) {
    write(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) {
    write(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void warning(fmt::format_string<Args...> format, Args&&... args) {
    write(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void error(fmt::format_string<Args...> format, Args&&... args) {
    write(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
  }
  void write(LogLevel level, std::string_view message);

 private:
  std::shared_ptr<spdlog::logger> logger_;
};

}  // namespace muster
