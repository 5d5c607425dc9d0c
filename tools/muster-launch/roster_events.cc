#include "tools/muster-launch/roster_events.h"

#include <string_view>
#include <unordered_map>

#include "tools/muster-launch/status_text.h"

namespace muster::cli {
namespace {

using Json = nlohmann::ordered_json;

// Null: no members.
std::unordered_map<std::string_view, const roster::Member*> by_id(const roster::Roster* roster) {
  std::unordered_map<std::string_view, const roster::Member*> members;
  if (roster == nullptr) return members;
  for (const auto& member : roster->members) members.emplace(member.key.id, &member);
  return members;
}

}  // namespace

void RosterEvents::roster(const roster::Issued& issued) {
  const roster::Roster& now = *issued.roster;
  Json line = {{"event", "roster"},
               {"roster", roster::sequence_of(now.number)},
               {"step", issued.step},
               {"reason", now.reason},
               {"waiting", now.waiting}};
  const auto before = by_id(told_.get());
  const auto present = by_id(&now);
  Json members = Json::object();
  for (const auto& member : now.members) {
    const auto found = before.find(member.key.id);
    if (found != before.end() && found->second->key == member.key &&
        found->second->lanes == member.lanes && found->second->host == member.host) {
      continue;
    }
    members[member.key.id] = {{"lanes", lanes_text(member.lanes)}, {"host", member.host}};
  }
  if (told_ == nullptr) {
    line["all"] = true;
  } else {
    auto removed = Json::array();
    for (const auto& member : told_->members) {
      if (!present.contains(member.key.id)) removed.push_back(member.key.id);
    }
    line["removed"] = std::move(removed);
  }
  line["members"] = std::move(members);
  log_.write(line);
  told_ = issued.roster;
}

void RosterEvents::gone(const roster::Gone& gone) {
  log_.write({{"event", "gone"},
              {"worker", gone.key.id},
              {"cause", roster::removal_cause_name(gone.cause)},
              {"reason", gone.reason}});
}

void RosterEvents::event(const roster::Event& event) {
  // "worker ID was removed: ..." and "worker ID has left": gone() says so.
  const bool is_gone =
      event.text.starts_with("worker ") &&
      (event.text.find(" was removed: ") != std::string::npos || event.text.ends_with(" has left"));
  if (event.text.starts_with("roster ") || is_gone) return;
  log_.write({{"event", "note"}, {"text", event.text}});
}

}  // namespace muster::cli
