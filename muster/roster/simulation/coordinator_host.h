// The coordinator in the simulation: the product's Registrar and LoopClock, with virtual
// connections, crashes and suspensions.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "muster/roster/loop_clock.h"
#include "muster/roster/registrar.h"
#include "muster/roster/simulation/witness.h"
#include "muster/roster/simulation/world.h"

namespace muster::roster::simulation {

// The worker's end of a connection.
class Caller {
 public:
  virtual ~Caller() = default;
  virtual void on_message(SessionId session, const ToWorker& message) = 0;
  virtual void on_break(SessionId session) = 0;
};

class CoordinatorHost {
 public:
  CoordinatorHost(World& world, Witness& witness, Options options);

  bool up() const { return registrar_ != nullptr; }
  const Registrar* registrar() const { return registrar_.get(); }

  // 0: nobody answers.
  SessionId connect(int slot, Caller* caller);
  // What a worker sends arrives later, in order, unless the coordinator is gone by then.
  void send(SessionId session, FromWorker message);
  // The worker's end is closed: by itself, or by the kernel of a machine that still runs.
  void close(SessionId session);
  // The worker's machine is gone: nothing is closed, nothing arrives any more.
  void vanish(SessionId session);
  // From a launcher, beside any session.
  void send_exited(const std::string& id, int64_t process);

  void crash();
  void restart();
  // Its process is suspended (SIGSTOP), or something in its loop takes this long.
  void suspend(Moment until);
  // The wall clock of its machine is set. The next coordinator makes its term from it.
  void step_wall_clock(Duration by) { wall_offset_ += by; }
  // A message that no worker of this job has sent.
  void receive_forged(const JoinRequest& request);
  // A worker that hangs was removed: its launcher kills it and starts it again.
  void on_hung(std::function<void(const std::string& id, int64_t process)> kill) {
    kill_ = std::move(kill);
  }
  // Some messages of workers come twice, the second time late.
  void set_duplicates(double chance) { duplicates_ = chance; }

 private:
  struct Wire {
    int slot = 0;
    Caller* caller = nullptr;  // null: its end is closed
    uint64_t generation = 0;   // of the coordinator at the other end
    Moment last_up;            // messages of a connection do not overtake each other
    Moment last_down;
  };
  template <typename Call>
  void up(SessionId session, Call call);
  // Runs `what` now, or when this coordinator continues; not if it has crashed by then.
  void run(std::function<void(Registrar&)> what);
  Moment now();
  uint64_t wall_milliseconds() const;
  void down(const Outgoing& out);
  void after_call();
  void note_events();

  World& world_;
  Witness& witness_;
  Options options_;
  std::unique_ptr<Registrar> registrar_;
  uint64_t generation_ = 0;
  SessionId sessions_ = 0;
  std::map<SessionId, Wire> wires_;
  RosterNumber announced_ = 0;
  std::optional<Moment> wake_;
  double duplicates_ = 0;
  std::optional<LoopClock> time_;
  Moment suspended_until_;
  std::deque<std::function<void(Registrar&)>> backlog_;  // what arrived while it was suspended
  Duration wall_offset_{0};
  std::function<void(const std::string& id, int64_t process)> kill_;
};

}  // namespace muster::roster::simulation
