// A worker that does nothing but follow the protocol: its groups consist of an exchange of
// addresses, its steps of waiting. For tests of the coordinator and its client with threads and
// processes.
#pragma once

#include <atomic>
#include <chrono>
#include <string>

#include "muster/roster/client.h"
#include "muster/roster/follow.h"

namespace muster::roster {

// Returns when `stop`, when it has left (after `leave`), when it is refused, or when the job ends.
inline void follow_rosters(Client& client, const std::atomic<bool>& stop,
                           const std::atomic<bool>& leave) {
  using namespace std::chrono_literals;
  RosterNumber past = 0;
  RosterNumber group = 0;
  uint64_t step = 0;
  bool leaving = false;
  while (!stop) {
    if (leave && !leaving) {
      client.leave();
      leaving = true;
    }
    const RosterPtr newest = client.newest();
    if (group != 0) {
      client.committed(++step, 0.001);
      if (client.wait(group, 2ms) != Tiding::kTimeout) {
        past = std::exchange(group, 0);
        client.set_group(0, Activity::kIdle);
      }
      continue;
    }
    switch (next_move(client.key(), leaving, *newest, past)) {
      case Next::kForm: {
        client.set_activity(Activity::kForming);
        const auto all = client.exchange(newest->number, client.key().id, 2s);
        if (all.ok()) {
          group = newest->number;
          client.set_group(group, Activity::kComputing);
        } else if (client.newest()->number == newest->number) {
          past = newest->number;
          client.broken(past, "", all.error().message());
        }
        break;
      }
      case Next::kWait:
      case Next::kOut: {
        const Tiding tiding = client.wait(newest->number, 5ms);
        if (tiding == Tiding::kRefused || tiding == Tiding::kFinished ||
            tiding == Tiding::kStopped) {
          return;
        }
        if (tiding == Tiding::kOut) {
          past = 0;
          client.ask_in_again();
        }
        break;
      }
      case Next::kGo:
        client.set_activity(Activity::kDone);
        (void)client.wait(0, 2s, true);
        return;
    }
  }
}

}  // namespace muster::roster
