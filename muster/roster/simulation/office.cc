#include "muster/roster/simulation/office.h"

#include <algorithm>

namespace muster::roster::simulation {

using namespace std::chrono_literals;

namespace {

// Milliseconds since 1970, as the machine of the coordinator has it.
uint64_t wall_milliseconds(Moment now) {
  return static_cast<uint64_t>(now.time_since_epoch() / 1ms);
}

}  // namespace

Office::Office(World& world, Witness& witness, Options options)
    : world_(world), witness_(witness), options_(std::move(options)) {
  options_.term = wall_milliseconds(world.now());
  options_.fresh = true;
  registrar_ = std::make_unique<Registrar>(options_, world.now());
  after_call();
}

SessionId Office::connect(int slot, Caller* caller) {
  if (!registrar_ || world_.is_cut(slot, kCoordinator)) return 0;
  const SessionId session = ++sessions_;
  wires_[session] = {slot, caller, generation_, {}, {}};
  registrar_->connected(session);
  return session;
}

template <typename Call>
void Office::up(SessionId session, Call call) {
  const auto found = wires_.find(session);
  if (found == wires_.end() || found->second.generation != generation_) return;
  Wire& wire = found->second;
  const Moment cut = world_.cut_until(wire.slot, kCoordinator);
  wire.last_up =
      std::max({wire.last_up, world_.now() + world_.latency(wire.slot, kCoordinator), cut});
  auto deliver = [this, generation = generation_, call = std::move(call)] {
    if (!registrar_ || generation != generation_) return;
    call(*registrar_);
    after_call();
  };
  if (duplicates_ > 0 && world_.chance(duplicates_)) {
    world_.after(world_.between(1ms, 1500ms), deliver);
  }
  world_.at(wire.last_up, std::move(deliver));
}

void Office::send_join(SessionId session, const JoinRequest& request) {
  up(session, [this, session, request](Registrar& registrar) {
    registrar.join(world_.now(), session, request);
  });
}

void Office::send_beat(SessionId session, const Heartbeat& beat) {
  up(session, [this, session, beat](Registrar& registrar) {
    registrar.heartbeat(world_.now(), session, beat);
  });
}

void Office::send_addresses(SessionId session, RosterNumber roster, const std::string& blob) {
  up(session, [session, roster, blob](Registrar& registrar) {
    registrar.offer_addresses(session, roster, blob);
  });
}

void Office::close(SessionId session) {
  up(session,
     [this, session](Registrar& registrar) { registrar.disconnected(world_.now(), session); });
  vanish(session);
}

void Office::vanish(SessionId session) {
  const auto found = wires_.find(session);
  if (found != wires_.end()) found->second.caller = nullptr;
}

void Office::send_exited(const std::string& id, int64_t process) {
  world_.after(world_.between(500us, 5ms), [this, id, process] {
    if (!registrar_) return;
    registrar_->exited(world_.now(), id, process, "its launcher saw it end");
    after_call();
  });
}

void Office::down(const Outgoing& out) {
  const auto found = wires_.find(out.session);
  if (found == wires_.end() || !found->second.caller) return;
  Wire& wire = found->second;
  const Moment cut = world_.cut_until(wire.slot, kCoordinator);
  wire.last_down =
      std::max({wire.last_down, world_.now() + world_.latency(wire.slot, kCoordinator), cut});
  const auto message = std::make_shared<const Outgoing>(out);
  world_.at(wire.last_down, [this, message] {
    const auto wire = wires_.find(message->session);
    if (wire != wires_.end() && wire->second.caller) {
      wire->second.caller->on_message(message->session, message->message);
    }
  });
}

void Office::after_call() {
  const Roster& current = registrar_->state().current;
  if (current.number > announced_) {
    announced_ = current.number;
    // A number of another term was taken over, not issued.
    if (term_of(current.number) == options_.term) {
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
  const auto wake = registrar_->wake();
  if (!wake || (wake_ && *wake_ <= *wake && *wake_ > world_.now())) return;
  wake_ = std::max(*wake, world_.now() + 1us);
  world_.at(*wake_, [this, generation = generation_, when = *wake_] {
    if (!registrar_ || generation != generation_ || wake_ != when) return;
    wake_.reset();
    registrar_->tick(world_.now());
    after_call();
  });
}

void Office::note_events() {
  for (const Event& event : registrar_->take_new_events()) {
    const std::string& text = event.text;
    const auto says = [&](const char* words) { return text.find(words) != std::string::npos; };
    if (says("is out: nothing was heard")) ++witness_.tally.lapsed;
    if (says("is out: it hangs")) ++witness_.tally.hung;
    if (says("is out: it could not work")) ++witness_.tally.barred;
    if (says("has left")) ++witness_.tally.left;
    if (says("roster") && says(": the group failed")) ++witness_.tally.retries;
    if (!says("roster ") || says("comes back")) world_.trace("coordinator: {}", text);
  }
}

void Office::crash() {
  if (!registrar_) return;
  world_.trace("coordinator: crashes");
  registrar_.reset();
  ++generation_;
  wake_.reset();
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

void Office::restart() {
  if (registrar_) return;
  world_.trace("coordinator: starts again");
  if (world_.plant() != Plant::kReuseNumbers) {
    options_.term = wall_milliseconds(world_.now());
    options_.fresh = false;
  }
  announced_ = 0;
  registrar_ = std::make_unique<Registrar>(options_, world_.now());
  after_call();
}

}  // namespace muster::roster::simulation
