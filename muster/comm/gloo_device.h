// The part of Gloo that a process needs once: an address, and the thread that moves bytes for all
// groups made with it.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "muster/base/result.h"
#include "muster/comm/socket.h"

namespace gloo::transport {
class Context;
}

namespace muster::comm {

// Safe for concurrent use. Lives as long as a group that was made with it.
class GlooDevice {
 public:
  // `host` is this machine's address or name as its peers reach it. kMachine if there is no such
  // address here, or if the program would use another Gloo than the system's (the copy inside
  // libtorch; see cmake/FindLibtorch.cmake).
  static Result<std::shared_ptr<GlooDevice>> open(const std::string& host);
  ~GlooDevice();
  GlooDevice(const GlooDevice&) = delete;
  GlooDevice& operator=(const GlooDevice&) = delete;

  // Without a port.
  const SocketAddress& address() const { return address_; }

  // The rest is for gloo_wire.

  // Throws Gloo's exceptions.
  std::shared_ptr<gloo::transport::Context> create_context(int rank, int size);

  // While one lives, Gloo's thread looks around at least every 100 us, in a group of more than
  // kFewMembers proportionally less often (but every 5 ms): they may all be on one machine, whose
  // processors would do nothing else. Left alone it does so every 10 ms, and both connecting a pair
  // and closing it wait for that, one pair after the other.
  static constexpr int kFewMembers = 8;
  class Hurry {
   public:
    Hurry(GlooDevice& device, int members);
    ~Hurry();
    Hurry(const Hurry&) = delete;
    Hurry& operator=(const Hurry&) = delete;

   private:
    GlooDevice& device_;
    std::multiset<long>::iterator place_;
  };

 private:
  struct Impl;
  GlooDevice(SocketAddress address, std::unique_ptr<Impl> impl);
  const SocketAddress address_;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace muster::comm
