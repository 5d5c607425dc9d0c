#include "muster/launch/local_starter.h"

#include <signal.h>

#include "muster/launch/error_file.h"

namespace muster::launch {
namespace {

class LocalProcess final : public Process {
 public:
  explicit LocalProcess(pid_t pid) : pid_(pid) {}
  pid_t pid() const override { return pid_; }
  int64_t worker_process() const override { return pid_; }
  // To its group: what it started goes with it.
  void send(int signal) override { kill(-pid_, signal); }

 private:
  pid_t pid_;
};

std::string error_path(const std::string& folder, const std::string& id) {
  return fmt::format("{}/{}.err", folder, id);
}

}  // namespace

Result<std::unique_ptr<Process>> LocalStarter::start(const std::string& id) {
  MUSTER_TRY(const auto errors, ErrorFile::open(error_path(options_.folder, id)));
  begins_[id] = errors.begin();
  auto words = options_.arguments;
  words.insert(words.end(), {"--id", id});
  if (const auto site = options_.sites.find(id); site != options_.sites.end()) {
    words.insert(words.end(), {"--site", site->second});
  }
  Streams streams;
  streams.err = errors.fd();
  streams.read_nothing = true;
  MUSTER_TRY(const pid_t pid, spawn(options_.program, words, held_, streams));
  return std::unique_ptr<Process>(new LocalProcess(pid));
}

std::string LocalStarter::last_words(const std::string& id, int lines) const {
  const auto begin = begins_.find(id);
  return last_lines(error_path(options_.folder, id), begin == begins_.end() ? 0 : begin->second,
                    lines);
}

}  // namespace muster::launch
