#include "muster/ps/simulation/step_client.h"

#include <algorithm>
#include <deque>

#include <fmt/format.h>

#include "muster/ps/simulation/cluster.h"
#include "muster/ps/simulation/reference.h"

namespace muster::ps::simulation {

using namespace std::chrono_literals;

namespace {

PushHeader header_of(uint64_t era, int64_t step, uint64_t lane) {
  return {.kind = PushKind::kAdd,
          .lane = static_cast<uint16_t>(lane),
          .table = kRowTable,
          .era = era,
          .step = step,
          .lr = kRate};
}

std::string commit_bytes(uint64_t era, int64_t step) {
  return push_bytes({.kind = PushKind::kCommit, .era = era, .step = step}, {}, {});
}

std::vector<float> gradient_of(uint64_t era, int64_t step, uint64_t lane,
                               const std::vector<float>& rows) {
  std::vector<float> gradient;
  for (size_t i = 0; i < rows.size(); ++i) {
    gradient.push_back(0.25F * rows[i] + noise(era, static_cast<uint64_t>(step), lane, i));
  }
  return gradient;
}

}  // namespace

// ---- One worker.

// Servers are told of a step when all know that it is committed. A group that was just formed tells
// them again: whoever had to may be lost.
void StepClient::publish(bool last) {
  if (position_ == 0) return run_lane(rank());
  barrier([this, last] {
    if (rank() == 0 || world().chance(0.2)) commit(step() - 1);
    if (last) return stop();
    save_sometimes(step(), [this] { run_lane(rank()); });
  });
}

void StepClient::commit(int64_t step) { push_to_all(commit_bytes(era(), step)); }

// This one and those after it that are this worker's.
void StepClient::run_lane(uint64_t lane) {
  if (leave()) return;
  if (lane >= training_.lanes()) return wait([this] { agree(); });
  const auto keys = some_keys(position_, lane);
  // Whoever had to tell the servers of the last commits may be lost.
  const auto commit_again = [this] {
    for (int64_t at = std::max<int64_t>(version() - 1, 0); at < step(); ++at) commit(at);
  };
  read(
      kRowTable, keys, version(),
      [this, lane, keys](const RowsRead& rows) { add(lane, keys, rows); }, commit_again,
      /*exactly=*/true);
}

void StepClient::add(uint64_t lane, const std::vector<uint64_t>& keys, const RowsRead& rows) {
  const auto other =
      std::ranges::find_if(rows.clocks, [&](int64_t clock) { return clock != version(); });
  if (other != rows.clocks.end()) {
    // The others may have given this worker up, and gone on.
    if (is_current()) {
      fail(fmt::format("client {} wants rows after {} steps, and gets those after {}",
                       client().place, version(), *other));
    }
    leave();
    return;
  }
  training_.note_lane(position_, lane);
  push(header_of(era(), step(), lane), keys, gradient_of(era(), step(), lane, rows.weights));
  const uint64_t next = lane + group().members.size();
  sleep(world().between(0ms, 20ms), [this, next] { run_lane(next); });
}

// The commit of a step among the workers; and whether it is the last one.
void StepClient::agree() {
  meet(cluster().is_calm() ? 1 : 0, [this](uint64_t last) {
    ++position_;
    publish(last != 0);
  });
}

// ---- All of them.

StepTraining::StepTraining(Cluster& cluster)
    : Training(cluster),
      lanes_(1 + cluster.world().below(6)),
      staleness_(static_cast<int64_t>(cluster.world().below(kMostStaleness + 1))) {}

void StepTraining::note_lane(uint64_t step, uint64_t lane) {
  if (!pushed_.emplace(step, lane).second) ++cluster().tally().again;
}

std::unique_ptr<Worker> StepTraining::make_worker(ClientProcess& client) {
  return std::make_unique<StepClient>(cluster(), *this, client);
}

std::string StepTraining::check_end(std::span<TableData* const> shards) {
  cluster().tally().steps += groups().position();
  return Training::check_end(shards);
}

std::string StepTraining::check(std::span<TableData* const> shards, uint64_t position,
                                const std::vector<uint64_t>& eras) {
  Reference reference(cluster().shards(), cluster().tables());
  const auto steps = static_cast<int64_t>(position);
  std::deque<std::vector<float>> kept;  // all rows, as they were: the first ones are read
  for (int64_t step = 0; step < steps; ++step) {
    kept.push_back(reference.read(kRowTable, first_keys(kKeys)));
    if (static_cast<int64_t>(kept.size()) > staleness_ + 1) kept.pop_front();
    for (uint64_t lane = lanes_; lane-- > 0;) {  // in any order
      const auto keys = some_keys(static_cast<uint64_t>(step), lane);
      std::vector<float> rows;
      const size_t width = cluster().tables()[kRowTable].width;
      for (const uint64_t key : keys) {
        const auto row = kept.front().begin() + static_cast<std::ptrdiff_t>(key * width);
        rows.insert(rows.end(), row, row + static_cast<std::ptrdiff_t>(width));
      }
      const uint64_t era = eras[static_cast<size_t>(step)];
      reference.push(header_of(0, step, lane), keys, gradient_of(era, step, lane, rows));
    }
    reference.push_to_all(commit_bytes(0, step));
  }
  return reference.compare(shards);
}

}  // namespace muster::ps::simulation
