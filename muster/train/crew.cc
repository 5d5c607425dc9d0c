#include "muster/train/crew.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "muster/base/fault_point.h"
#include "muster/roster/follow.h"

namespace muster::train {

using roster::Activity;
using roster::Next;
using roster::Tiding;

// How often one that waits looks whether it shall go on waiting.
constexpr auto kLook = std::chrono::milliseconds(100);

// Where the members of one roster meet: at the coordinator.
class Crew::Meeting final : public comm::Rendezvous {
 public:
  Meeting(roster::Client& client, roster::RosterNumber roster, const Clock& clock)
      : client_(client), roster_(roster), clock_(clock) {}
  Result<std::vector<std::string>> exchange(int, int, const std::string& blob, Moment deadline,
                                            std::stop_token stop) override {
    // The client fails it by itself as soon as the roster is superseded.
    MUSTER_TRY(auto all, client_.exchange(roster_, blob, deadline - clock_.now(), stop));
    fault_point(FaultPoint::kForming);
    return all;
  }

 private:
  roster::Client& client_;
  roster::RosterNumber roster_;
  const Clock& clock_;
};

namespace {

// With float sums, or evaluations by the clock, two groups may come to one position with states
// that differ. One that was put out must then not bring its own.
bool bits_follow_from_position(const config::Job& job) {
  return job.sync.reduction == "exact" && job.eval.every.unit != config::Every::Unit::kSeconds;
}

}  // namespace

Crew::Crew(Session& session, CrewOptions options, Log& log)
    : session_(session), options_(std::move(options)), log_(log), recovery_(session) {}

Crew::~Crew() {
  client_.reset();  // its thread uses the rest
}

Result<std::unique_ptr<Crew>> Crew::join(Session& session, CrewOptions options, const Clock& clock,
                                         Log& log) {
  std::unique_ptr<Crew> crew(new Crew(session, std::move(options), log));
  MUSTER_TRY(crew->device_, comm::GlooDevice::open(crew->options_.host));
  roster::ClientOptions client;
  client.addresses = crew->options_.coordinators;
  client.join.key.id = crew->options_.id;
  client.join.job = crew->options_.job;
  client.join.host = crew->options_.host;
  client.join.slots = session.threads();
  client.join.process = crew->options_.process;
  client.join.fingerprint = crew->options_.fingerprint;
  auto* self = crew.get();
  client.on_roster = [self](const roster::RosterPtr& newest) { self->watch(newest); };
  client.on_out = [self](const std::string& reason) {
    const std::lock_guard lock(self->mutex_);
    self->stop_forming_.request_stop();
    if (self->group_) self->group_->abort("this worker is out: " + reason);
  };
  MUSTER_TRY(crew->client_, roster::Client::start(std::move(client), clock));
  crew->key_ = crew->client_->key();
  return crew;
}

void Crew::watch(const roster::RosterPtr& newest) {
  const std::lock_guard lock(mutex_);
  if (forming_ == nullptr) return;
  const auto why = roster::why_abort(*forming_, *newest);
  if (!why) return;
  stop_forming_.request_stop();
  if (group_) group_->abort(*why);
}

void Crew::abort(const std::string& why) {
  const std::lock_guard lock(mutex_);
  stop_forming_.request_stop();
  if (group_) group_->abort(why);
}

Status Crew::combine(std::span<uint8_t> bytes) {
  return group_->allreduce_max(bytes, {.timeout = options_.timeout});
}

Status Crew::barrier() { return group_->barrier({.timeout = options_.timeout}); }

Result<Crew::Entry> Crew::enter(const Sources& sources) {
  drop_group(Activity::kIdle);
  const SystemClock clock;
  Moment connected = clock.now();
  bool was_out = false;
  while (true) {
    if (client_->connected()) connected = clock.now();
    if (clock.now() - connected > options_.orphaned) {
      return Error(ErrorKind::kMachine,
                   "the coordinator ({}) has not answered for {:.0f} s, and without it there is "
                   "nobody to train with",
                   fmt::join(options_.coordinators, ", "), seconds(options_.orphaned));
    }
    if (sources.give_up && sources.give_up())
      return Entry{Entry::How::kGaveUp, false, false, false};
    const auto newest = client_->newest();
    key_ = client_->key();
    const Next next =
        newest->number == 0 ? Next::kWait : roster::next_move(key_, leaving_, *newest, past_);
    if (next == Next::kForm) {
      auto formed = form(newest);
      if (formed.ok()) {
        // To look at a checkpoint takes time. One who has a state hardly ever needs it.
        const bool had_state = recovery_.has_state();
        MUSTER_TRY(const uint64_t restorable, sources.restorable(!had_state));
        auto outcome =
            recovery_.run(*group_, restorable, sources.restore, {.timeout = options_.timeout});
        if (outcome.ok()) {
          std::vector<std::vector<int>> lanes;
          for (const auto& member : roster_->members) {
            lanes.emplace_back(member.lanes.begin(), member.lanes.end());
          }
          session_.assign(lanes, *group_, options_.timeout);
          client_->set_group(roster_->number, Activity::kComputing);
          log_.info("roster {}: rank {} of {}, {} lanes; {}", roster::sequence_of(roster_->number),
                    rank(), size(), lanes[static_cast<size_t>(rank())].size(),
                    outcome->agreement.reason);
          const auto action = outcome->agreement.actions[static_cast<size_t>(rank())];
          const bool other =
              action == roster::Action::kReceive || action == roster::Action::kRestore;
          return Entry{Entry::How::kIn, outcome->rolled, other, was_out};
        }
        if (!group_->failed()) {
          // Unless a checkpoint turned out to be damaged: this one has lost its state over it, and
          // all try again.
          if (!had_state || recovery_.has_state()) return std::move(outcome).error();
          group_->abort(outcome.error().message());
        }
        formed = std::move(outcome).error();
      }
      past_ = newest->number;
      report_broken(formed.error().message());
      drop_group(Activity::kIdle);
      continue;
    }
    switch (client_->wait(newest->number, kLook, next == Next::kGo)) {
      case Tiding::kRefused:
        return Error(ErrorKind::kMachine, "the job will not have this worker: {}",
                     client_->reason());
      case Tiding::kReleased:
        return Entry{Entry::How::kReleased, false, false, false};
      case Tiding::kFinished:
      case Tiding::kStopped:
        return Entry{Entry::How::kFinished, false, false, false};
      case Tiding::kOut:
        log_.warning("this worker was put out: {}; it asks in again", client_->reason());
        if (!bits_follow_from_position(session_.job())) recovery_.lose_state();
        past_ = 0;
        was_out = true;
        client_->ask_in_again();
        break;
      case Tiding::kRoster:
      case Tiding::kTimeout:
        break;
    }
  }
}

Status Crew::form(const roster::RosterPtr& newest) {
  std::vector<std::string> names;
  for (const auto& member : newest->members) names.push_back(member.key.id + "@" + member.host);
  std::stop_token stop;
  {
    const std::lock_guard lock(mutex_);
    forming_ = newest;
    stop_forming_ = std::stop_source();
    stop = stop_forming_.get_token();
  }
  roster_ = newest;
  watch(client_->newest());  // it may have changed before we looked
  client_->set_activity(Activity::kForming);
  const SystemClock clock;
  Meeting meeting(*client_, newest->number, clock);
  MUSTER_TRY(auto group, comm::make_gloo_group({.device = device_,
                                                .rendezvous = &meeting,
                                                .rank = newest->rank_of(key_),
                                                .names = std::move(names),
                                                .timeout = options_.forming,
                                                .shared_memory = options_.shared_memory,
                                                .stop = stop}));
  {
    const std::lock_guard lock(mutex_);
    group_ = std::move(group);
  }
  watch(client_->newest());
  client_->set_group(newest->number, Activity::kForming);
  return {};
}

void Crew::drop_group(Activity activity) {
  std::shared_ptr<comm::Group> old;
  {
    const std::lock_guard lock(mutex_);
    old = std::move(group_);
    group_ = nullptr;
    forming_ = nullptr;
  }
  if (old == nullptr) return;
  past_ = roster_->number;
  client_->set_group(0, activity);
}

void Crew::report_broken(const std::string& trouble) {
  std::string suspect;
  if (group_) {
    const auto failure = group_->failure();
    const int culprit = failure ? failure->suspect : comm::kNobody;
    if (culprit >= 0 && culprit != rank()) {
      suspect = roster_->members[static_cast<size_t>(culprit)].key.id;
    }
  }
  log_.warning("roster {}: {}", roster::sequence_of(roster_->number), trouble);
  client_->broken(roster_->number, suspect, trouble);
}

uint8_t Crew::roster_byte() const { return roster::commit_byte(*roster_, *client_->newest()); }

bool Crew::committed(uint8_t agreed) {
  const auto& counters = session_.arena().counters();
  client_->committed(static_cast<uint64_t>(counters.step), session_.stepper().lane_seconds());
  client_->progress();
  return roster::after_commit(agreed, *roster_, *client_->newest()) != roster::AfterCommit::kGoOn;
}

bool Crew::lost(const Error& error) {
  if (group_ == nullptr || !group_->failed()) return false;
  report_broken(error.message());
  return true;
}

void Crew::leave() {
  if (leaving_) return;
  leaving_ = true;
  client_->leave();
}

void Crew::finished() { client_->finished(); }

}  // namespace muster::train
