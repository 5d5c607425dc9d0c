#include "muster/base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace muster {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

void set_pattern(spdlog::sinks::sink& sink, const char* pattern) {
  sink.set_formatter(
      std::make_unique<spdlog::pattern_formatter>(pattern, spdlog::pattern_time_type::utc));
}

}  // namespace

Log::Log()
    : logger_(std::make_shared<spdlog::logger>("muster",
                                               std::make_shared<spdlog::sinks::null_sink_mt>())) {}
Log::~Log() = default;
Log::Log(Log&&) noexcept = default;
Log& Log::operator=(Log&&) noexcept = default;

Result<Log> Log::to_file(const std::string& path, LogLevel least, bool mirror) {
  Log log;
  try {
    auto file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
    set_pattern(*file, "%Y-%m-%dT%H:%M:%S.%eZ %-7l %v");
    std::vector<spdlog::sink_ptr> sinks{file};
    if (mirror) {
      auto screen = std::make_shared<spdlog::sinks::stderr_sink_mt>();
      set_pattern(*screen, "muster: %l: %v");
      screen->set_level(spdlog::level::warn);
      sinks.push_back(screen);
    }
    log.logger_ = std::make_shared<spdlog::logger>("muster", sinks.begin(), sinks.end());
  } catch (const spdlog::spdlog_ex& e) {
    return Error(ErrorKind::kIo, "cannot write the log: {}", e.what());
  }
  log.logger_->set_level(to_spdlog(least));
  // A log whose last lines are missing after a crash is of no use to anybody.
  log.logger_->flush_on(spdlog::level::info);
  return log;
}

Log Log::to_stderr(LogLevel least) {
  Log log;
  auto screen = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  set_pattern(*screen, "muster: %l: %v");
  log.logger_ = std::make_shared<spdlog::logger>("muster", screen);
  log.logger_->set_level(to_spdlog(least));
  return log;
}

void Log::write(LogLevel level, std::string_view message) {
  logger_->log(to_spdlog(level), "{}", message);
}

}  // namespace muster
