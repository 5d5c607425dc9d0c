#include "muster/roster/job_options.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "muster/config/rounds.h"
#include "muster/sync/recipe.h"

namespace muster::roster {
namespace {

Duration duration(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

std::vector<RoleOptions> roles_of(std::string_view /*strategy*/) {
  return std::vector<RoleOptions>(1);  // every strategy so far has trainers alone
}

Options options_of(const config::Job& job, std::string name, int32_t expected) {
  Options options;
  options.job = std::move(name);
  options.lanes = static_cast<int32_t>(sync::units_of(job));
  if (sync::is_periodic(job.sync.strategy)) options.site_workers = sync::lanes_per_unit(job);
  options.min_workers = static_cast<int32_t>(job.workers.min);
  options.max_workers = static_cast<int32_t>(job.workers.max);
  options.expected = expected;
  options.gather = duration(job.workers.gather);
  options.lease = duration(job.workers.lease);
  options.heartbeat = duration(job.workers.heartbeat);
  options.hang_timeout = duration(job.workers.hang_timeout);
  options.tolerant = job.numerics == "tolerant";
  options.roles = roles_of(job.sync.strategy);
  // Asynchronous workers take as many tasks as they can, whatever lanes they have.
  if (!job.workers.move_lanes || config::is_asynchronous(job.sync)) {
    options.rebalance_every = std::chrono::hours(24 * 365 * 10);
  }
  // Progress is known from heartbeats: a short timeout needs more of them.
  if (options.hang_timeout > Duration{0}) {
    options.heartbeat =
        std::min(options.heartbeat,
                 std::max<Duration>(options.hang_timeout / 4, std::chrono::milliseconds(10)));
  }
  return options;
}

}  // namespace muster::roster
