#include "muster/base/thread.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <utility>

namespace muster {

void set_thread_name(const std::string& name) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
}

Thread::Thread(std::string name, std::function<void()> body)
    : thread_([name = std::move(name), body = std::move(body)] {
        set_thread_name(name);
        body();
      }) {}

Thread& Thread::operator=(Thread&& other) noexcept {
  join();
  thread_ = std::move(other.thread_);
  return *this;
}

void Thread::join() {
  if (thread_.joinable()) thread_.join();
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) {
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace muster
