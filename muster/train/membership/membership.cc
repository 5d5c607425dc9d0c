#include "muster/train/membership/membership.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <string_view>

#include <fmt/ranges.h>

#include "muster/base/check.h"
#include "muster/base/fault_point.h"
#include "muster/comm/two_level_group.h"
#include "muster/config/rounds.h"

namespace muster::train {

using roster::Activity;
using roster::Instruction;

// How often a worker that waits looks whether it shall give up.
constexpr auto kLook = std::chrono::milliseconds(100);

// Where the members of a group of one roster exchange their addresses: at the coordinator.
class Membership::CoordinatorRendezvous final : public comm::Rendezvous {
 public:
  CoordinatorRendezvous(roster::Client& client, roster::RosterNumber roster, std::string group)
      : client_(client), roster_(roster), group_(std::move(group)) {}
  // The coordinator ends it if a member does not come, so the deadline is not needed.
  Result<std::vector<std::string>> exchange(int, int, const std::string& blob, Moment,
                                            std::stop_token stop) override {
    MUSTER_TRY(auto all, client_.exchange(roster_, group_, blob, stop));
    fault_point(FaultPoint::kForming);
    return all;
  }

 private:
  roster::Client& client_;
  const roster::RosterNumber roster_;
  const std::string group_;
};

namespace {

// With float sums, members that round differently, or evaluations by the clock, two groups may
// reach one position with states that differ. A worker that was removed must then not contribute
// its own.
bool bits_follow_from_position(const config::Job& job) {
  return job.sync.reduction == "exact" && job.numerics == "exact" &&
         job.eval.every.unit != config::Every::Unit::kSeconds &&
         !config::has_tables(job);  // they have gone on with the others
}

// By site, in the order of their first members: ranks. One without a site is alone at its own.
std::vector<std::vector<int>> sites_of(const std::vector<const roster::Member*>& members) {
  std::vector<std::vector<int>> sites;
  std::map<std::string_view, size_t> known;
  for (size_t rank = 0; rank < members.size(); ++rank) {
    const std::string_view name = members[rank]->site();
    const auto [found, is_new] =
        name.empty() ? std::pair(known.end(), true) : known.try_emplace(name, sites.size());
    if (is_new) sites.emplace_back();
    sites[is_new ? sites.size() - 1 : found->second].push_back(static_cast<int>(rank));
  }
  return sites;
}

Duration duration(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

Membership::Membership(Session& session, MembershipOptions options, Log& log)
    : session_(session),
      options_(std::move(options)),
      log_(log),
      recovery_(session.strategy(), session.auditor(), vitals_) {}

Membership::~Membership() {
  session_.set_vitals(nullptr);
  client_.reset();  // its thread uses the rest
}

roster::ClientOptions Membership::client_options(const JobFingerprint& fingerprint) {
  roster::ClientOptions client;
  client.addresses = options_.coordinators;
  auto& follower = client.follower;
  follower.join.key.id = options_.id;
  follower.join.job = options_.job;
  follower.join.role = roster::kTrainer;
  follower.join.host = options_.host;
  follower.join.site = options_.site;
  follower.join.lane_threads = session_.strategy().units_at_once();
  follower.join.process = options_.process;
  follower.join.fingerprint = fingerprint;
  follower.orphaned = options_.orphaned;
  follower.hang_timeout = duration(session_.job().workers.hang_timeout);
  client.on_abort = [this](roster::RosterNumber number, const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (forming_ != number) return;
    stop_forming_.request_stop();
    abort_groups(reason);
  };
  client.on_stuck = [this](const std::string& reason) {
    // Its own thread hangs, so nothing can be cleaned up: only this thread still runs.
    log_.error("this worker was removed ({}) and its own thread hangs: it exits", reason);
    _exit(static_cast<int>(ErrorKind::kMachine));
  };
  return client;
}

Result<std::unique_ptr<Membership>> Membership::join(Session& session, MembershipOptions options,
                                                     const Clock& clock, Log& log) {
  MUSTER_RETURN_IF_ERROR(session.begin_fingerprint());
  MUSTER_TRY(const auto fingerprint, session.fingerprint());
  std::unique_ptr<Membership> self(new Membership(session, std::move(options), log));
  MUSTER_TRY(self->device_, comm::GlooDevice::open(self->options_.host));
  MUSTER_TRY(self->client_, roster::Client::start(self->client_options(fingerprint), clock));
  self->vitals_.progress = [raw = self.get()] { raw->client_->progress(); };
  self->vitals_.waiting = [raw = self.get()](bool waits) {
    const auto now = std::chrono::steady_clock::now();
    if (waits) raw->waits_since_ = now;
    if (!waits) raw->waited_ += seconds(now - raw->waits_since_);
    raw->client_->set_activity(waits ? Activity::kWaiting : Activity::kComputing);
  };
  session.set_vitals(&self->vitals_);
  return self;
}

void Membership::abort(const std::string& why) {
  const std::lock_guard lock(mutex_);
  stop_forming_.request_stop();
  abort_groups(why);
}

void Membership::abort_groups(const std::string& why) {
  if (group_) group_->abort(why);
  if (site_) site_->abort(why);
}

Status Membership::combine(std::span<uint8_t> bytes) {
  const WaitingForPeers waiting(vitals_);
  return group_->allreduce_max(bytes, {.timeout = options_.timeout});
}

Result<comm::Links> Membership::measure_links() {
  const WaitingForPeers waiting(vitals_);
  return comm::measure_links(*all_, {.timeout = options_.timeout}, vitals_.progress);
}

Status Membership::barrier() {
  const WaitingForPeers waiting(vitals_);
  return group_->barrier({.timeout = options_.timeout});
}

Result<Membership::Entry> Membership::enter(const Sources& sources) {
  drop_group();
  while (true) {
    if (sources.give_up && sources.give_up()) return Entry{.how = Entry::How::kGaveUp};
    const Instruction next = client_->next(kLook);
    switch (next.kind) {
      case Instruction::Kind::kWait:
        break;
      case Instruction::Kind::kForm: {
        MUSTER_TRY(auto entry, enter_group(next.roster, sources));
        if (!entry) break;
        entry->rejoined = was_removed_;
        was_removed_ = false;
        return *entry;
      }
      case Instruction::Kind::kRejoined:
        log_.warning("this worker was removed: {}; it rejoins", next.reason);
        if (!bits_follow_from_position(session_.job())) recovery_.lose_state();
        was_removed_ = true;
        break;
      case Instruction::Kind::kReleased:
        return Entry{.how = Entry::How::kReleased};
      case Instruction::Kind::kFinished:
      case Instruction::Kind::kStopped:
        return Entry{.how = Entry::How::kFinished};
      case Instruction::Kind::kRefused:
        return Error(ErrorKind::kRefused, "the coordinator does not accept this worker: {}",
                     next.reason);
      case Instruction::Kind::kOrphaned:
        return Error(ErrorKind::kMachine,
                     "the coordinator ({}) has not {} for {:.0f} s, and without it this worker "
                     "cannot join the others{}",
                     fmt::join(options_.coordinators, ", "),
                     next.reason.empty() ? "answered" : "accepted this worker",
                     seconds(options_.orphaned), next.reason.empty() ? "" : ": " + next.reason);
    }
  }
}

Result<std::optional<Membership::Entry>> Membership::enter_group(const roster::RosterPtr& roster,
                                                                 const Sources& sources) {
  if (auto formed = form(roster); !formed.ok()) {
    drop_group();
    return std::optional<Entry>();
  }
  MUSTER_TRY(const auto restorable, sources.restorable(recovery_.rollback(), rank() == 0));
  auto outcome = recovery_.run(*group_, restorable, sources.restore, {.timeout = options_.timeout});
  if (!outcome.ok()) {
    // An error of this worker alone, such as a checkpoint of another model.
    if (!group_->failed()) return std::move(outcome).error();
    report_failure(group_->failure().value_or(comm::GroupFailure{}), members_,
                   outcome.error().message());
    drop_group();
    return std::optional<Entry>();
  }
  if (outcome->differs) {
    MUSTER_RETURN_IF_ERROR(reject(*outcome->differs, sources));
    drop_group();
    return std::optional<Entry>();
  }
  std::vector<std::vector<int>> lanes;
  for (const auto* member : members_) {
    lanes.emplace_back(member->lanes.begin(), member->lanes.end());
  }
  std::vector<int> newcomers;
  for (size_t r = 0; r < outcome->agreement.actions.size(); ++r) {
    const auto action = outcome->agreement.actions[r];
    if (action == roster::Action::kReceive || action == roster::Action::kRestore) {
      newcomers.push_back(static_cast<int>(r));
    }
  }
  const SiteGroup site{.group = site_.get(), .leader = sites_[own_site_].front()};
  session_.assign(lanes, *group_, options_.timeout, std::move(newcomers), site);
  client_->set_activity(Activity::kComputing);
  log_.info("roster {}: rank {} of {}, {} lanes; {}", roster::sequence_of(roster_->number), rank(),
            size(), lanes[static_cast<size_t>(rank())].size(), outcome->agreement.reason);
  const auto action = outcome->agreement.actions[static_cast<size_t>(rank())];
  const bool other = action == roster::Action::kReceive || action == roster::Action::kRestore;
  return std::optional(Entry{.how = Entry::How::kIn,
                             .rolled = outcome->rolled,
                             .other_state = other,
                             .rollback = recovery_.rollback()});
}

Status Membership::form(const roster::RosterPtr& roster) {
  roster_ = roster;
  key_ = client_->key();
  members_ = roster->group(roster::kTrainers);
  const auto self = std::ranges::find(members_, key_, [](const auto* one) { return one->key; });
  MUSTER_CHECK(self != members_.end(), "a trainer is in the group of the trainers");
  rank_ = static_cast<int>(self - members_.begin());
  {
    const std::lock_guard lock(mutex_);
    forming_ = roster->number;
    stop_forming_ = std::stop_source();
  }
  CoordinatorRendezvous rendezvous(*client_, roster->number, std::string(roster::kTrainers));
  MUSTER_TRY(auto group, form_group(members_, rendezvous));
  {
    const std::lock_guard lock(mutex_);
    group_ = all_ = std::move(group);
    if (stop_forming_.stop_requested()) group_->abort("this worker was told to stop");
  }
  MUSTER_RETURN_IF_ERROR(form_sites());
  // If it was to be aborted meanwhile, this orders it again.
  client_->formed(roster->number);
  return {};
}

std::vector<const roster::Member*> Membership::members_at(const std::vector<int>& ranks) const {
  std::vector<const roster::Member*> result;
  for (const int rank : ranks) result.push_back(members_[static_cast<size_t>(rank)]);
  return result;
}

Status Membership::form_sites() {
  sites_ = sites_of(members_);
  const auto is_here = [&](const std::vector<int>& ranks) {
    return std::ranges::find(ranks, rank_) != ranks.end();
  };
  own_site_ = static_cast<size_t>(std::ranges::find_if(sites_, is_here) - sites_.begin());
  if (sites_.size() == members_.size()) return {};
  const auto& here = sites_[own_site_];
  if (here.size() > 1) {
    CoordinatorRendezvous rendezvous(*client_, roster_->number,
                                     std::string(members_[static_cast<size_t>(rank_)]->site()));
    MUSTER_TRY(auto site, form_group(members_at(here), rendezvous));
    const std::lock_guard lock(mutex_);
    site_ = std::move(site);
  }
  // Through the group of all, in which everybody takes part, whether it is to be in the new one.
  const auto form_through = [&](const std::vector<int>& ranks,
                                bool is_in) -> Result<std::shared_ptr<comm::Group>> {
    // Others may still be forming the group of their site.
    const Duration timeout = options_.connecting + std::chrono::seconds(3);
    if (is_in) {
      comm::GroupRendezvous rendezvous(*group_, ranks, timeout);
      return form_group(members_at(ranks), rendezvous);
    }
    if (auto status = comm::GroupRendezvous::attend(*group_, timeout); !status.ok()) {
      report_failure(group_->failure().value_or(comm::GroupFailure{}), members_,
                     status.error().message());
      return std::move(status).error();
    }
    return std::shared_ptr<comm::Group>();
  };
  comm::TwoLevels levels{.all = group_, .site = nullptr, .leaders = nullptr, .sites = sites_};
  if (sites_.size() > 1) {
    std::vector<int> leaders;
    for (const auto& ranks : sites_) leaders.push_back(ranks.front());
    MUSTER_TRY(levels.site, form_through(here, here.size() > 1));
    MUSTER_TRY(levels.leaders, form_through(leaders, here.front() == rank_));
    client_->progress();
  }
  const std::lock_guard lock(mutex_);
  group_ = comm::make_two_level_group(std::move(levels));
  return {};
}

Result<std::shared_ptr<comm::Group>> Membership::form_group(
    const std::vector<const roster::Member*>& members, comm::Rendezvous& rendezvous) {
  std::stop_token stop;
  {
    const std::lock_guard lock(mutex_);
    stop = stop_forming_.get_token();
  }
  comm::GlooGroupOptions options;
  for (const auto* member : members) {
    if (member->key == key_) options.rank = static_cast<int>(options.names.size());
    options.names.push_back(member->key.id + "@" + member->host);
  }
  options.device = device_;
  options.rendezvous = &rendezvous;
  options.timeout = options_.connecting;
  options.shared_memory = options_.shared_memory;
  options.stop = stop;
  comm::GroupFailure failure;
  auto group = comm::make_gloo_group(options, &failure);
  if (group.ok()) return std::shared_ptr<comm::Group>(*std::move(group));
  // If they met through a group that has failed, that is why.
  const auto through = group_ != nullptr ? group_->failure() : std::nullopt;
  report_failure(through.value_or(failure), through ? members_ : members, group.error().message());
  return std::move(group).error();
}

void Membership::drop_group() {
  std::shared_ptr<comm::Group> old, old_all, old_site;
  const std::lock_guard lock(mutex_);
  old = std::exchange(group_, nullptr);
  old_all = std::exchange(all_, nullptr);
  old_site = std::exchange(site_, nullptr);
  forming_ = 0;
}

void Membership::report_failure(const comm::GroupFailure& failure,
                                const std::vector<const roster::Member*>& members,
                                const std::string& trouble) {
  std::string suspect;
  if (failure.suspect >= 0 && members[static_cast<size_t>(failure.suspect)]->key != key_) {
    suspect = members[static_cast<size_t>(failure.suspect)]->key.id;
  }
  log_.warning("roster {}: {}", roster::sequence_of(roster_->number), trouble);
  client_->failed(roster_->number, suspect, trouble);
}

bool Membership::committed(uint8_t agreed) {
  const auto& counters = session_.arena().counters();
  return client_->committed(static_cast<uint64_t>(counters.step),
                            session_.strategy().lane_seconds(), agreed);
}

Result<std::optional<Verdict>> Membership::compare_states() {
  return session_.auditor().compare_states(*group_, {.timeout = options_.timeout});
}

Result<Verdict> Membership::judge() {
  return session_.auditor().judge([this](int lane) { return session_.strategy().recompute(lane); });
}

std::string Membership::describe(const Verdict& verdict) const {
  if (verdict.faulty.empty()) {
    return fmt::format(
        "{}, and nothing tells which of the {} is right: with three or more the faulty one could "
        "be "
        "found",
        verdict.what, size());
  }
  std::vector<std::string> names;
  for (const int rank : verdict.faulty) {
    const auto& member = *members_[static_cast<size_t>(rank)];
    names.push_back(fmt::format("{} on {}", member.key.id, member.host));
  }
  return fmt::format(
      "{}: worker {} is wrong, the others agree. Its memory or processor may be faulty: test that "
      "machine before you use it again",
      verdict.what, fmt::join(names, " and "));
}

Status Membership::reject(const Verdict& verdict, const Sources& sources) {
  constexpr int kMostUnresolved = 3;
  const auto is_faulty = [&](int rank) {
    return std::ranges::find(verdict.faulty, rank) != verdict.faulty.end();
  };
  const roster::Rollback rollback{roster_->number, static_cast<uint64_t>(verdict.trusted)};
  const bool known = !verdict.faulty.empty();
  const std::string what = describe(verdict);
  int keeper = 0;
  while (is_faulty(keeper)) ++keeper;
  // Servers have the lanes of whoever is faulty.
  const bool invalid = !verdict.contained || session_.rows() != nullptr;
  if (invalid) recovery_.roll_back(rollback);
  if (is_faulty(rank()) || !known) recovery_.lose_state();
  // Before the coordinator is told: whoever comes next must find it.
  if (sources.roll_back) {
    MUSTER_RETURN_IF_ERROR(
        sources.roll_back(what, invalid ? &rollback : nullptr, invalid && keeper == rank()));
  }
  // Of several that are faulty the others will find the next one in the next group.
  client_->failed(roster_->number, "", what,
                  known ? members_[static_cast<size_t>(verdict.faulty.front())]->key.id : "");
  const bool progressed = rollback.step > unresolved_step_;
  unresolved_ = known ? 0 : progressed ? 1 : unresolved_ + 1;
  unresolved_step_ = rollback.step;
  if (unresolved_ < kMostUnresolved) return {};
  return Error(ErrorKind::kNumerics, "{}. This happened {} times without progress; the job ends",
               what, unresolved_);
}

Status Membership::give_up_state(const std::string& why, const Sources& sources) {
  const roster::Rollback rollback{roster_->number,
                                  static_cast<uint64_t>(session_.auditor().trusted())};
  recovery_.roll_back(rollback);
  const auto what = fmt::format(
      "workers differed, and the group failed before it was known which one is wrong ({})", why);
  return sources.roll_back ? sources.roll_back(what, &rollback, rank() == 0) : Status();
}

void Membership::report_own_damage() {
  const auto what = fmt::format(
      "the counters of worker {} on {} have changed by themselves: its memory is faulty. "
      "Test that machine before you use it again",
      key_.id, options_.host);
  log_.error("{}", what);
  recovery_.lose_state();
  client_->failed(roster_->number, "", what, key_.id);
}

bool Membership::lost(const Error& error) {
  if (group_ == nullptr) return false;
  const auto of_all = group_->failure();
  const auto of_site = site_ != nullptr ? site_->failure() : std::nullopt;
  if (!of_all && !of_site) return false;
  // One of them failed first, the other because its members left; a suspect says which.
  const bool site = of_site && (!of_all || (of_site->suspect >= 0 && of_all->suspect < 0));
  report_failure(site ? *of_site : *of_all, site ? members_at(sites_[own_site_]) : members_,
                 error.message());
  abort(error.message());
  return true;
}

}  // namespace muster::train
