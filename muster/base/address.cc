#include "muster/base/address.h"

#include <errno.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>

namespace muster {

std::string host_of(const std::string& address) {
  std::string host = address.substr(0, address.rfind(':'));
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return host;
}

std::string bracketed(const std::string& host) {
  const bool bare = host.find(':') != std::string::npos && host.front() != '[';
  return bare ? "[" + host + "]" : host;
}

std::string port_of(const std::string& address) { return address.substr(address.rfind(':') + 1); }

bool is_wildcard(const std::string& host) {
  return host.empty() || host == "0.0.0.0" || host == "::" || host == "*";
}

Result<std::string> own_address_towards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  const int failure = getaddrinfo(host.c_str(), "9", &hints, &list);
  if (failure != 0) {
    return Error(ErrorKind::kIo, "'{}' is not the name of a machine: {}", host,
                 gai_strerror(failure));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    const int fd = socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage own{};
    socklen_t size = sizeof(own);
    // A datagram socket that is connected has chosen its own address, and sent nothing.
    const bool known = connect(fd, one->ai_addr, one->ai_addrlen) == 0 &&
                       getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0;
    close(fd);
    std::array<char, 128> text{};
    if (known && getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text.data(), text.size(),
                             nullptr, 0, NI_NUMERICHOST) == 0) {
      return std::string(text.data());
    }
  }
  return Error(ErrorKind::kIo, "there is no way to '{}' from this machine", host);
}

std::string machine_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "worker";
  std::string text;
  for (const char c : std::string(name.data())) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.';
    text += plain ? c : '-';
  }
  return text.empty() || text[0] == '.' ? "worker" : text.substr(0, 64);
}

}  // namespace muster
