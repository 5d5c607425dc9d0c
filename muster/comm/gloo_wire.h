// One group's Gloo connections, with the two things added that Gloo lacks: every wait can be ended
// from another thread, and connecting as well.
//
// Gloo (of 2022, as Debian 12 has it) in short. A context has a pair, one connection, for each
// peer that it is connected to. A message goes from an "unbound buffer" of the sender to one of the
// receiver that names the same id (Gloo: slot); messages of one id and pair arrive in order. A
// receive tells the sender that it is ready; the data travels only then, so nothing is ever
// buffered on the way. Traps:
// - A message longer than its receive ends the process (an exception on Gloo's own thread). So
//   ids are made from all that both sides must agree on; what disagrees does not meet.
// - When a connection breaks, operations that wait to begin are told, those in the middle of a
//   message are not. When a wait times out, all connections of the context close.
// - A buffer that is destroyed while one of its messages is on the way leaves the pair stuck. So
//   they live as long as the group, or until the operation is done, or all is closed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "muster/base/clock.h"
#include "muster/comm/gloo_device.h"

namespace gloo::transport {
class Context;
class UnboundBuffer;
}  // namespace gloo::transport

namespace muster::comm {

class GlooWire {
 public:
  GlooWire(std::shared_ptr<GlooDevice> device, int rank, int size);
  ~GlooWire();
  GlooWire(const GlooWire&) = delete;
  GlooWire& operator=(const GlooWire&) = delete;

  // Begins to listen for these peers; the others cannot be connected to. Once. Throws Gloo's
  // exceptions.
  void listen(const std::vector<int>& peers);
  // Where `peer`, one of those, finds us: opaque bytes.
  std::string address_for(int peer) const;
  // Connects to `peer`, which does the same. Blocks until done or close(). Throws.
  void connect(int peer, const std::string& address);

  // Closes all connections and ends every wait, now and later. When it returns, Gloo touches no
  // memory of any operation any more. From any thread.
  void close();

  // A place to send from and to receive into. Any memory will do: Gloo's buffer here spans the
  // whole address space, so that nothing needs to be made or registered for each operation.
  //
  // Sends and receives are counted, not told apart: after two receives, two waits. Waits are for
  // one thread at a time.
  class Endpoint {
   public:
    explicit Endpoint(GlooWire& wire);
    ~Endpoint();
    Endpoint(const Endpoint&) = delete;
    Endpoint& operator=(const Endpoint&) = delete;

    enum class Outcome {
      kDone,
      kLate,    // and everything is closed
      kClosed,  // by close()
      kBroken   // by a peer; see error()
    };
    // Both return at once. False: broken; see error().
    bool send(int peer, uint64_t id, const void* data, size_t bytes);
    bool recv(int peer, uint64_t id, void* data, size_t bytes);
    Outcome wait_send(Moment deadline);
    Outcome wait_recv(Moment deadline);
    // Gloo's words.
    const std::string& error() const { return error_; }

   private:
    friend class GlooWire;
    template <typename Wait>
    Outcome wait(Moment deadline, Wait wait);

    GlooWire& wire_;
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
    std::list<Endpoint*>::iterator place_;
    std::string error_;
  };

 private:
  const std::shared_ptr<GlooDevice> device_;
  const int size_;
  std::shared_ptr<gloo::transport::Context> context_;

  std::mutex mutex_;
  std::list<Endpoint*> endpoints_;  // guarded by mutex_
  bool closed_ = false;             // guarded by mutex_
};

// Blocks SIGPIPE for this thread while it lives, and takes one that has come meanwhile: Gloo writes
// to sockets that a peer may have closed.
class SigpipeGuard {
 public:
  SigpipeGuard();
  ~SigpipeGuard();
  SigpipeGuard(const SigpipeGuard&) = delete;
  SigpipeGuard& operator=(const SigpipeGuard&) = delete;

 private:
  bool was_blocked_ = false;
};

}  // namespace muster::comm
