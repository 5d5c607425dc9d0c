// A laboratory: hosts with a network between them, all on this machine. For tests, benchmarks and
// `muster verify --lab`.
//
// Each host is a network namespace with an address of its own behind a switch (a bridge), to which
// it has a link of a given rate, delay and loss. Processes on different hosts take each other for
// different machines: in a host's mount namespace the kernel has another boot id, so that they do
// not share memory, which would bypass the link. Files are those of this machine.
//
//   rate          the kernel's token bucket (tbf) at both ends of the link
//   delay, loss   a process of ours that passes the packets on (relay.h), which costs processor
//                 time; hosts that need neither do without it
//   cut           a route that leads nowhere
//
// Nothing is left behind, however this process ends: the namespaces have no names, and live as long
// as a process is in them or this process has them open; the relay ends with this process. (The
// tests of comm have hosts of their own, comm/hosts_testing.h: their process must stay where it
// is.)
//
// One thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/fd.h"
#include "muster/base/result.h"
#include "muster/lab/hosts_file.h"

namespace muster::lab {

struct RelayControl;

// Bytes at the switch's end of a host's link, with the headers of Ethernet, IP and TCP: what was
// lost on the way to the switch is not among them. Large packets that the kernel has not cut up yet
// count with one header each.
struct Traffic {
  uint64_t sent = 0;
  uint64_t received = 0;
};

class Lab {
 public:
  // Call it while this process has one thread: it moves to the namespace of the switch, for good,
  // also if this fails. Without root it becomes root of a user namespace, where the system allows
  // that. `folder`: an existing directory, used while this runs. kUsage, with what is missing, if
  // this system has no network namespaces for us.
  static Result<std::unique_ptr<Lab>> make(std::vector<HostOptions> hosts,
                                           const std::string& folder);
  ~Lab();
  Lab(const Lab&) = delete;
  Lab& operator=(const Lab&) = delete;

  // Where the hosts reach this process, and others that are started from it as usual.
  static std::string hub_address();

  size_t size() const { return hosts_.size(); }
  const std::string& name(size_t host) const { return hosts_[host].options.name; }
  const std::string& address(size_t host) const { return hosts_[host].address; }
  // By its name.
  Result<size_t> find(std::string_view name) const;
  // The words that, before a command, run it on that host: "nsenter --net=... --mount=...". For
  // processes that this one starts, and for those of root.
  std::vector<std::string> enter(size_t host) const;
  // The same for where this process is.
  std::vector<std::string> enter_hub() const;

  // Between two different hosts: from cut() to heal() no IP packet passes, in either direction.
  Status cut(size_t a, size_t b);
  Status heal(size_t a, size_t b);
  // Changes its link. A host that had neither delay nor loss when it was made cannot get them.
  Status set_link(size_t host, const LinkOptions& link);
  const LinkOptions& link(size_t host) const { return hosts_[host].options.link; }

  Result<Traffic> traffic(size_t host) const;

 private:
  struct Host {
    HostOptions options;
    std::string address;
    Fd net;
    Fd mount;
    Fd tap;      // of the host, if its packets are relayed
    Fd hub_tap;  // and of the switch
    RelayControl* control = nullptr;
    bool shaped = false;
  };
  Lab() = default;
  Status add_host(HostOptions options, const std::string& folder);
  Status start_relay();
  Status check_relay() const;
  Status shape(size_t host, double rate);
  Status route(const char* action, size_t from, size_t to);
  std::string port(size_t host) const;

  Fd hub_net_;
  Fd hub_mount_;
  std::vector<Host> hosts_;
  RelayControl* controls_ = nullptr;
  Fd stop_relay_;
  pid_t relay_ = 0;
};

}  // namespace muster::lab
