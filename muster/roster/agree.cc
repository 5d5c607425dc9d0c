#include "muster/roster/agree.h"

#include <algorithm>
#include <optional>

#include "muster/base/check.h"

namespace muster::roster {

std::string_view action_name(Action action) {
  switch (action) {
    case Action::kGoOn:
      return "go on";
    case Action::kRollForward:
      return "roll forward";
    case Action::kReceive:
      return "receive";
    case Action::kRestore:
      return "restore";
  }
  return "unknown";
}

bool Agreement::any(Action action) const {
  return std::ranges::find(actions, action) != actions.end();
}

namespace {

// The newest position that anybody has in memory; nothing if nobody has a state.
std::optional<Position> newest_state(std::span<const StateReport> reports) {
  std::optional<Position> newest;
  for (const StateReport& report : reports) {
    if (report.has_state && (!newest || report.position > *newest)) newest = report.position;
  }
  return newest;
}

uint64_t newest_checkpoint(std::span<const StateReport> reports) {
  return std::ranges::max(reports, {}, &StateReport::restorable).restorable;
}

// Those with the newest checkpoint load it, and give it to the others. `left`: the newest state
// that is given up for it, if there is one.
Agreement restore(std::span<const StateReport> reports, std::optional<Position> left) {
  Agreement result;
  const uint64_t newest = newest_checkpoint(reports);
  result.position = {.step = newest, .attempt = 0};
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const bool has = reports[rank].restorable == newest;
    result.actions.push_back(has ? Action::kRestore : Action::kReceive);
    if (has) result.sources.push_back(static_cast<int>(rank));
  }
  if (left) {
    result.reason =
        fmt::format("from the checkpoint of step {}, which is newer than any state (after {})",
                    newest, left->text());
  } else if (newest == 0) {
    result.reason = "nobody has a state: all begin at the beginning";
  } else {
    result.reason = fmt::format("nobody has a state: from the checkpoint of step {}", newest);
  }
  return result;
}

// A worker that has not heard of the last rollback may have a state that is invalid: it is treated
// like one that begins.
std::vector<StateReport> without_invalid(std::span<const StateReport> reports,
                                         const Rollback& last) {
  std::vector<StateReport> result(reports.begin(), reports.end());
  for (StateReport& report : result) {
    if (report.rollback != last) report = StateReport{};
  }
  return result;
}

Agreement agree_on(std::span<const StateReport> reports) {
  const auto newest = newest_state(reports);
  if (!newest || newest->step < newest_checkpoint(reports)) return restore(reports, newest);

  Agreement result;
  result.position = *newest;
  // The commit that led to the newest position, as one who saw it has it. Anyone's will do: equal
  // positions have equal histories.
  Position before;
  for (size_t rank = 0; rank < reports.size() && result.message_from < 0; ++rank) {
    const StateReport& report = reports[rank];
    if (report.has_state && report.position == result.position && report.has_message) {
      result.message_from = static_cast<int>(rank);
      before = report.message_of;
    }
  }
  int rolls = 0;
  int receives = 0;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const StateReport& report = reports[rank];
    Action action = Action::kReceive;
    if (report.has_state && report.position == result.position) {
      action = Action::kGoOn;
    } else if (report.has_state && report.holds_sums && result.message_from >= 0 &&
               report.position == before) {
      action = Action::kRollForward;
      ++rolls;
    } else {
      ++receives;
    }
    result.actions.push_back(action);
    if (action != Action::kReceive) result.sources.push_back(static_cast<int>(rank));
  }
  if (rolls == 0) result.message_from = -1;
  result.reason = fmt::format("all go on from {}", result.position.text());
  if (rolls > 0) result.reason += fmt::format(", {} by rolling forward", rolls);
  if (receives > 0) result.reason += fmt::format(", {} by taking over the state", receives);
  return result;
}

}  // namespace

Agreement agree(std::span<const StateReport> given) {
  MUSTER_CHECK(!given.empty(), "an agreement needs a member");
  const Rollback rollback = std::ranges::max(given, {}, &StateReport::rollback).rollback;
  Agreement result = agree_on(without_invalid(given, rollback));
  result.rollback = rollback;
  return result;
}

std::vector<Stripe> stripes(uint64_t bytes, std::span<const int> sources, int receiver,
                            uint64_t align, size_t most) {
  MUSTER_CHECK(!sources.empty() && align > 0 && most > 0, "stripes need a source");
  const size_t used = std::min(sources.size(), most);
  const size_t first = sources.size() > most ? static_cast<size_t>(receiver) % sources.size() : 0;
  const uint64_t units = (bytes + align - 1) / align;
  std::vector<Stripe> result;
  uint64_t offset = 0;
  for (size_t i = 0; i < used; ++i) {
    const uint64_t share = units / used + (i < units % used ? 1 : 0);
    const uint64_t size = std::min(share * align, bytes - offset);
    if (size == 0) continue;
    result.push_back(
        {.source = sources[(first + i) % sources.size()], .offset = offset, .bytes = size});
    offset += size;
  }
  return result;
}

}  // namespace muster::roster
