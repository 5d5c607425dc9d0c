#include "tools/muster-launch/slots.h"

#include <algorithm>
#include <filesystem>

#include "muster/base/address.h"
#include "muster/launch/local_starter.h"
#include "muster/launch/ssh_starter.h"

#include "tools/muster-launch/coordinator_file.h"

namespace muster::cli {

std::string absolute_path(const std::string& path) {
  std::error_code failed;
  const auto real = std::filesystem::absolute(path, failed).lexically_normal();
  return failed ? path : real.string();
}

namespace {

// The same words for a machine with another current directory.
std::vector<std::string> with_absolute_paths(std::vector<std::string> words) {
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == "--run" || words[i] == "--written") words[i + 1] = absolute_path(words[i + 1]);
  }
  return words;
}

std::unique_ptr<launch::Starter> make_ssh_starter(const ReadyRun& ready, const Slots& slots,
                                                  const std::vector<std::string>& words,
                                                  const launch::HeldSignals& held) {
  launch::SshOptions options;
  options.folder = ready.run.worker_logs();
  for (size_t i = 0; i < slots.ids.size(); ++i) {
    const auto& host = slots.hosts[i];
    std::vector<std::string> command = {host.worker.empty() ? absolute_path(ready.worker)
                                                            : host.worker};
    const auto there = with_absolute_paths(words);
    command.insert(command.end(), there.begin(), there.end());
    command.insert(command.end(), {"--id", slots.ids[i], "--host", host.reached_at()});
    if (!host.site.empty()) command.insert(command.end(), {"--site", host.site});
    options.slots[slots.ids[i]] = {host, std::move(command)};
  }
  return std::make_unique<launch::SshStarter>(std::move(options), held);
}

Result<std::string> listen_address(const SeveralArguments& several, const Slots& slots) {
  if (!several.listen.empty()) {
    MUSTER_RETURN_IF_ERROR(check_listen(several.listen));
    return several.listen;
  }
  std::string here = slots.machines.empty() ? "127.0.0.1" : "";
  for (const auto& host : slots.machines) {
    const auto towards = own_address_towards(host.reached_at());
    if (!towards.ok() || (!here.empty() && here != *towards)) {
      return Error(ErrorKind::kUsage,
                   "say where the hosts reach this machine: --listen HOST:PORT; {}",
                   towards.ok() ? fmt::format("on the way to '{}' it is {}, to others {}",
                                              host.reached_at(), *towards, here)
                                : towards.error().message());
    }
    here = *towards;
  }
  return bracketed(here) + ":0";
}

}  // namespace

Status check_listen(const std::string& address) {
  if (!is_address(address)) {
    return Error(ErrorKind::kUsage, "--listen must be HOST:PORT, not '{}'", address);
  }
  if (is_wildcard(host_of(address))) {
    return Error(ErrorKind::kUsage,
                 "--listen {} is every address of this machine; name the one that the workers "
                 "reach it at",
                 address);
  }
  return {};
}

std::string site_of(int64_t number, int64_t workers, int64_t sites) {
  return fmt::format("{}", number * sites / workers);
}

Result<Slots> plan_slots(const SeveralArguments& several, FileSystem& files) {
  Slots slots;
  const auto add = [&] { slots.ids.push_back(fmt::format("{}", slots.ids.size())); };
  if (several.hosts.empty()) {
    for (int64_t i = 0; i < several.workers; ++i) {
      add();
      if (several.sites > 0) {
        slots.sites[slots.ids.back()] = site_of(i, several.workers, several.sites);
      }
    }

    MUSTER_TRY(slots.listen, listen_address(several, slots));
    return slots;
  }
  MUSTER_TRY(slots.machines, launch::read_hosts(files, several.hosts));
  for (const auto& host : slots.machines) {
    for (int64_t i = 0; i < host.workers; ++i) {
      add();
      slots.hosts.push_back(host);
    }
  }
  if (slots.ids.empty()) {
    return Error(ErrorKind::kUsage, "no host of {} has workers; set `workers` of one",
                 several.hosts);
  }
  MUSTER_TRY(slots.listen, listen_address(several, slots));
  return slots;
}

std::unique_ptr<launch::Starter> make_starter(const ReadyRun& ready, const Slots& slots,
                                              const std::string& coordinator,
                                              const std::string& servers,
                                              const launch::HeldSignals& held) {
  auto words = ready.words;
  if (!servers.empty()) words.insert(words.end(), {"--servers", servers});
  words.insert(words.end(), {"--coordinator", coordinator, "--job-name", job_name(ready.run)});
  if (!slots.hosts.empty()) return make_ssh_starter(ready, slots, words, held);
  // Those that join from elsewhere reach the workers here where they reach the coordinator.
  words.insert(words.end(), {"--host", host_of(coordinator)});
  return std::make_unique<launch::LocalStarter>(
      launch::LocalOptions{ready.worker, std::move(words), ready.run.worker_logs(), slots.sites},
      held);
}

}  // namespace muster::cli
