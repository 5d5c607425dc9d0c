#include "muster/ps/simulation/task_client.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "muster/ps/simulation/cluster.h"

namespace muster::ps::simulation {

using namespace std::chrono_literals;

namespace {
constexpr double kCutShort = 0.01;  // of all times that a worker wants a task
constexpr int64_t kNoPlace = std::numeric_limits<int64_t>::max();  // of interest
}  // namespace

// ---- A round.

// When all know that the round before is committed.
void TaskClient::begin_round() {
  barrier([this] {
    if (rank() == 0) return open();
    meet(0, [this](uint64_t token) { enter_round(token); });
  });
}

void TaskClient::open() {
  order(0, kNoPlace, false, [this](const OrderView& before) {
    const uint64_t token = world().draw() | 1;
    push_order(order_bytes(OpenRound{.openings = before.openings,
                                     .token = token,
                                     .first = tasks_done(),
                                     .end = tasks_done() + training_.tasks(),
                                     .staleness = training_.staleness(),
                                     .pushes = training_.pushes(),
                                     .chain = training_.chain()}));
    wait([this, token, openings = before.openings] {
      order(0, kNoPlace, false, [this, token, openings](const OrderView& after) {
        check_opened(token, openings, after);
      });
    });
  });
}

void TaskClient::check_opened(uint64_t token, uint64_t openings, const OrderView& after) {
  if (after.token == token) {
    world().trace("client {} has opened the round from task {}", client().place, position_);
    return meet(token, [this](uint64_t opened) { enter_round(opened); });
  }
  // The others may have given this worker up, or one that was given up has come between.
  if (is_current() && after.openings == openings) {
    fail(
        fmt::format("client {} cannot open the round from task {}: servers have tasks {} to {}, {} "
                    "of them done",
                    client().place, position_, after.first, after.end, after.finished));
  }
  overtaken();
}

// Another group of workers has gone on with the tasks. This one breaks its own.
void TaskClient::overtaken() {
  world().trace("client {} was overtaken", client().place);
  groups().report(group().number);
  leave();
}

void TaskClient::enter_round(uint64_t token) {
  token_ = token;
  view_ = {};
  told_ = 0;
  refused_at_.reset();
  ticket_ = 0;
  versions_.clear();
  uses_ = 0;
  next();
}

void TaskClient::close() {
  look(true, [this] {
    if (!view_.over()) return fail("a round was over and is not");
    tell_places();
    wait([this] {
      read(kWeightTable, weight_keys(), updates_told(),
           [this](const RowsRead& weights) { commit(weights); }, {});
    });
  });
}

void TaskClient::commit(const RowsRead& weights) {
  const auto other =
      std::ranges::find_if(weights.clocks, [&](int64_t clock) { return clock != updates_told(); });
  if (other != weights.clocks.end()) {
    if (is_current()) {
      fail(fmt::format("client {} wants weights after {} updates, and gets those after {}",
                       client().place, updates_told(), *other));
    }
    return overtaken();
  }
  meet(cluster().is_calm() ? 1 : 0, [this](uint64_t last) {
    position_ = static_cast<uint64_t>(view_.end);
    if (last != 0) return stop();
    save_sometimes(updates_told(), [this] { begin_round(); });
  });
}

// Somebody who was given up may have opened a round while rows were saved (TaskRows::save).
void TaskClient::check_position(uint64_t position, const Then& then) {
  order(0, kNoPlace, false, [this, position, then](const OrderView& view) {
    if (view.end == static_cast<int64_t>(position) && view.over()) return then();
    if (is_current()) fail(fmt::format("servers are not at task {} any more", position));
    overtaken();
  });
}

// ---- Tasks.

void TaskClient::look(bool results, Then then) {
  order(rank(), told_, results, [this, then = std::move(then)](const OrderView& view) {
    view_ = view;
    view_.token == token_ ? then() : overtaken();
  });
}

// Before it reads, a worker tells all shards the places that it knows of, and reads when they are
// there: so it need not wait for somebody who may be lost.
void TaskClient::tell_places() {
  if (view_.ordered.empty()) return;
  PlacedPushes placed{
      .first = view_.from, .pushes = training_.pushes(), .oldest = view_.oldest, .placed = {}};
  for (const auto& ordered : view_.ordered) {
    placed.placed.push_back(
        {ordered.ticket, training_.weight_of(ordered.staleness), training_.compensation()});
  }
  told_ = view_.places();
  push_to_all(apply_bytes(era(), placed));
}

void TaskClient::next() {
  if (ticket_ != 0) {
    // It gets its place when all of it is there.
    return wait([this] { finish_and_take(); });
  }
  if (!refused_at_) return finish_and_take();
  // Asking again is of no use before another task is finished.
  look(false, [this] {
    if (*refused_at_ == view_.finished) return idle();
    finish_and_take();
  });
}

void TaskClient::finish_and_take() {
  if (world().chance(kCutShort)) {
    push_order(order_bytes(CutRound{.token = token_, .unit = TaskTraining::kStep}));
  }
  push_order(order_bytes(NextTask{.token = token_,
                                  .worker = rank(),
                                  .done = ticket_,
                                  .result = ticket_ != 0 ? result_ : TaskResult{},
                                  .versions = std::exchange(versions_, {})}));
  wait([this] {
    look(false, [this] {
      tell_places();
      begin_task();
    });
  });
}

void TaskClient::begin_task() {
  ticket_ = view_.ticket;
  task_ = view_.task;
  versions_.clear();
  refused_at_.reset();
  if (ticket_ == 0) {
    refused_at_ = view_.finished;
    return idle();
  }
  if (training_.staleness() >= 0 && task_ - view_.first - view_.finished > training_.staleness()) {
    return fail(fmt::format("task {} was given when {} tasks were done", task_, view_.finished));
  }
  if (leave()) return;
  world().trace("client {} has task {}, ticket {}", client().place, task_, ticket_);
  fetch();
}

// There is no task for now.
void TaskClient::idle() {
  if (view_.over()) return close();
  // Whoever is lost may have a task that the others wait for.
  if (leave()) return;
  sleep(world().between(1ms, 10ms), [this] { next(); });
}

void TaskClient::fetch() {
  const auto fetched = [this] {
    uses_ = (uses_ + 1) % training_.fetch();
    versions_.push_back(weights_.clocks);
    read_rows();
  };
  if (uses_ > 0) return fetched();
  read(kWeightTable, weight_keys(), updates_told(),
       [this, fetched](const RowsRead& weights) {
         weights_ = weights;
         fetched();
       },
       {});
}

void TaskClient::read_rows() {
  const auto keys = row_keys(task_);
  read(kRowTable, keys, updates_told(), [this, keys](const RowsRead& rows) { compute(keys, rows); },
       {});
}

void TaskClient::compute(const std::vector<uint64_t>& keys, const RowsRead& rows) {
  versions_.push_back(rows.clocks);
  const auto gradient = gradient_of(era(), task_, rows.weights, weights_.weights);
  result_ = {};
  result_.samples = 1;
  result_.used = gradient.hash;
  // It may be lost when a part of it is pushed.
  sleep(world().between(0ms, 20ms), [this, keys, gradient, read = rows.weights] {
    push(training_.stage_header(era(), kRowTable, ticket_), keys,
         training_.with_reads(kRowTable, gradient.rows, read));
    sleep(world().between(0ms, 5ms), [this, gradient] {
      push(training_.stage_header(era(), kWeightTable, ticket_), weight_keys(),
           training_.with_reads(kWeightTable, gradient.weights, weights_.weights));
      next();
    });
  });
}

}  // namespace muster::ps::simulation
