#include "muster/roster/types.h"

#include <algorithm>
#include <set>
#include <unordered_map>

namespace muster::roster {

RosterNumber number_after(RosterNumber highest, uint64_t term) {
  // The count goes on for people's sake. Should it fill its bits, it carries into the term, which a
  // coordinator of a later millisecond is still above.
  const RosterNumber own = (term << kSequenceBits) | (sequence_of(highest) + 1);
  return std::max(own, highest + 1);
}

const Member* Roster::find(const WorkerKey& key) const {
  const auto found = std::ranges::find(members, key, &Member::key);
  return found == members.end() ? nullptr : &*found;
}

int Roster::rank_of(const WorkerKey& key) const {
  const Member* member = find(key);
  return member ? static_cast<int>(member - members.data()) : -1;
}

bool Roster::is_leaving(const WorkerKey& key) const {
  return std::ranges::find(leaving, key) != leaving.end();
}

std::vector<const Member*> Roster::group(std::string_view name) const {
  std::vector<const Member*> result;
  for (const Member& member : members) {
    if (std::ranges::find(member.groups, name) != member.groups.end()) result.push_back(&member);
  }
  return result;
}

std::string_view Member::site() const {
  const auto found = std::ranges::find_if(
      groups, [](const std::string& group) { return group.starts_with(kSite); });
  return found == groups.end() ? std::string_view() : *found;
}

Room::Room(const Options& options, const std::vector<Member>& members) : options_(options) {
  for (const Member& member : members) {
    if (options.computes_lanes(member.role)) take(member);
  }
}

bool Room::has_place(const Member& trainer) const {
  if (options_.max_workers > 0 && trainers_ >= options_.max_workers) return false;
  const auto site = sites_.find(trainer.site());
  return site != sites_.end() ? site->second < options_.site_workers : parties_ < options_.lanes;
}

void Room::take(const Member& trainer) {
  ++trainers_;
  const auto site = trainer.site();
  if (site.empty() || ++sites_[std::string(site)] == 1) ++parties_;
}

std::vector<std::string> Options::groups_of(const RoleOptions& role,
                                            const std::string& site) const {
  std::vector<std::string> groups = role.groups;
  if (role.computes_lanes && site_workers > 1 && !site.empty()) {
    groups.push_back(std::string(kSite) + site);
  }
  return groups;
}

Status check_roster(const Roster& roster, int32_t lanes) {
  const auto wrong = [&](std::string_view what) {
    return Error(ErrorKind::kInternal, "roster {}: {}", sequence_of(roster.number), what);
  };
  std::unordered_map<std::string_view, int> ids;
  std::vector<bool> given(static_cast<size_t>(std::max(lanes, 0)), false);
  size_t count = 0;
  for (const Member& member : roster.members) {
    if (member.key.id.empty() || ++ids[member.key.id] > 1) return wrong("an id is empty or double");
    if (member.lane_threads < 1) return wrong("a member computes no lane at a time");
    const std::set<std::string_view> groups(member.groups.begin(), member.groups.end());
    if (groups.empty() || groups.size() < member.groups.size()) {
      return wrong("a member is in no group, or twice in one");
    }
    for (const int32_t lane : member.lanes) {
      if (lane < 0 || lane >= lanes || given[static_cast<size_t>(lane)]) {
        return wrong("a lane is given out twice, or does not exist");
      }
      given[static_cast<size_t>(lane)] = true;
      ++count;
    }
  }
  if (count != (roster.waiting ? 0 : given.size())) return wrong("not every lane is given out");
  return {};
}

namespace {

// Appends values in a form that no two different sequences share.
class Canonical {
 public:
  void add(uint64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void add(std::string_view text) {
    add(text.size());
    bytes_.append(text);
  }
  void add(const WorkerKey& key) {
    add(key.id);
    add(key.incarnation);
  }
  uint64_t hash() const { return hash64(bytes_.data(), bytes_.size()); }

 private:
  std::string bytes_;
};

}  // namespace

uint64_t Roster::checksum() const {
  Canonical all;
  all.add(number);
  all.add(job);
  all.add(waiting ? 1 : 0);
  all.add(invalid_through);
  all.add(members.size());
  for (const Member& member : members) {
    all.add(member.key);
    all.add(member.host);
    all.add(static_cast<uint64_t>(member.lane_threads));
    all.add(member.lanes.size());
    for (const int32_t lane : member.lanes) all.add(static_cast<uint64_t>(lane));
    all.add(member.role);
    all.add(member.groups.size());
    for (const std::string& group : member.groups) all.add(group);
  }
  all.add(leaving.size());
  for (const WorkerKey& key : leaving) all.add(key);
  all.add(reason);
  return all.hash();
}

namespace {

// Finds members by key; for many members, without looking at all of them each time.
class Finder {
 public:
  explicit Finder(const std::vector<Member>& members)
      : members_(members), few_(members.size() <= kFew) {
    if (few_) return;
    for (const Member& member : members) index_.emplace(member.key.id, &member);
  }
  const Member* find(const WorkerKey& key) const {
    if (few_) {
      const auto found = std::ranges::find(members_, key, &Member::key);
      return found == members_.end() ? nullptr : &*found;
    }
    const auto found = index_.find(key.id);
    return found != index_.end() && found->second->key == key ? found->second : nullptr;
  }

 private:
  static constexpr size_t kFew = 16;
  const std::vector<Member>& members_;
  const bool few_;  // as it was made: members may be appended since
  std::unordered_map<std::string_view, const Member*> index_;
};

}  // namespace

RosterDiff difference(const Roster& from, const Roster& to) {
  const Finder before(from.members);
  const Finder after(to.members);
  RosterDiff diff{.base = from.number,
                  .number = to.number,
                  .job = to.job,
                  .waiting = to.waiting,
                  .invalid_through = to.invalid_through,
                  .removed = {},
                  .changed = {},
                  .leaving = to.leaving,
                  .reason = to.reason,
                  .checksum = to.checksum()};
  for (const Member& member : from.members) {
    if (!after.find(member.key)) diff.removed.push_back(member.key);
  }
  for (const Member& member : to.members) {
    const Member* old = before.find(member.key);
    if (!old || *old != member) diff.changed.push_back(member);
  }
  return diff;
}

Result<Roster> apply(const Roster& roster, const RosterDiff& diff) {
  Roster next;
  if (diff.base != 0) {
    if (diff.base != roster.number) {
      return Error(ErrorKind::kInternal,
                   "a difference to roster {} came, but the one at hand is {}", diff.base,
                   roster.number);
    }
    next.members = roster.members;
  }
  next.number = diff.number;
  next.job = diff.job;
  next.waiting = diff.waiting;
  next.invalid_through = diff.invalid_through;
  next.leaving = diff.leaving;
  next.reason = diff.reason;
  std::unordered_map<std::string_view, uint64_t> removed;
  for (const WorkerKey& key : diff.removed) removed.emplace(key.id, key.incarnation);
  std::erase_if(next.members, [&](const Member& member) {
    const auto found = removed.find(member.key.id);
    return found != removed.end() && found->second == member.key.incarnation;
  });
  next.members.reserve(next.members.size() + diff.changed.size());  // Finder points into it
  const Finder kept(next.members);
  for (const Member& member : diff.changed) {
    if (const Member* old = kept.find(member.key)) {
      next.members[static_cast<size_t>(old - next.members.data())] = member;
    } else {
      next.members.push_back(member);
    }
  }
  if (next.checksum() != diff.checksum) {
    return Error(ErrorKind::kInternal, "the difference to roster {} does not give roster {}",
                 diff.base, diff.number);
  }
  return next;
}

std::string Position::text() const {
  if (attempt == 0) return fmt::format("step {}", step);
  return fmt::format("step {} (attempt {} of the next)", step, attempt + 1);
}

std::string_view activity_name(Activity activity) {
  switch (activity) {
    case Activity::kIdle:
      return "idle";
    case Activity::kForming:
      return "forming";
    case Activity::kComputing:
      return "computing";
    case Activity::kWaiting:
      return "waiting";
    case Activity::kLeft:
      return "left";
  }
  return "unknown";
}

std::string_view removal_cause_name(RemovalCause cause) {
  switch (cause) {
    case RemovalCause::kLeft:
      return "left";
    case RemovalCause::kExited:
      return "exited";
    case RemovalCause::kDisconnected:
      return "disconnected";
    case RemovalCause::kLeaseExpired:
      return "lease expired";
    case RemovalCause::kHung:
      return "hung";
    case RemovalCause::kQuarantined:
      return "quarantined";
    case RemovalCause::kFaulty:
      return "faulty";
  }
  return "unknown";
}

namespace {

// Little-endian whatever the machine: a report crosses machines.
void put(std::string& out, uint64_t value) {
  for (int byte = 0; byte < 8; ++byte) out.push_back(static_cast<char>(value >> (8 * byte)));
}

uint64_t take(std::string_view& in) {
  uint64_t value = 0;
  for (int byte = 0; byte < 8; ++byte) {
    value |= uint64_t{static_cast<unsigned char>(in[static_cast<size_t>(byte)])} << (8 * byte);
  }
  in.remove_prefix(8);
  return value;
}

constexpr uint64_t kReportVersion = 2;

}  // namespace

std::string StateReport::encode() const {
  std::string out;
  out.reserve(kBytes);
  const uint64_t flags = (has_state ? 1U : 0U) | (holds_sums ? 2U : 0U) | (has_message ? 4U : 0U);
  put(out, kReportVersion << 32 | flags);
  put(out, position.step);
  put(out, message_of.step);
  put(out, uint64_t{position.attempt} << 32 | message_of.attempt);
  put(out, restorable);
  put(out, rollback.number);
  put(out, rollback.step);
  put(out, hash64(out.data(), out.size()));
  return out;
}

Result<StateReport> StateReport::decode(std::string_view bytes) {
  if (bytes.size() != kBytes) {
    return Error(ErrorKind::kInternal, "a peer's report has {} bytes, not {}", bytes.size(),
                 kBytes);
  }
  const uint64_t hash = hash64(bytes.data(), kBytes - 8);
  const uint64_t head = take(bytes);
  if (head >> 32 != kReportVersion) {
    return Error(ErrorKind::kInternal,
                 "a peer's report is of version {}, not {}: all workers must run the same Muster",
                 head >> 32, kReportVersion);
  }
  StateReport report;
  report.has_state = (head & 1) != 0;
  report.holds_sums = (head & 2) != 0;
  report.has_message = (head & 4) != 0;
  report.position.step = take(bytes);
  report.message_of.step = take(bytes);
  const uint64_t attempts = take(bytes);
  report.position.attempt = static_cast<uint32_t>(attempts >> 32);
  report.message_of.attempt = static_cast<uint32_t>(attempts);
  report.restorable = take(bytes);
  report.rollback.number = take(bytes);
  report.rollback.step = take(bytes);
  if (take(bytes) != hash) return Error(ErrorKind::kInternal, "a peer's report is damaged");
  return report;
}

const RoleOptions* Options::role(std::string_view name) const {
  const auto found = std::ranges::find(roles, name, &RoleOptions::name);
  return found == roles.end() ? nullptr : &*found;
}

bool Options::computes_lanes(std::string_view role_name) const {
  const RoleOptions* found = role(role_name);
  return found != nullptr && found->computes_lanes;
}

int32_t Options::trainers(const std::vector<Member>& members) const {
  return static_cast<int32_t>(std::ranges::count_if(
      members, [this](const Member& member) { return computes_lanes(member.role); }));
}

Status Options::validate() const {
  const auto wrong = [](std::string_view what) {
    return Error(ErrorKind::kJob, "workers: {}", what);
  };
  if (lanes < 1) return wrong("a job has at least one lane");
  if (min_workers < 1) return wrong("min must be at least 1");
  if (max_workers != 0 && max_workers < min_workers) return wrong("max must not be below min");
  if (min_workers > lanes) {
    return Error(ErrorKind::kJob, "workers: min is {}, but there are only {} lanes to share",
                 min_workers, lanes);
  }
  if (heartbeat <= Duration{0} || lease < 2 * heartbeat) {
    return wrong("the lease must be at least twice the time between heartbeats");
  }
  if (hang_timeout != Duration{0} && hang_timeout < heartbeat) {
    return wrong("hang_timeout must be 0 (never) or at least the time between two heartbeats");
  }
  if (tries < 1) return wrong("there must be at least one try");
  if (std::ranges::none_of(roles, &RoleOptions::computes_lanes)) {
    return wrong("a job needs a role that computes lanes");
  }
  std::set<std::string_view> names;
  for (const RoleOptions& one : roles) {
    const std::set<std::string_view> groups(one.groups.begin(), one.groups.end());
    if (!names.insert(one.name).second || groups.empty() || groups.size() < one.groups.size()) {
      return wrong("roles need different names, and each some different groups");
    }
  }
  return {};
}

}  // namespace muster::roster
