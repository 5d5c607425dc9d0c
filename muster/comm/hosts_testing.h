// Several "hosts" on one machine, for tests: each is a network namespace with an address of its
// own, and a mount namespace with a /dev/shm of its own; a switch connects them. (muster/lab moves
// its process into the network, which a test program with other tests must not do.)
//
// The namespaces have no names: they exist as long as the processes that hold them, which the
// kernel kills with the test (PR_SET_PDEATHSIG). So nothing is left behind, whatever happens.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "muster/base/check.h"

namespace muster::comm {

class TestHosts {
 public:
  // Why this machine cannot do it, for GTEST_SKIP(); empty if it can.
  static std::string unavailable() {
    if (::geteuid() != 0) return "network namespaces need root";
    const pid_t pid = ::fork();
    if (pid == 0) {
      const bool made = ::unshare(CLONE_NEWNET | CLONE_NEWNS) == 0;
      ::_exit(made && ip({"link", "add", "muster0", "type", "bridge"}) ? 0 : 1);
    }
    return wait(pid) ? "" : "this process may not make network namespaces, or `ip` is missing";
  }

  // From a process with one thread. Aborts if it cannot.
  explicit TestHosts(int count) {
    switch_ =
        hold([] { return ip({"link", "add", "muster0", "type", "bridge"}) && up("muster0"); });
    for (int i = 0; i < count; ++i) {
      hosts_.push_back(hold([] { return own_shared_memory() && up("lo"); }));
      const std::string port = fmt::format("port{}", i);
      const std::string host = fmt::format("{}", hosts_.back());
      inside(switch_, [&] {
        return ip({"link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host}) &&
               ip({"link", "set", port, "master", "muster0", "up"});
      });
      inside(hosts_.back(),
             [&] { return ip({"addr", "add", address(i) + "/24", "dev", "eth0"}) && up("eth0"); });
    }
  }
  ~TestHosts() {
    for (const pid_t pid : hosts_) end(pid);
    end(switch_);
  }
  TestHosts(const TestHosts&) = delete;
  TestHosts& operator=(const TestHosts&) = delete;

  static std::string address(int host) { return fmt::format("10.77.0.{}", host + 1); }
  // Moves the calling thread, and those that it starts later, to that host.
  void enter(int host) const { join(hosts_[static_cast<size_t>(host)]); }
  // From now on, `from` sends nothing to `to`: not even an answer.
  void cut(int from, int to) const {
    inside(hosts_[static_cast<size_t>(from)],
           [&] { return ip({"route", "add", "blackhole", address(to) + "/32"}); });
  }

 private:
  static bool wait(pid_t pid) {
    int status = 0;
    return pid > 0 && ::waitpid(pid, &status, 0) == pid && status == 0;
  }
  static void end(pid_t pid) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  static bool ip(std::vector<std::string> words) {
    words.insert(words.begin(), "ip");
    std::vector<char*> arguments;
    for (auto& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::execvp("ip", arguments.data());
      ::_exit(127);
    }
    return wait(pid);
  }
  static bool up(const std::string& link) { return ip({"link", "set", link, "up"}); }
  static bool own_shared_memory() {
    return ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           ::mount("tmpfs", "/dev/shm", "tmpfs", 0, nullptr) == 0;
  }

  // A process that holds new namespaces, in which `prepare` has run.
  template <typename Prepare>
  static pid_t hold(Prepare prepare) {
    int ready[2];
    MUSTER_CHECK(::pipe(ready) == 0, "pipe failed");
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(ready[0]);
      if (::unshare(CLONE_NEWNET | CLONE_NEWNS) != 0 || !prepare()) ::_exit(1);
      (void)!::write(ready[1], "y", 1);
      while (true) ::pause();
    }
    ::close(ready[1]);
    char answer = 0;
    MUSTER_CHECK(::read(ready[0], &answer, 1) == 1, "cannot make a test host");
    ::close(ready[0]);
    return pid;
  }
  static void join(pid_t pid) {
    // A sanitizer's own thread shares the root folder with this one, which setns() would refuse.
    MUSTER_CHECK(::unshare(CLONE_FS) == 0, "unshare failed");
    for (const char* kind : {"net", "mnt"}) {
      const int fd = ::open(fmt::format("/proc/{}/ns/{}", pid, kind).c_str(), O_RDONLY | O_CLOEXEC);
      MUSTER_CHECK(fd >= 0 && ::setns(fd, 0) == 0, "cannot enter a test host");
      ::close(fd);
    }
  }
  template <typename Body>
  static void inside(pid_t holder, Body body) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      join(holder);
      ::_exit(body() ? 0 : 1);
    }
    MUSTER_CHECK(wait(pid), "cannot set up a test host");
  }

  pid_t switch_ = -1;
  std::vector<pid_t> hosts_;
};

}  // namespace muster::comm
