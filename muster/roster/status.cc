#include "muster/roster/status.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "muster/roster/registrar.h"

namespace muster::roster {

namespace {

std::string standing_of(Moment now, const WorkerState& worker, const Registrar& registrar,
                        bool member) {
  const State& state = registrar.state();
  const Options& options = registrar.options();
  if (worker.beat.leaving) return "leaving";
  if (member) return "member";
  const auto quarantine = state.quarantines.find(worker.key().id);
  if (quarantine != state.quarantines.end() && now < quarantine->second.until) return "quarantined";
  const RoleOptions* role = options.role(worker.join.role);
  if (role == nullptr || !role->computes_lanes) return "joining";
  Member candidate;
  candidate.groups = options.groups_of(*role, worker.join.site);
  return Room(options, state.current.members).has_place(candidate) ? "joining" : "spare";
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
  // By rank, found once: with a thousand workers, looking through the members for each of them
  // takes longer than all the rest.
  std::unordered_map<std::string_view, size_t> ranks;
  for (size_t rank = 0; rank < state.current.members.size(); ++rank) {
    ranks.emplace(state.current.members[rank].key.id, rank);
  }
  std::vector<std::pair<size_t, size_t>> order;  // rank, place in report.workers
  for (const auto& [id, worker] : state.workers) {
    WorkerStatus status;
    const auto rank = ranks.find(id);
    const bool member =
        rank != ranks.end() && state.current.members[rank->second].key == worker.key();
    order.emplace_back(member ? rank->second : state.current.members.size(), order.size());
    if (member) {
      status.member = state.current.members[rank->second];
    } else {
      status.member.key = worker.key();
      status.member.host = worker.join.host;
      status.member.lane_threads = worker.join.lane_threads;
      status.member.role = worker.join.role;
      status.member.groups.clear();
    }
    status.standing = standing_of(now, worker, registrar, member);
    status.beat = worker.beat;
    status.lane_seconds = worker.lane_seconds;
    status.heard_ago = now - worker.heard;
    status.process = worker.join.process;
    report.workers.push_back(std::move(status));
  }
  // The workers are in the order of their ids: those that are no members stay so.
  std::ranges::sort(order);
  std::vector<WorkerStatus> sorted;
  sorted.reserve(order.size());
  for (const auto& [rank, place] : order) sorted.push_back(std::move(report.workers[place]));
  report.workers = std::move(sorted);
  for (const Event& event : registrar.events()) {
    report.events.push_back({now - event.when, event.roster, event.text});
  }
  return report;
}

}  // namespace muster::roster
