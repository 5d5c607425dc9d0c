// Sockets and addresses, as much of them as this module needs.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "muster/base/clock.h"
#include "muster/base/fd.h"
#include "muster/base/result.h"

namespace muster::comm {

// An IPv4 or IPv6 address with a port.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  std::string ip() const;
  int port() const;
  void set_port(int port);
};

// "10.0.0.7", "::1" or a host name, which is looked up (IPv4 preferred, as Gloo does not mix
// families). kMachine if there is no such host.
Result<SocketAddress> resolve(const std::string& host);
// Only a number, nothing is looked up.
Result<SocketAddress> parse_address(const std::string& ip, int port);

// A non-blocking socket that listens at `address` (port 0: any), and where that is.
struct Listener {
  Fd fd;
  SocketAddress address;
};
Result<Listener> listen_at(const SocketAddress& address, int backlog);

// A non-blocking socket on its way to `address`: writable when there, SO_ERROR says how it went.
// Returns 0, or the errno with which it failed at once.
int start_connect(const SocketAddress& address, Fd& socket);
// What SO_ERROR says; 0 if all is well.
int pending_error(const Fd& socket);
// Has the kernel probe a connected socket on which nothing moves, so that reading from it fails
// (is_silence) about `after` the other machine has stopped answering. Nothing is done between two
// processes of one machine, whose link cannot be cut.
void notice_silence(const Fd& socket, const SocketAddress& peer, Duration after);
// No more.
void ignore_silence(const Fd& socket);
// Whether reading failed with this errno because the other machine does not answer.
bool is_silence(int error);

}  // namespace muster::comm
