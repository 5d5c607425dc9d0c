#include "muster/base/symbol_origin.h"

#include <dlfcn.h>

namespace muster {

Result<std::string> symbol_origin(const void* address) {
  Dl_info info;
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr)
    return Error(ErrorKind::kInternal, "address {} is in no program or library", address);
  return std::string(info.dli_fname);
}

Status check_symbol_origin(std::string_view symbol, const void* address, std::string_view library) {
  MUSTER_TRY(const std::string path, symbol_origin(address));
  const std::string name = path.substr(path.find_last_of('/') + 1);
  if (name.starts_with(library)) return {};
  return Error(ErrorKind::kMachine,
               "{} comes from '{}' instead of {}: link {} ahead of every library that carries a "
               "copy of it, and preload none",
               symbol, path, library, library);
}

}  // namespace muster
