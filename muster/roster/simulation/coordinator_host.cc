#include "muster/roster/simulation/coordinator_host.h"

#include <algorithm>

namespace muster::roster::simulation {

using namespace std::chrono_literals;

CoordinatorHost::CoordinatorHost(World& world, Witness& witness, Options options)
    : world_(world), witness_(witness), options_(std::move(options)) {
  options_.term = wall_milliseconds();
  options_.fresh = true;
  time_.emplace(options_.longest_wait());
  registrar_ = std::make_unique<Registrar>(options_, now());
  after_call();
}

// Milliseconds since 1970, as the coordinator's machine has it.
uint64_t CoordinatorHost::wall_milliseconds() const {
  constexpr auto kStart = 24h * 365;  // so that it can be set back
  return static_cast<uint64_t>((world_.now().time_since_epoch() + kStart + wall_offset_) / 1ms);
}

Moment CoordinatorHost::now() {
  if (world_.plant() == Plant::kBlameSuspended) return world_.now();
  const Duration before = time_->lost();
  const Moment moment = time_->now(world_.now());
  if (registrar_ && time_->lost() != before) {
    registrar_->resumed(moment, time_->lost() - before);
    ++witness_.tally.suspensions;
  }
  return moment;
}

void CoordinatorHost::run(std::function<void(Registrar&)> what) {
  if (!registrar_) return;
  if (suspended_until_ > world_.now()) {
    backlog_.push_back(std::move(what));
    return;
  }
  what(*registrar_);
  after_call();
}

void CoordinatorHost::suspend(Moment until) {
  if (!registrar_) return;
  world_.trace("coordinator: is suspended for {:.0f} ms", seconds(until - world_.now()) * 1e3);
  suspended_until_ = std::max(suspended_until_, until);
  world_.at(suspended_until_, [this, generation = generation_, until = suspended_until_] {
    if (!registrar_ || generation != generation_ || until != suspended_until_) return;
    (void)now();
    for (auto& what : std::exchange(backlog_, {})) run(std::move(what));
    run([this](Registrar& registrar) { registrar.tick(now()); });
  });
}

SessionId CoordinatorHost::connect(int slot, Caller* caller) {
  if (!registrar_ || world_.is_cut(slot, kCoordinator)) return 0;
  const SessionId session = ++sessions_;
  wires_[session] = {slot, caller, generation_, {}, {}};
  registrar_->connected(session);
  return session;
}

template <typename Call>
void CoordinatorHost::up(SessionId session, Call call) {
  const auto found = wires_.find(session);
  if (found == wires_.end() || found->second.generation != generation_) return;
  Wire& wire = found->second;
  const Moment cut = world_.cut_until(wire.slot, kCoordinator);
  wire.last_up =
      std::max({wire.last_up, world_.now() + world_.latency(wire.slot, kCoordinator), cut});
  auto deliver = [this, generation = generation_, call = std::move(call)] {
    if (generation == generation_) run(call);
  };
  if (duplicates_ > 0 && world_.chance(duplicates_)) {
    world_.after(world_.between(1ms, 1500ms), deliver);
  }
  world_.at(wire.last_up, std::move(deliver));
}

void CoordinatorHost::send(SessionId session, FromWorker message) {
  up(session, [this, session, message = std::move(message)](Registrar& registrar) {
    const Moment time = now();
    if (const auto* join = std::get_if<JoinRequest>(&message)) {
      registrar.join(time, session, *join);
    } else if (const auto* beat = std::get_if<Heartbeat>(&message)) {
      registrar.heartbeat(time, session, *beat);
    } else {
      const auto& offer = std::get<AddressOffer>(message);
      registrar.offer_addresses(time, session, offer.roster, offer.group, offer.blob);
    }
  });
}

void CoordinatorHost::close(SessionId session) {
  up(session, [this, session](Registrar& registrar) { registrar.disconnected(now(), session); });
  vanish(session);
}

void CoordinatorHost::vanish(SessionId session) {
  const auto found = wires_.find(session);
  if (found != wires_.end()) found->second.caller = nullptr;
}

void CoordinatorHost::send_exited(const std::string& id, int64_t process) {
  world_.after(world_.between(500us, 5ms), [this, id, process] {
    run([this, id, process](Registrar& registrar) {
      registrar.exited(now(), id, process, "its launcher saw it exit");
    });
  });
}

void CoordinatorHost::down(const Outgoing& out) {
  const auto found = wires_.find(out.session);
  if (found == wires_.end() || !found->second.caller) return;
  Wire& wire = found->second;
  const Moment cut = world_.cut_until(wire.slot, kCoordinator);
  wire.last_down =
      std::max({wire.last_down, world_.now() + world_.latency(wire.slot, kCoordinator), cut});
  world_.at(wire.last_down, [this, out] {
    const auto wire = wires_.find(out.session);
    if (wire != wires_.end() && wire->second.caller) {
      wire->second.caller->on_message(out.session, *out.message);
    }
  });
}

void CoordinatorHost::after_call() {
  const Roster& current = registrar_->state().current;
  if (current.number > announced_) {
    announced_ = current.number;
    if (world_.plant() == Plant::kRestartClock) {
      auto& state = const_cast<State&>(registrar_->state());
      state.awaited.reset();
      for (auto& [id, worker] : state.workers) worker.progressed = now();
    }
    // A number of another term was taken over, not issued.
    if (term_of(current.number) == term_of(registrar_->issued())) {
      witness_.issued(generation_ + 1, current);
      world_.trace("coordinator: roster {} ({} members{}): {}", sequence_of(current.number),
                   current.members.size(), current.waiting ? ", waiting" : "", current.reason);
    } else {
      ++witness_.tally.adopted;
      world_.trace("coordinator: takes over roster {}", sequence_of(current.number));
    }
  }
  if (world_.plant() == Plant::kReuseNumbers) announced_ = 0;
  note_events();
  for (const Outgoing& out : registrar_->take_outgoing()) down(out);
  for (const Gone& gone : registrar_->take_gone()) {
    if (gone.cause == RemovalCause::kHung && kill_) kill_(gone.key.id, gone.process);
  }
  // The loop looks at the time often enough to notice a suspension.
  Moment due = world_.now() + time_->longest_wait();
  const auto wake = registrar_->wake();
  if (wake) due = std::min(due, std::max(time_->real(*wake), world_.now() + 1us));
  if (wake_ && *wake_ <= due && *wake_ > world_.now()) return;
  wake_ = due;
  world_.at(due, [this, generation = generation_, due] {
    if (generation != generation_ || wake_ != due) return;
    run([this](Registrar& registrar) {
      wake_.reset();
      const Moment time = now();
      const auto wake = registrar.wake();
      if (wake && *wake <= time) registrar.tick(time);
    });
  });
}

void CoordinatorHost::note_events() {
  for (const Event& event : registrar_->take_new_events()) {
    const std::string& text = event.text;
    const auto says = [&](const char* words) { return text.find(words) != std::string::npos; };
    if (says("was removed: nothing was heard")) ++witness_.tally.lapsed;
    if (says("was removed: it hangs")) ++witness_.tally.hung;
    if (says(" was removed: ") && !says("roster ")) ++witness_.tally.removed;
    if (says("was removed: it could not work") && !says("roster ")) ++witness_.tally.quarantined;
    if (says("no member makes progress")) ++witness_.tally.standstills;
    if (says("has left")) ++witness_.tally.left;
    if (says("roster") && says(": the group failed")) ++witness_.tally.retries;
    if (!says("roster ") || says("comes back")) world_.trace("coordinator: {}", text);
  }
}

void CoordinatorHost::receive_forged(const JoinRequest& request) {
  const SessionId session = ++sessions_;
  run([this, session, request](Registrar& registrar) {
    registrar.connected(session);
    registrar.join(now(), session, request);
    // The defect: what a worker says it has seen is believed.
    if (world_.plant() == Plant::kWrapNumbers) {
      const_cast<State&>(registrar.state()).highest = request.highest;
    }
    registrar.disconnected(now(), session);
  });
}

void CoordinatorHost::crash() {
  if (!registrar_) return;
  world_.trace("coordinator: crashes");
  registrar_.reset();
  ++generation_;
  wake_.reset();
  backlog_.clear();
  suspended_until_ = {};
  for (auto& [session, wire] : wires_) {
    if (!wire.caller) continue;
    // What it had sent still arrives; then the connection is seen to be broken.
    const Moment cut = world_.cut_until(wire.slot, kCoordinator);
    const Moment when =
        std::max({wire.last_down, world_.now() + world_.latency(wire.slot, kCoordinator), cut});
    world_.at(when, [this, id = session] {
      const auto found = wires_.find(id);
      if (found != wires_.end() && found->second.caller) found->second.caller->on_break(id);
    });
  }
}

void CoordinatorHost::restart() {
  if (registrar_) return;
  world_.trace("coordinator: starts again");
  if (world_.plant() != Plant::kReuseNumbers) {
    options_.term = wall_milliseconds();
    options_.nonce = world_.draw();
    options_.fresh = false;
  }
  announced_ = 0;
  time_.emplace(options_.longest_wait());
  registrar_ = std::make_unique<Registrar>(options_, now());
  after_call();
}

}  // namespace muster::roster::simulation
