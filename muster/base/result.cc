#include "muster/base/result.h"

#include <system_error>

namespace muster {

std::string_view error_kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInternal:
      return "internal";
    case ErrorKind::kUsage:
      return "usage";
    case ErrorKind::kJob:
      return "job";
    case ErrorKind::kData:
      return "data";
    case ErrorKind::kIo:
      return "io";
    case ErrorKind::kCheckpoint:
      return "checkpoint";
    case ErrorKind::kNumerics:
      return "numerics";
    case ErrorKind::kMachine:
      return "machine";
    case ErrorKind::kRefused:
      return "refused";
    case ErrorKind::kInterrupted:
      return "interrupted";
  }
  return "unknown";
}

Error io_error(int errno_value, std::string_view what) {
  return Error(ErrorKind::kIo, "{}: {}", what, std::generic_category().message(errno_value));
}

}  // namespace muster
