// A worker that does nothing but follow rosters: its groups consist of an exchange of addresses,
// its steps of waiting. For tests of the coordinator and its client with threads and processes. The
// protocol is the Follower's; this only says that its groups stand and its steps are done.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "muster/roster/client.h"

namespace muster::roster {

// Returns when `stop`, when it has left (after `leave`), when it is refused, or when the job ends:
// what it was told last.
inline Instruction follow_rosters(Client& client, std::atomic<RosterNumber>& aborted,
                                  const std::atomic<bool>& stop, const std::atomic<bool>& leave) {
  using namespace std::chrono_literals;
  using Kind = Instruction::Kind;
  uint64_t step = 0;
  while (!stop) {
    if (leave) client.leave();
    const Instruction next = client.next(5ms);
    if (next.kind == Kind::kWait || next.kind == Kind::kRejoined) continue;
    if (next.kind != Kind::kForm) return next;
    const RosterNumber number = next.roster->number;
    const auto all = client.exchange(number, std::string(kTrainers), client.key().id);
    if (!all.ok()) {
      client.failed(number, "", all.error().message());
      continue;
    }
    client.formed(number);
    client.set_activity(Activity::kComputing);
    while (!stop && aborted != number) {
      if (leave) client.leave();
      std::this_thread::sleep_for(2ms);
      // There is nobody to agree with in this group: each says for all that a newer roster is
      // known.
      if (client.committed(++step, 0.001, client.commit_byte())) break;
    }
    if (aborted == number) client.failed(number, "", "aborted");
  }
  return {};
}

}  // namespace muster::roster
