#include "muster/comm/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>

#include <fmt/format.h>

namespace muster::comm {

std::string SocketAddress::ip() const {
  char text[INET6_ADDRSTRLEN] = "?";
  if (storage.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr, text,
              sizeof(text));
  } else if (storage.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr, text,
              sizeof(text));
  }
  return text;
}

int SocketAddress::port() const {
  return storage.ss_family == AF_INET6
             ? ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port)
             : ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

void SocketAddress::set_port(int port) {
  const auto p = htons(static_cast<uint16_t>(port));
  if (storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port = p;
  } else {
    reinterpret_cast<sockaddr_in*>(&storage)->sin_port = p;
  }
}

Result<SocketAddress> resolve(const std::string& host) {
  for (const int family : {AF_INET, AF_INET6}) {
    addrinfo hints{};
    hints.ai_family = family;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) continue;
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
    SocketAddress address;
    std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
    address.length = found->ai_addrlen;
    return address;
  }
  return Error(ErrorKind::kMachine,
               "there is no address for '{}'; give an IP address or a name that this machine can "
               "look up",
               host);
}

Result<SocketAddress> parse_address(const std::string& ip, int port) {
  SocketAddress address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (inet_pton(AF_INET, ip.c_str(), &v4->sin_addr) == 1) {
    address.storage.ss_family = AF_INET;
    address.length = sizeof(sockaddr_in);
  } else if (inet_pton(AF_INET6, ip.c_str(), &v6->sin6_addr) == 1) {
    address.storage.ss_family = AF_INET6;
    address.length = sizeof(sockaddr_in6);
  } else {
    return Error(ErrorKind::kIo, "'{}' is not an IP address", ip);
  }
  if (port <= 0 || port > 65535) return Error(ErrorKind::kIo, "{} is not a port", port);
  address.set_port(port);
  return address;
}

Result<Listener> listen_at(const SocketAddress& address, int backlog) {
  Fd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return io_error(errno, "cannot make a socket (see `ulimit -n`)");
  if (::bind(fd.get(), address.get(), address.length) != 0) {
    return io_error(
        errno, fmt::format("cannot listen at {}: is it an address of this machine?", address.ip()));
  }
  if (::listen(fd.get(), backlog) != 0) {
    return io_error(errno, fmt::format("cannot listen at {}", address.ip()));
  }
  Listener listener{std::move(fd), {}};
  listener.address.length = sizeof(listener.address.storage);
  if (::getsockname(listener.fd.get(), reinterpret_cast<sockaddr*>(&listener.address.storage),
                    &listener.address.length) != 0) {
    return io_error(errno, "cannot ask a socket for its port");
  }
  return listener;
}

int start_connect(const SocketAddress& address, Fd& socket) {
  socket = Fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return errno;
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (::connect(socket.get(), address.get(), address.length) == 0) return 0;
  return errno == EINPROGRESS ? 0 : errno;
}

int pending_error(const Fd& socket) {
  int error = 0;
  socklen_t length = sizeof(error);
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
  return error;
}

void notice_silence(const Fd& socket, const SocketAddress& peer, Duration after) {
  if (const std::string ip = peer.ip(); ip.starts_with("127.") || ip == "::1") return;
  const auto set = [&](int level, int option, int value) {
    ::setsockopt(socket.get(), level, option, &value, sizeof(value));
  };
  constexpr int kProbes = 2;
  const auto total = static_cast<int>(std::chrono::ceil<std::chrono::seconds>(after).count());
  const int interval = std::max(1, total / (kProbes + 1));
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, interval);
  set(IPPROTO_TCP, TCP_KEEPINTVL, interval);
  set(IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  // The same for what was sent and is not acknowledged.
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 1000 * total);
}

void ignore_silence(const Fd& socket) {
  const int off = 0;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &off, sizeof(off));
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &off, sizeof(off));
}

bool is_silence(int error) {
  return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH ||
         error == EHOSTDOWN || error == ENETDOWN;
}

}  // namespace muster::comm
