// The coordinator's part for parameter servers as a service: a ServerRegistry behind a Network.
// Whoever starts a job has one; servers and clients need only its address.
//
// A thread of its own, `ps-registry`. Safe for concurrent use.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "muster/base/clock.h"
#include "muster/base/result.h"
#include "muster/ps/net/control.h"
#include "muster/ps/server_map.h"
#include "muster/ps/server_registry.h"

namespace muster::ps {

struct RegistryServiceOptions {
  std::string address = "127.0.0.1:0";
  TablesSetup setup;
  RegistryOptions registry;  // its `copies` are those of `setup`
  // Which servers were removed, and why. Called by its thread; may be empty.
  // NOLINTNEXTLINE(readability-redundant-member-init): GCC wants it where others are initialized
  std::function<void(const std::string& what)> tell = {};
};

class RegistryService {
 public:
  // `clock` must outlive it.
  static Result<std::unique_ptr<RegistryService>> start(RegistryServiceOptions options,
                                                        const Clock& clock);
  ~RegistryService();

  // As others reach it: "127.0.0.1:40123".
  const std::string& address() const;
  // A server process has ended, says whoever started it. Nobody waits for its lease then.
  void ended(const std::string& id);
  ServerMap map() const;

 private:
  class Impl;
  explicit RegistryService(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster::ps
