// Errors as values.
//
// A function that can fail for a reason outside the program (a file, a job, a machine, a peer)
// returns Result<T>, or Status when there is nothing else to return. The error carries what kind of
// thing went wrong, which decides the exit code, and a sentence for a person; each layer may put
// its own sentence in front with `context`, so that the command line can print one line that says
// what happened, where, and what to do. A mistake in the program itself is not an Error: see
// check.h.
//
//   Result<Dataset> open(const std::string& path) {
//     MUSTER_TRY(auto bytes, read_file(path));
//     if (bytes.size() < 8) return Error(ErrorKind::kData, "'{}' is too short to be an IDX file",
//     path);
//     ...
//   }
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "muster/base/check.h"

namespace muster {

// What went wrong, as far as a caller or a script would act differently. The numbers are the exit
// codes of every program here, documented in docs/exit-codes.md: never renumber.
enum class ErrorKind {
  kInternal = 1,      // a bug in Muster, or a library failed in a way we did not foresee
  kUsage = 2,         // the command line is wrong
  kJob = 3,           // the job file, or what it asks for, is wrong
  kData = 4,          // the data set is wrong
  kIo = 5,            // the disk, the network or permissions
  kCheckpoint = 6,    // a checkpoint is missing, damaged or of another model
  kNumerics = 7,      // a loss or gradient is not finite
  kMachine = 8,       // this machine cannot do what is asked
  kRefused = 10,      // the coordinator does not accept this worker (9: runs differ, `verify`)
  kInterrupted = 130  // the person said stop (Ctrl-C); 143 for SIGTERM is decided by the program
};

// The name used in JSON output: "job", "data", ...
std::string_view error_kind_name(ErrorKind kind);

class [[nodiscard]] Error {
 public:
  template <typename... Args>
  explicit Error(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args)
      : kind_(kind), message_(fmt::format(format, std::forward<Args>(args)...)) {}

  ErrorKind kind() const { return kind_; }
  const std::string& message() const { return message_; }

  // The same error with "`what`: " in front.
  template <typename... Args>
  Error context(fmt::format_string<Args...> format, Args&&... args) && {
    message_ = fmt::format(format, std::forward<Args>(args)...) + ": " + message_;
    return std::move(*this);
  }

 private:
  ErrorKind kind_;
  std::string message_;
};

// Like Error(kIo, ...) with the meaning of `errno_value` at the end: ": No space left on device".
Error io_error(int errno_value, std::string_view what);

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit on purpose
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // The value; it must be there (ok()).
  T& value() & { return checked(), std::get<0>(state_); }
  const T& value() const& { return checked(), std::get<0>(state_); }
  // By value, so that `for (auto& x : *f())` does not look into a Result that is gone.
  T value() && { return checked(), std::get<0>(std::move(state_)); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T operator*() && { return std::move(*this).value(); }

  // The error; it must be there (!ok()).
  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  void checked() const {
    if (!ok()) check_failed("Result::value()", __FILE__, __LINE__, std::get<1>(state_).message());
  }
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit on purpose

  bool ok() const { return !error_; }
  explicit operator bool() const { return ok(); }
  const Error& error() const& { return *error_; }
  Error&& error() && { return *std::move(error_); }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

// MUSTER_TRY(auto x, expression): x is the value, or this function returns the error.
// MUSTER_RETURN_IF_ERROR(expression): for a Status.
#define MUSTER_CONCAT_(a, b) a##b
#define MUSTER_CONCAT(a, b) MUSTER_CONCAT_(a, b)
#define MUSTER_TRY_(tmp, declaration, ...)      \
  auto tmp = (__VA_ARGS__);                     \
  if (!tmp.ok()) return std::move(tmp).error(); \
  declaration = std::move(tmp).value()
#define MUSTER_TRY(declaration, ...) \
  MUSTER_TRY_(MUSTER_CONCAT(muster_try_, __LINE__), declaration, __VA_ARGS__)
#define MUSTER_RETURN_IF_ERROR(...)                                                     \
  do {                                                                                  \
    if (auto status_ = (__VA_ARGS__); !status_.ok()) return std::move(status_).error(); \
  } while (false)

}  // namespace muster
