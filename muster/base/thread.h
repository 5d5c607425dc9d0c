// Threads: few, named, each owned by one object that joins it.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace muster {

// Names the calling thread as top -H, gdb and perf will show it (15 characters at most).
void set_thread_name(const std::string& name);

// A thread with a name that is joined when its owner goes. The body must return by itself once its
// owner has told it to (a flag, a closed queue); this class does not interrupt it.
class Thread {
 public:
  Thread() = default;
  Thread(std::string name, std::function<void()> body);
  Thread(Thread&&) = default;
  Thread& operator=(Thread&& other) noexcept;
  ~Thread() { join(); }

  void join();
  bool running() const { return thread_.joinable(); }

 private:
  std::thread thread_;
};

// Cores this process may run on (its affinity mask, not what the machine has).
int usable_cores();

}  // namespace muster
