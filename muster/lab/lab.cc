#include "muster/lab/lab.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <new>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "muster/lab/relay.h"
#include "muster/lab/shell.h"

namespace muster::lab {
namespace {

constexpr const char* kHub = "10.119.0.1";
constexpr const char* kBootId = "/proc/sys/kernel/random/boot_id";
// A link may be ahead of its rate by what it sends in so many seconds, but by a few packets at
// least. Little, so that the rate holds for short messages too.
constexpr double kBurstSeconds = 0.004;
constexpr double kLeastBurst = 16e3;  // bytes

Error missing(const std::string& what) {
  return Error(ErrorKind::kUsage,
               "a laboratory of hosts needs network namespaces, which this system does not allow: "
               "{}; run as root and install iproute2",
               what);
}

// For what makes the laboratory.
Status make_with(const std::string& line) {
  const Status done = run_shell(line);
  if (done.ok()) return {};
  return missing(done.error().message());
}

Status write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) return io_error(errno, fmt::format("cannot write '{}'", path));
  return {};
}

// Without root: a user namespace in which we are.
Status become_root() {
  const auto user = geteuid();
  const auto group = getegid();
  if (user == 0) return {};
  if (unshare(CLONE_NEWUSER) != 0) return missing(io_error(errno, "no user namespace").message());
  MUSTER_RETURN_IF_ERROR(write_text("/proc/self/setgroups", "deny"));
  MUSTER_RETURN_IF_ERROR(write_text("/proc/self/uid_map", fmt::format("0 {} 1", user)));
  MUSTER_RETURN_IF_ERROR(write_text("/proc/self/gid_map", fmt::format("0 {} 1", group)));
  prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);  // or our children could not open our /proc/PID/fd
  return {};
}

Result<Fd> open_namespace(const char* which) {
  Fd file(open(fmt::format("/proc/self/ns/{}", which).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return missing(io_error(errno, "cannot open a namespace").message());
  return file;
}

Status enter_new(int flags) {
  if (unshare(flags) != 0) return missing(io_error(errno, "cannot make a namespace").message());
  if ((flags & CLONE_NEWNS) != 0 &&
      mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return missing(io_error(errno, "cannot make mounts private").message());
  }
  return {};
}

// In the network namespace in which this thread is.
Result<Fd> make_tap(const std::string& name) {
  Fd tap(open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  ifreq request{};
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  if (!tap || ioctl(tap.get(), TUNSETIFF, &request) != 0) {
    const Error why = io_error(errno, "cannot make a tap device");
    return Error(
        ErrorKind::kUsage,
        "delay and loss in a laboratory need /dev/net/tun: {}; load the module tun, and in a "
        "container pass the device",
        why.message());
  }
  return tap;
}

std::string absolute(const std::string& folder) {
  std::error_code failed;
  const auto path = std::filesystem::absolute(folder, failed);
  return failed ? folder : path.string();
}

std::string path_of(const Fd& file) { return fmt::format("/proc/{}/fd/{}", getpid(), file.get()); }

bool is_relayed(const LinkOptions& link) { return link.delay > Duration(0) || link.loss > 0; }

void set_control(RelayControl& control, const LinkOptions& link) {
  control.delay_us = std::chrono::duration_cast<std::chrono::microseconds>(link.delay).count();
  control.loss_ppm = static_cast<uint32_t>(std::lround(link.loss * 1e6));
}

std::string shaping(const std::string& device, double rate) {
  if (rate == 0) return fmt::format("tc qdisc del dev {} root", device);
  const double burst = std::max(kLeastBurst, rate / 8 * kBurstSeconds);
  return fmt::format("tc qdisc replace dev {} root tbf rate {:.0f}bit burst {:.0f}b latency 50ms",
                     device, rate, burst);
}

}  // namespace

std::string Lab::hub_address() { return kHub; }

std::string Lab::port(size_t host) const { return fmt::format("port{}", host); }

Result<std::unique_ptr<Lab>> Lab::make(std::vector<HostOptions> hosts, const std::string& folder) {
  if (hosts.empty() || hosts.size() > kMostHosts) {
    return Error(ErrorKind::kUsage, "a laboratory has 1 to {} hosts, not {}", kMostHosts,
                 hosts.size());
  }
  std::unique_ptr<Lab> lab(new Lab());
  MUSTER_RETURN_IF_ERROR(become_root());
  MUSTER_RETURN_IF_ERROR(enter_new(CLONE_NEWNET | CLONE_NEWNS));
  MUSTER_RETURN_IF_ERROR(
      make_with(fmt::format("ip link set lo up && ip link add hub type bridge && "
                            "ip addr add {}/16 dev hub && ip link set hub up",
                            kHub)));
  MUSTER_TRY(lab->hub_net_, open_namespace("net"));
  MUSTER_TRY(lab->hub_mount_, open_namespace("mnt"));
  for (auto& host : hosts) MUSTER_RETURN_IF_ERROR(lab->add_host(std::move(host), folder));
  MUSTER_RETURN_IF_ERROR(lab->start_relay());
  for (size_t i = 0; i < lab->size(); ++i) {
    MUSTER_RETURN_IF_ERROR(lab->shape(i, lab->link(i).rate));
  }
  return lab;
}

// The link is made from inside: its other end reaches out of the host's namespace into ours.
// Returns home also after an error.
Status Lab::add_host(HostOptions options, const std::string& folder) {
  const size_t number = hosts_.size();
  Host& host = hosts_.emplace_back();
  host.options = std::move(options);
  host.address = fmt::format("10.119.1.{}", number + 1);
  const bool relayed = is_relayed(host.options.link);
  const std::string boot_id = fmt::format("{}/boot-id-{}", absolute(folder), number);
  const Fd here(open(".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!here) return io_error(errno, "cannot open the current directory");
  MUSTER_RETURN_IF_ERROR(write_text(boot_id, fmt::format("lab-{}-{}\n", getpid(), number)));
  const auto inside = [&]() -> Status {
    MUSTER_RETURN_IF_ERROR(enter_new(CLONE_NEWNET | CLONE_NEWNS));
    if (mount(boot_id.c_str(), kBootId, nullptr, MS_BIND, nullptr) != 0) {
      return missing(io_error(errno, fmt::format("cannot mount over '{}'", kBootId)).message());
    }
    MUSTER_TRY(host.net, open_namespace("net"));
    MUSTER_TRY(host.mount, open_namespace("mnt"));
    if (relayed) {
      MUSTER_TRY(host.tap, make_tap("eth0"));
    } else {
      MUSTER_RETURN_IF_ERROR(make_with(fmt::format(
          "ip link add eth0 type veth peer name {} netns {}", port(number), path_of(hub_net_))));
    }
    // Linux's default, whatever this machine has: figures should not depend on that. BBR, for one,
    // takes the bursts of a shaped link for its rate, and a third of the packets is lost.
    (void)write_text("/proc/sys/net/ipv4/tcp_congestion_control", "cubic");
    return make_with(fmt::format(
        "ip link set lo up && ip addr add {}/16 dev eth0 && ip link set eth0 up", host.address));
  };
  const Status done = inside();
  unlink(boot_id.c_str());  // the mount keeps it
  // Entering a mount namespace changes the current directory.
  const bool home = setns(hub_net_.get(), CLONE_NEWNET) == 0 &&
                    setns(hub_mount_.get(), CLONE_NEWNS) == 0 && fchdir(here.get()) == 0;
  MUSTER_RETURN_IF_ERROR(done);
  if (!home) return missing(io_error(errno, "cannot return to a namespace").message());
  if (relayed) {
    MUSTER_TRY(host.hub_tap, make_tap(port(number)));
  }
  return make_with(fmt::format("ip link set {} master hub up", port(number)));
}

// In a process of its own, which ends with this one.
Status Lab::start_relay() {
  if (std::ranges::none_of(hosts_, [](const Host& h) { return bool(h.tap); })) return {};
  void* shared = mmap(nullptr, hosts_.size() * sizeof(RelayControl), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return io_error(errno, "cannot map memory for the relay");
  controls_ = new (shared) RelayControl[hosts_.size()];
  std::vector<RelayedLink> links;
  for (size_t i = 0; i < hosts_.size(); ++i) {
    Host& host = hosts_[i];
    if (!host.tap) continue;
    host.control = &controls_[i];
    set_control(*host.control, host.options.link);
    links.push_back({host.tap.get(), host.hub_tap.get(), host.control});
  }
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return io_error(errno, "cannot make a pipe");
  const Fd read_end(ends[0]);
  stop_relay_ = Fd(ends[1]);
  relay_ = fork();
  if (relay_ < 0) return io_error(errno, "cannot start the relay");
  if (relay_ > 0) return {};
  stop_relay_.reset();  // so that the last one closes with our parent
  try {
    relay(links, read_end.get());
  } catch (...) {  // nothing of our parent's may be unwound here
    _exit(1);
  }
  _exit(0);
}

Status Lab::check_relay() const {
  if (relay_ <= 0 || waitpid(relay_, nullptr, WNOHANG) == 0) return {};
  return Error(ErrorKind::kMachine, "the relay of the laboratory has ended; its hosts are cut off");
}

Lab::~Lab() {
  stop_relay_.reset();
  if (relay_ > 0) waitpid(relay_, nullptr, 0);
  if (controls_ != nullptr) munmap(controls_, hosts_.size() * sizeof(RelayControl));
}

Result<size_t> Lab::find(std::string_view name) const {
  for (size_t i = 0; i < hosts_.size(); ++i) {
    if (hosts_[i].options.name == name) return i;
  }
  return Error(ErrorKind::kUsage, "there is no host '{}' in the laboratory", name);
}

std::vector<std::string> Lab::enter(size_t host) const {
  return {"nsenter", "--net=" + path_of(hosts_[host].net),
          "--mount=" + path_of(hosts_[host].mount)};
}

std::vector<std::string> Lab::enter_hub() const {
  return {"nsenter", "--net=" + path_of(hub_net_), "--mount=" + path_of(hub_mount_)};
}

Status Lab::cut(size_t a, size_t b) {
  if (a == b) return Error(ErrorKind::kUsage, "a host cannot be cut off from itself");
  MUSTER_RETURN_IF_ERROR(check_relay());
  MUSTER_RETURN_IF_ERROR(route("replace", a, b));
  return route("replace", b, a);
}

Status Lab::heal(size_t a, size_t b) {
  Status there = route("del", a, b);
  Status back = route("del", b, a);
  return there.ok() ? std::move(back) : std::move(there);
}

Status Lab::route(const char* action, size_t from, size_t to) {
  return run_shell(fmt::format("nsenter --net={} ip route {} blackhole {}/32",
                               path_of(hosts_[from].net), action, hosts_[to].address));
}

Status Lab::set_link(size_t host, const LinkOptions& link) {
  Host& h = hosts_[host];
  if (h.control == nullptr && is_relayed(link)) {
    return Error(ErrorKind::kUsage,
                 "host '{}' cannot get delay or loss now: give it some from the beginning",
                 h.options.name);
  }
  MUSTER_RETURN_IF_ERROR(check_relay());
  MUSTER_RETURN_IF_ERROR(shape(host, link.rate));
  if (h.control != nullptr) set_control(*h.control, link);
  h.options.link = link;
  return {};
}

// At both ends of the link.
Status Lab::shape(size_t host, double rate) {
  Host& h = hosts_[host];
  if (rate == 0 && !h.shaped) return {};
  MUSTER_RETURN_IF_ERROR(run_shell(shaping(port(host), rate)));
  MUSTER_RETURN_IF_ERROR(
      run_shell(fmt::format("nsenter --net={} {}", path_of(h.net), shaping("eth0", rate))));
  h.shaped = rate > 0;
  return {};
}

// At the switch's end of the link: what the host sends is received there.
Result<Traffic> Lab::traffic(size_t host) const {
  MUSTER_RETURN_IF_ERROR(check_relay());
  std::ifstream file("/proc/thread-self/net/dev");
  const std::string wanted = port(host) + ":";
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (name != wanted) continue;
    std::array<uint64_t, 9> numbers{};
    for (uint64_t& number : numbers) words >> number;
    if (!words) break;
    return Traffic{.sent = numbers[0], .received = numbers[8]};
  }
  return Error(ErrorKind::kMachine, "/proc/net/dev says nothing of '{}'", wanted);
}

}  // namespace muster::lab
