// muster_roster_test_worker ADDRESS JOB ID: a process that joins and follows rosters, to be killed,
// stopped and told to leave (SIGTERM) by coordinator_process_test.cc.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>

#include "muster/base/clock.h"
#include "muster/roster/client.h"
#include "muster/roster/follow_testing.h"

namespace {

std::atomic<bool> leave{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set in a signal handler");
void on_term(int) { leave = true; }

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  std::signal(SIGTERM, on_term);
  const muster::SystemClock clock;
  muster::roster::ClientOptions options;
  options.addresses = {argv[1]};
  options.join.job = argv[2];
  options.join.key.id = argv[3];
  options.join.process = getpid();
  auto client = muster::roster::Client::start(std::move(options), clock);
  if (!client.ok()) return 1;
  const std::atomic<bool> stop{false};
  muster::roster::follow_rosters(**client, stop, leave);
  return 0;
}
