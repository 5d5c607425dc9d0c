// Members as real processes, for tests that kill and stop them.
//
// The test process forks while it has one thread (checked), so that children may start threads of
// their own. What a child finds out it writes into memory shared with the test.
#pragma once

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "muster/base/check.h"
#include "muster/comm/group.h"

namespace muster::comm {

// A folder of its own for a test, gone afterwards.
class MeetingFolder {
 public:
  MeetingFolder() : path_((std::filesystem::temp_directory_path() / "muster-XXXXXX").string()) {
    MUSTER_CHECK(::mkdtemp(path_.data()) != nullptr, "a test needs a temporary folder");
  }
  ~MeetingFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  MeetingFolder(const MeetingFolder&) = delete;
  MeetingFolder& operator=(const MeetingFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// One child's report. Plain memory but for the atomics: read it after `done`.
struct Report {
  std::atomic<int> progress{0};
  std::atomic<bool> done{false};
  std::atomic<int64_t> ended_ns{0};  // on the monotonic clock, which all processes share
  FailureKind kind = FailureKind::kInternal;
  int origin = kNobody;
  int suspect = kNobody;
  char message[600] = "";

  void finish(const std::string& text) {
    std::snprintf(message, sizeof(message), "%s", text.c_str());
    ended_ns = std::chrono::steady_clock::now().time_since_epoch().count();
    done = true;
  }
  void finish(const Group& group, const Status& status) {
    if (const auto failure = group.failure()) set(*failure);
    finish(status.ok() ? "good" : status.error().message());
  }
  void set(const GroupFailure& failure) {
    kind = failure.kind;
    origin = failure.origin;
    suspect = failure.suspect;
  }
};

class Processes {
 public:
  using Body = std::function<void(int rank, Report& report)>;

  Processes(int count, const Body& body) : count_(count), pids_(static_cast<size_t>(count), -1) {
    const auto threads = std::filesystem::directory_iterator("/proc/self/task");
    MUSTER_CHECK(std::distance(begin(threads), end(threads)) <= kThreadsBefore,
                 "forking with threads: what they hold would be locked for good");
    void* memory =
        ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUSTER_CHECK(memory != MAP_FAILED, "a test needs shared memory");
    reports_ = static_cast<Report*>(memory);
    for (int r = 0; r < count; ++r) new (&reports_[r]) Report();
    std::fflush(nullptr);
    for (int r = 0; r < count; ++r) {
      const pid_t pid = ::fork();
      MUSTER_CHECK(pid >= 0, "fork failed");
      if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that is killed leaves nobody behind
        body(r, reports_[r]);
        ::_exit(0);
      }
      pids_[static_cast<size_t>(r)] = pid;
    }
  }
  ~Processes() {
    for (int r = 0; r < count_; ++r) reap(r);
    ::munmap(reports_, bytes());
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  Report& report(int rank) { return reports_[rank]; }
  void signal(int rank, int number) { ::kill(pids_[static_cast<size_t>(rank)], number); }

  // True once it holds; false after half a minute.
  static bool eventually(const std::function<bool()>& condition) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }
  bool wait_progress(int rank, int at_least) {
    return eventually([&] { return reports_[rank].progress >= at_least || reports_[rank].done; });
  }
  bool wait_done(int rank) {
    return eventually([&] { return reports_[rank].done.load(); });
  }
  // How it ended, as waitpid() says; waits until it has. SIGKILL is sent first if `kill`.
  int reap(int rank, bool kill = true) {
    pid_t& pid = pids_[static_cast<size_t>(rank)];
    if (pid < 0) return 0;
    if (kill) ::kill(pid, SIGKILL);
    int status = 0;
    ::waitpid(pid, &status, 0);
    pid = -1;
    return status;
  }

 private:
#if defined(__SANITIZE_THREAD__)
  static constexpr int kThreadsBefore = 2;  // the sanitizer has one of its own
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
  static constexpr int kThreadsBefore = 2;
#else
  static constexpr int kThreadsBefore = 1;
#endif
#else
  static constexpr int kThreadsBefore = 1;
#endif
  size_t bytes() const { return static_cast<size_t>(count_) * sizeof(Report); }

  const int count_;
  std::vector<pid_t> pids_;
  Report* reports_ = nullptr;
};

}  // namespace muster::comm
