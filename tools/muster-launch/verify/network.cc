#include "tools/muster-launch/verify/network.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <utility>

#include <fmt/format.h>

#include "muster/launch/ssh_starter.h"

namespace muster::cli {
namespace {

constexpr const char* kHub = "10.119.0.1";
constexpr const char* kBootId = "/proc/sys/kernel/random/boot_id";
constexpr int kMostSlots = 200;

Error missing(const std::string& what) {
  return Error(ErrorKind::kUsage,
               "--faults cut needs network namespaces, and this system does not let us have them: "
               "{}; run as root and install iproute2, or leave cut out",
               what);
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

Result<int> open_namespace(const char* which) {
  const int file = open(fmt::format("/proc/self/ns/{}", which).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return missing(io_error(errno, "cannot open a namespace").message());
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

std::string absolute(const std::string& folder) {
  std::error_code failed;
  const auto path = std::filesystem::absolute(folder, failed);
  return failed ? folder : path.string();
}

std::string path_of(int file) { return fmt::format("/proc/{}/fd/{}", getpid(), file); }

}  // namespace

std::string Network::address() { return kHub; }

Result<Network> Network::make(int slots, const std::string& folder, const std::string& worker,
                              Children& children) {
  if (slots > kMostSlots) {
    return Error(ErrorKind::kUsage, "--faults cut goes with at most {} workers", kMostSlots);
  }
  Network network(children);
  MUSTER_RETURN_IF_ERROR(become_root());
  MUSTER_RETURN_IF_ERROR(enter_new(CLONE_NEWNET | CLONE_NEWNS));
  MUSTER_RETURN_IF_ERROR(
      network.run(fmt::format("ip link set lo up && ip link add hub type bridge && "
                              "ip addr add {}/16 dev hub && ip link set hub up",
                              kHub)));
  MUSTER_TRY(const int home_net, open_namespace("net"));
  MUSTER_TRY(const int home_mount, open_namespace("mnt"));
  Status added;
  for (int i = 0; i < slots && added.ok(); ++i) {
    added = network.add_slot(folder, home_net, home_mount);
  }
  close(home_net);
  close(home_mount);
  MUSTER_RETURN_IF_ERROR(added);
  MUSTER_RETURN_IF_ERROR(network.write_wrapper(folder, worker));
  return network;
}

// Made from inside: the new link reaches out of the slot's namespace into ours. Returns home also
// after an error.
Status Network::add_slot(const std::string& folder, int home_net, int home_mount) {
  const size_t number = slots_.size();
  Slot& slot = slots_.emplace_back();
  slot.address = fmt::format("10.119.1.{}", number + 1);
  const std::string& boot_id =
      files_.emplace_back(fmt::format("{}/boot-id-{}", absolute(folder), number));
  MUSTER_RETURN_IF_ERROR(write_text(boot_id, fmt::format("verify-{}-{}\n", getpid(), number)));
  const int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const auto inside = [&]() -> Status {
    MUSTER_RETURN_IF_ERROR(enter_new(CLONE_NEWNET | CLONE_NEWNS));
    if (mount(boot_id.c_str(), kBootId, nullptr, MS_BIND, nullptr) != 0) {
      return missing(io_error(errno, fmt::format("cannot mount over '{}'", kBootId)).message());
    }
    MUSTER_TRY(slot.net, open_namespace("net"));
    MUSTER_TRY(slot.mount, open_namespace("mnt"));
    return run(
        fmt::format("ip link set lo up && "
                    "ip link add eth0 type veth peer name slot{} netns {} && "
                    "ip addr add {}/16 dev eth0 && ip link set eth0 up",
                    number, path_of(home_net), slot.address));
  };
  const Status done = inside();
  // Entering a mount namespace changes the current directory.
  const bool home = setns(home_net, CLONE_NEWNET) == 0 && setns(home_mount, CLONE_NEWNS) == 0 &&
                    fchdir(here) == 0;
  close(here);
  MUSTER_RETURN_IF_ERROR(done);
  if (!home) return missing(io_error(errno, "cannot return to a namespace").message());
  return run(fmt::format("ip link set slot{} master hub up", number));
}

std::string wrapper_script(const std::string& worker,
                           const std::vector<std::pair<std::string, std::string>>& namespaces) {
  std::string text =
      "#!/bin/sh\n"
      "# Written by `muster verify`: starts the worker in the network namespace of its slot.\n"
      "id= host= last=\n"
      "for word; do\n"
      "  shift\n"
      "  [ \"$last\" = --id ] && id=$word\n"
      "  if [ \"$last\" = --host ]; then host=$word\n"
      "  elif [ \"$word\" != --host ]; then set -- \"$@\" \"$word\"; fi\n"
      "  last=$word\n"
      "done\n"
      "case $id in\n";
  for (size_t i = 0; i < namespaces.size(); ++i) {
    const auto& [words, address] = namespaces[i];
    text += fmt::format("{}) exec nsenter {} --wd=\"$PWD\" -- {} \"$@\" --host {} ;;\n", i, words,
                        launch::quoted(worker), address);
  }
  return text + fmt::format("*) exec {} \"$@\" ${{host:+--host \"$host\"}} ;;\nesac\n",
                            launch::quoted(worker));
}

Status Network::write_wrapper(const std::string& folder, const std::string& worker) {
  std::vector<std::pair<std::string, std::string>> namespaces;
  for (const auto& slot : slots_) {
    namespaces.emplace_back(
        fmt::format("--net={} --mount={}", path_of(slot.net), path_of(slot.mount)), slot.address);
  }
  wrapper_ = files_.emplace_back(absolute(folder) + "/worker-in-slot");
  MUSTER_RETURN_IF_ERROR(write_text(wrapper_, wrapper_script(worker, namespaces)));
  if (chmod(wrapper_.c_str(), 0755) != 0) return io_error(errno, "cannot make it a program");
  return {};
}

Network::Network(Network&& other) noexcept
    : children_(other.children_),
      slots_(std::exchange(other.slots_, {})),
      wrapper_(std::move(other.wrapper_)),
      files_(std::exchange(other.files_, {})) {}

Network::~Network() {
  for (const auto& file : files_) unlink(file.c_str());
  for (const auto& slot : slots_) {
    if (slot.net >= 0) close(slot.net);
    if (slot.mount >= 0) close(slot.mount);
  }
}

Status Network::cut(const std::string& a, const std::string& b) {
  MUSTER_RETURN_IF_ERROR(route("add", a, b));
  return route("add", b, a);
}

Status Network::heal(const std::string& a, const std::string& b) {
  MUSTER_RETURN_IF_ERROR(route("del", a, b));
  return route("del", b, a);
}

Status Network::route(const char* action, const std::string& from, const std::string& to) {
  const auto slot = [&](const std::string& id) {
    size_t number = slots_.size();
    std::from_chars(id.data(), id.data() + id.size(), number);
    MUSTER_CHECK(number < slots_.size(), "only slots have networks of their own");
    return slots_[number];
  };
  return run(fmt::format("nsenter --net={} ip route {} blackhole {}/32", path_of(slot(from).net),
                         action, slot(to).address));
}

Status Network::run(const std::string& line) {
  launch::Streams streams;
  streams.write_nothing = true;
  MUSTER_TRY(const pid_t pid,
             children_->start("/bin/sh", {"-c", "PATH=$PATH:/usr/sbin:/sbin; " + line}, streams));
  MUSTER_TRY(const auto ending, children_->wait(pid, [] {}));
  if (ending == launch::Ending{}) return {};
  return missing(fmt::format("`{}` failed", line));
}

}  // namespace muster::cli
