#include "tools/muster-launch/verify/network.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <fstream>

#include <fmt/ranges.h>

#include "muster/base/check.h"
#include "muster/base/shell.h"

namespace muster::cli {

Result<Network> Network::make(int slots, std::vector<lab::HostOptions> hosts,
                              const std::string& folder, const std::string& worker) {
  if (hosts.empty()) {
    for (int i = 0; i < slots; ++i) hosts.push_back({fmt::format("host-{}", i), {}});
  }
  Network network;
  MUSTER_TRY(network.lab_, lab::Lab::make(std::move(hosts), folder));
  MUSTER_RETURN_IF_ERROR(network.write_wrapper(slots, folder, worker));
  return network;
}

Network::~Network() {
  if (!wrapper_.empty()) unlink(wrapper_.c_str());
}

std::string wrapper_script(const std::string& worker,
                           const std::vector<std::pair<std::string, std::string>>& hosts) {
  std::string text =
      "#!/bin/sh\n"
      "# Written by `muster verify`: starts the worker on the host of its slot.\n"
      "id= host= last=\n"
      "for word; do\n"
      "  shift\n"
      "  [ \"$last\" = --id ] && id=$word\n"
      "  if [ \"$last\" = --host ]; then host=$word\n"
      "  elif [ \"$word\" != --host ]; then set -- \"$@\" \"$word\"; fi\n"
      "  last=$word\n"
      "done\n"
      "case $id in\n";
  for (size_t i = 0; i < hosts.size(); ++i) {
    const auto& [words, address] = hosts[i];
    text += fmt::format("{}) exec {} --wd=\"$PWD\" -- {} \"$@\" --host {} ;;\n", i, words,
                        shell_quoted(worker), address);
  }
  return text + fmt::format("*) exec {} \"$@\" ${{host:+--host \"$host\"}} ;;\nesac\n",
                            shell_quoted(worker));
}

Status Network::write_wrapper(int slots, const std::string& folder, const std::string& worker) {
  std::vector<std::pair<std::string, std::string>> hosts;
  for (int i = 0; i < slots; ++i) {
    const size_t host = static_cast<size_t>(i) % lab_->size();
    hosts.emplace_back(fmt::format("{}", fmt::join(lab_->enter(host), " ")), lab_->address(host));
  }
  std::error_code failed;
  const auto path = std::filesystem::absolute(folder, failed) / "worker-in-slot";
  if (failed) return io_error(failed.value(), "there is no current folder");
  wrapper_ = path.string();
  std::ofstream file(path);
  file << wrapper_script(worker, hosts);
  file.close();
  if (!file) return io_error(errno, fmt::format("cannot write '{}'", wrapper_));
  if (chmod(wrapper_.c_str(), 0755) != 0) return io_error(errno, "cannot make it a program");
  return {};
}

size_t Network::host_of(const std::string& slot) const {
  size_t number = 0;
  const auto read = std::from_chars(slot.data(), slot.data() + slot.size(), number);
  MUSTER_CHECK(read.ec == std::errc(), "only slots have a host");
  return number % lab_->size();
}

Status Network::cut(const std::string& a, const std::string& b) {
  if (host_of(a) == host_of(b)) {
    return Error(ErrorKind::kUsage, "workers {} and {} are on one host", a, b);
  }
  return lab_->cut(host_of(a), host_of(b));
}

Status Network::heal(const std::string& a, const std::string& b) {
  return lab_->heal(host_of(a), host_of(b));
}

}  // namespace muster::cli
