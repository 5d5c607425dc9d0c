// muster_roster_test_worker ADDRESS JOB ID: a process that joins and follows rosters, to be killed,
// stopped and told to leave (SIGTERM) by coordinator_process_test.cc and tests/cli/several_test.py.
//
// It leaves nothing behind, however a test ends: it dies with its parent, and SIGTERM ends it even
// if no coordinator is left to let it go.
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "muster/base/clock.h"
#include "muster/roster/client.h"
#include "muster/roster/follow_testing.h"

namespace {

std::atomic<bool> leave{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set in a signal handler");
constexpr unsigned kLeavingTakes = 5;  // seconds at most, then SIGALRM ends it
void on_term(int) {
  leave = true;
  alarm(kLeavingTakes);
}

void die_with_parent() {
  const pid_t parent = getppid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // It may have gone before we asked: then somebody else is our parent by now, or was already.
  // NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread yet
  const char* const launcher = std::getenv("MUSTER_LAUNCHER_PID");
  if (getppid() != parent || (launcher != nullptr && std::to_string(parent) != launcher)) {
    std::_Exit(1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  die_with_parent();
  std::signal(SIGTERM, on_term);
  const muster::SystemClock clock;
  muster::roster::ClientOptions options;
  options.addresses = {argv[1]};
  options.follower.join.job = argv[2];
  options.follower.join.key.id = argv[3];
  options.follower.join.process = getpid();
  std::atomic<muster::roster::RosterNumber> aborted{0};
  options.on_abort = [&](muster::roster::RosterNumber number, const std::string&) {
    aborted = number;
  };
  auto client = muster::roster::Client::start(std::move(options), clock);
  if (!client.ok()) return 1;
  const std::atomic<bool> stop{false};
  (void)muster::roster::follow_rosters(**client, aborted, stop, leave);
  return 0;
}
