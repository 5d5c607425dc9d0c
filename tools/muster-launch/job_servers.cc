#include "tools/muster-launch/job_servers.h"

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <thread>
#include <utility>

#include "muster/config/rounds.h"
#include "muster/ps/cold_directory.h"
#include "muster/ps/net/job_setup.h"

#include "tools/muster/worker_process.h"

namespace muster::cli {

using namespace std::chrono_literals;

Result<std::unique_ptr<JobServers>> JobServers::start(const config::Job& job,
                                                      const track::RunDirectory& run,
                                                      const std::string& host,
                                                      const launch::HeldSignals& held, Log& log) {
  if (!config::has_tables(job) || job.tables.servers == 0) return std::unique_ptr<JobServers>();
  std::unique_ptr<JobServers> servers(new JobServers(job, log));
  MUSTER_RETURN_IF_ERROR(servers->begin(job, run.worker_logs(), host, held));
  return servers;
}

JobServers::JobServers(const config::Job& job, Log& log) : log_(log) {
  restarts_.most = job.workers.restarts;
}

Status JobServers::begin(const config::Job& job, const std::string& logs, const std::string& host,
                         const launch::HeldSignals& held) {
  MUSTER_TRY(const auto program, find_program("muster-server"));
  const auto& tables = job.tables;
  ps::RegistryServiceOptions options;
  options.address = host + ":0";
  options.setup = ps::setup_of(job);
  options.registry.first = static_cast<size_t>(tables.servers);
  // As for workers. One whose process ends is noticed at once.
  options.registry.patience =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(job.workers.lease));
  options.registry.lease = options.registry.patience * 17 / 20;
  MUSTER_TRY(registry_, ps::RegistryService::start(std::move(options), clock_));
  std::vector<std::string> words = {"--registry", address(),  "--host",
                                    host,         "--listen", host + ":0"};
  if (tables.memory > 0) words.insert(words.end(), {"--memory", std::to_string(tables.memory)});
  if (!tables.disk.empty()) disk_ = std::filesystem::absolute(tables.disk).string();
  if (!disk_.empty()) words.insert(words.end(), {"--disk", disk_});
  starter_ = std::make_unique<launch::LocalStarter>(
      launch::LocalOptions{program, std::move(words), logs}, held);
  const Moment now = SystemClock().now();
  for (int64_t i = 0; i < tables.servers; ++i) {
    const auto id = fmt::format("server{}", i);
    MUSTER_RETURN_IF_ERROR(start_slot(id, slots_[id], now));
  }
  log_.info("{} parameter servers; their registry listens on {}", tables.servers, address());
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

std::optional<Moment> JobServers::look(Moment now) {
  std::optional<Moment> again;
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
    }
  }
  return again;
}

void JobServers::see_end(const std::string& id, Slot& slot, Moment now) {
  const auto ending = launch::reap(slot.process->pid());
  if (!ending) return;
  slot.process.reset();
  registry_->ended(id);
  slot.verdict = launch::after_end(now, slot.history, *ending, restarts_);
  log_.info("parameter server {} {}", id, slot.verdict.reason);
  const auto words = starter_->last_words(id, 3);
  if (!words.empty()) log_.info("it said: {}", words);
  // The job goes on, so it is needed, also if somebody has told it to stop.
  const bool left = slot.verdict.then == launch::Then::kLeft;
  if (slot.verdict.then == launch::Then::kAgain || left) {
    slot.start_at = now + (left ? Duration{500ms} : slot.verdict.after);
  }
}

}  // namespace muster::cli
