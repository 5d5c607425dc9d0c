#include "tools/muster-launch/job_servers.h"

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <thread>
#include <utility>

#include "muster/base/address.h"
#include "muster/config/rounds.h"
#include "muster/launch/hosts.h"
#include "muster/launch/local_starter.h"
#include "muster/launch/ssh_starter.h"
#include "muster/ps/cold_directory.h"
#include "muster/ps/net/job_setup.h"

#include "tools/muster/worker_process.h"

namespace muster::cli {

using namespace std::chrono_literals;

namespace {

std::string server_id(size_t number) { return fmt::format("server{}", number); }

// Absolute, also for other hosts; empty: there is none.
std::string disk_of(const config::Job& job) {
  return job.tables.disk.empty() ? "" : std::filesystem::absolute(job.tables.disk).string();
}

// `host`: where others reach the machine on which it runs.
std::vector<std::string> server_words(const config::Job& job, const std::string& registry,
                                      const std::string& host) {
  std::vector<std::string> words = {"--registry", registry,   "--host",
                                    host,         "--listen", bracketed(host) + ":0"};
  if (job.tables.memory > 0) {
    words.insert(words.end(), {"--memory", std::to_string(job.tables.memory)});
  }
  if (const auto disk = disk_of(job); !disk.empty()) {
    words.insert(words.end(), {"--disk", disk});
  }
  return words;
}

// Of a process on another machine only its exit code is certain: if ssh was killed or has lost its
// connection, the server may live a little longer.
bool has_surely_ended(const launch::Process& process, const launch::Ending& seen) {
  constexpr int kSshFailed = 255;
  if (process.worker_process() != 0) return true;
  return seen.signal == 0 && seen.exit_code != kSshFailed;
}

}  // namespace

config::Job with_servers(config::Job job, const std::vector<launch::Host>& hosts) {
  if (!config::has_tables(job) || job.tables.servers > 0) return job;
  for (const auto& host : hosts) job.tables.servers += std::max<int64_t>(host.servers, 0);
  if (job.tables.servers == 0) job.tables.servers = 2;
  return job;
}

Result<std::unique_ptr<ps::RegistryService>> start_registry(const config::Job& job,
                                                            const std::string& host,
                                                            const Clock& clock, Log& log,
                                                            TellServers tell) {
  ps::RegistryServiceOptions options;
  options.address = bracketed(host) + ":0";
  options.setup = ps::setup_of(job);
  options.registry = ps::registry_options_of(job);
  options.tell = [&log, tell = std::move(tell)](const std::string& what) {
    log.info("parameter server {}", what);
    tell(what);
  };
  return ps::RegistryService::start(std::move(options), clock);
}

Result<std::unique_ptr<JobServers>> JobServers::start(const config::Job& job,
                                                      const track::RunDirectory& run,
                                                      const Slots& slots,
                                                      const launch::HeldSignals& held, Log& log,
                                                      ServerNews news) {
  if (!config::has_tables(job)) return std::unique_ptr<JobServers>();
  std::unique_ptr<JobServers> servers(new JobServers(job, log, std::move(news)));
  MUSTER_RETURN_IF_ERROR(servers->begin(job, run.worker_logs(), slots, held));
  return servers;
}

JobServers::JobServers(const config::Job& job, Log& log, ServerNews news)
    : log_(log), news_(std::move(news)), copies_(job.tables.copies) {
  restarts_.most = job.workers.restarts;
  // Above all memory that is full: the other copy of its rows needs as much, and fails next.
  restarts_.machine_errors_end_job = true;
}

Status JobServers::begin(const config::Job& job, const std::string& logs, const Slots& slots,
                         const launch::HeldSignals& held) {
  MUSTER_TRY(registry_, start_registry(job, host_of(slots.listen), clock_, log_, news_.event));
  MUSTER_RETURN_IF_ERROR(make_starter(job, logs, slots, held));
  const Moment now = SystemClock().now();
  for (int64_t i = 0; i < job.tables.servers; ++i) {
    const auto id = server_id(static_cast<size_t>(i));
    MUSTER_RETURN_IF_ERROR(start_slot(id, slots_[id], now));
  }
  log_.info("{} parameter servers; their registry listens on {}", job.tables.servers, address());
  return {};
}

Status JobServers::make_starter(const config::Job& job, const std::string& logs, const Slots& slots,
                                const launch::HeldSignals& held) {
  MUSTER_TRY(const auto program, find_program("muster-server"));
  if (slots.machines.empty()) {
    disk_ = disk_of(job);
    starter_ = std::make_unique<launch::LocalStarter>(
        launch::LocalOptions{program, server_words(job, address(), host_of(slots.listen)), logs},
        held);
    return {};
  }
  MUSTER_TRY(const auto places, launch::spread_servers(slots.machines, job.tables.servers));
  launch::SshOptions options;
  options.folder = logs;
  for (size_t i = 0; i < places.size(); ++i) {
    const auto& host = slots.machines[places[i]];
    std::vector<std::string> command = {host.server.empty() ? absolute_path(program) : host.server};
    const auto words = server_words(job, address(), host.reached_at());
    command.insert(command.end(), words.begin(), words.end());
    command.insert(command.end(), {"--id", server_id(i)});
    log_.info("parameter server {} is on {}", server_id(i), host.host);
    options.slots[server_id(i)] = {host, std::move(command)};
  }
  starter_ = std::make_unique<launch::SshStarter>(std::move(options), held);
  return {};
}

JobServers::~JobServers() {
  for (auto& [id, slot] : slots_) {
    if (slot.process != nullptr) slot.process->send(SIGTERM);
  }
  const auto until = std::chrono::steady_clock::now() + 1s;
  for (auto& [id, slot] : slots_) {
    if (slot.process == nullptr) continue;
    while (!launch::reap(slot.process->pid())) {
      if (std::chrono::steady_clock::now() > until) slot.process->send(SIGKILL);
      std::this_thread::sleep_for(2ms);
    }
  }
  if (!disk_.empty()) ps::remove_abandoned(disk_);
}

Status JobServers::start_slot(const std::string& id, Slot& slot, Moment now) {
  slot.start_at.reset();
  MUSTER_TRY(slot.process, starter_->start(id));
  slot.history.started = now;
  return {};
}

std::optional<Moment> JobServers::keep_alive(Moment now) {
  const bool due = now >= keepalive_at_;
  bool any = false;
  for (auto& [id, slot] : slots_) {
    if (slot.process == nullptr || !slot.process->wants_keepalive()) continue;
    any = true;
    if (due) slot.process->keep_alive();
  }
  if (due) keepalive_at_ = now + launch::kKeepalive;
  return any ? std::optional(keepalive_at_) : std::nullopt;
}

std::optional<Moment> JobServers::look(Moment now) {
  std::optional<Moment> again = keep_alive(now);
  for (auto& [id, slot] : slots_) {
    if (slot.process != nullptr) see_end(id, slot, now);
    if (!slot.start_at) continue;
    if (*slot.start_at > now) {
      again = std::min(again.value_or(*slot.start_at), *slot.start_at);
      continue;
    }
    launch::note_restart(now, slot.history, slot.verdict, restarts_);
    if (const auto started = start_slot(id, slot, now); !started.ok()) {
      log_.warning("{} cannot be started: {}", id, started.error().message());
      slot.start_at = now + 1s;
      again = std::min(again.value_or(*slot.start_at), *slot.start_at);
    }
  }
  return again;
}

void JobServers::send(int number) {
  for (auto& [id, slot] : slots_) {
    if (slot.process != nullptr) slot.process->send(number);
  }
}

void JobServers::see_end(const std::string& id, Slot& slot, Moment now) {
  const auto seen = launch::reap(slot.process->pid());
  if (!seen) return;
  const launch::Ending ending = slot.process->ending(*seen);
  // Else its lease decides.
  if (has_surely_ended(*slot.process, *seen)) registry_->ended(id);
  slot.process.reset();
  slot.verdict = launch::after_end(now, slot.history, ending, restarts_);
  log_.info("parameter server {} {}", id, slot.verdict.reason);
  news_.event(fmt::format("{} {}", id, slot.verdict.reason));
  const auto words = starter_->last_words(id, 3);
  if (!words.empty()) log_.info("it said: {}", words);
  using launch::Then;
  const Then then = slot.verdict.then;
  if (then == Then::kEndJob || then == Then::kGiveUp) return lose(id, slot, ending, now);
  // The job goes on, so it is needed, also if somebody has told it to stop.
  slot.start_at = now + (then == Then::kAgain ? slot.verdict.after : Duration{500ms});
}

// It is not started again.
void JobServers::lose(const std::string& id, const Slot& slot, const launch::Ending& ending,
                      Moment now) {
  constexpr int kLastWords = 20;
  const auto& verdict = slot.verdict;
  if (verdict.then == launch::Then::kGiveUp && others_are_ready(id)) {
    news_.warning(fmt::format(
        "parameter server {} {}; it is not started again, and the job continues with the others",
        id, verdict.reason));
  } else if (!failure_) {
    auto words = starter_->last_words(id, kLastWords);
    failure_ = {id, now, ending, verdict.reason, std::move(words), "parameter server"};
  }
}

// If one of them is, they have all shards together. Its own slot must not be lost too.
bool JobServers::others_are_ready(const std::string& id) const {
  if (copies_ < 2) return false;
  const auto map = registry_->map();
  return std::ranges::any_of(map.servers, [&](const ps::ServerEntry& server) {
    const auto slot = slots_.find(server.key.id);
    const bool ended = slot != slots_.end() && slot->second.process == nullptr;
    return server.ready && server.key.id != id && !ended;
  });
}

}  // namespace muster::cli
