// Connections between programs of parameter servers: messages in both directions, in their order,
// over gRPC with raw bytes.
//
// What is to be sent waits until turn(), and while something is being written, and goes as one
// batch. So thousands of small messages, of a shard each, cost as much as a large one. What is
// large is not copied into the batch, and what is received is a part of it: whoever keeps a message
// keeps its batch (a few megabytes).
//
// One thread uses it, except for wake(). Nothing is called from anywhere but turn().
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "muster/base/clock.h"
#include "muster/base/result.h"
#include "muster/ps/shared_bytes.h"

namespace muster::ps {

using ConnectionId = uint64_t;  // never used twice

class NetworkListener {
 public:
  virtual ~NetworkListener() = default;
  // Somebody has connected. One that was opened here is told too, when it is there.
  virtual void opened(ConnectionId connection) = 0;
  virtual void received(ConnectionId connection, const Bytes& message) = 0;
  // It broke, or could not be opened. Told once, and nothing follows.
  virtual void closed(ConnectionId connection) = 0;
};

class Network {
 public:
  // `listener` must outlive it.
  explicit Network(NetworkListener& listener);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // "host:port"; port 0: any that is free. The address with its port. Once, before anything else.
  Result<std::string> listen(const std::string& address);
  ConnectionId connect(const std::string& address);
  // Nothing happens if it is closed; what was sent before it is open is lost.
  void send(ConnectionId connection, Packet message);
  // Bytes that were sent and not handed to the system yet.
  size_t waiting(ConnectionId connection) const;
  // closed() does not follow.
  void close(ConnectionId connection);

  // Handles what has come, or some of it: returns after 50 ms, so that who calls it can do
  // something else between. If there is nothing, waits for it, at most so long.
  void turn(Duration longest);
  // Ends the waiting of turn(). From any thread.
  void wake();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster::ps
