#include "muster/roster/status.h"

#include <algorithm>
#include <utility>

#include "muster/roster/registrar.h"

namespace muster::roster {

namespace {

std::string standing_of(Moment now, const WorkerState& worker, const Registrar& registrar) {
  const State& state = registrar.state();
  const Options& options = registrar.options();
  if (state.current.has(worker.key())) return worker.beat.leaving ? "leaving" : "member";
  if (worker.beat.leaving) return "leaving";
  const auto bar = state.bars.find(worker.key().id);
  if (bar != state.bars.end() && now < bar->second.until) return "barred";
  const auto members = static_cast<int32_t>(state.current.members.size());
  return members >= options.most_workers() ? "spare" : "joining";
}

}  // namespace

StatusReport status_of(Moment now, const Registrar& registrar) {
  const State& state = registrar.state();
  StatusReport report;
  report.roster = state.current;
  report.standing = registrar.standing();
  const Options& options = registrar.options();
  report.job = options.job;
  report.lanes = options.lanes;
  report.min_workers = options.min_workers;
  report.max_workers = options.most_workers();
  report.step = registrar.step();
  report.finished = state.ended && state.ended->finished;
  if (state.ended) report.ended = state.ended->reason;
  report.up = now - state.started;
  for (const auto& [id, worker] : state.workers) {
    WorkerStatus status;
    if (const Member* member = state.current.find(worker.key())) {
      status.member = *member;
    } else {
      status.member.key = worker.key();
      status.member.host = worker.join.host;
      status.member.slots = worker.join.slots;
    }
    status.standing = standing_of(now, worker, registrar);
    status.beat = worker.beat;
    status.lane_seconds = worker.lane_seconds;
    status.heard_ago = now - worker.heard;
    status.process = worker.join.process;
    report.workers.push_back(std::move(status));
  }
  std::ranges::sort(report.workers, {}, [&](const WorkerStatus& status) {
    const int rank = state.current.rank_of(status.member.key);
    const int place = rank < 0 ? static_cast<int>(state.current.members.size()) : rank;
    return std::pair(place, status.member.key.id);
  });
  for (const Event& event : registrar.events()) {
    report.events.push_back({now - event.when, event.roster, event.text});
  }
  return report;
}

}  // namespace muster::roster
