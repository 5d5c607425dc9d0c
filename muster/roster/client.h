// A worker's connection to the coordinator: a Follower (follower.h) behind gRPC.
//
// The Follower decides; this carries out what it orders: opens connections, sends heartbeats,
// brings rosters, aborts groups through on_abort. It never waits for the coordinator except in
// next() and exchange(). While there is no coordinator it keeps trying to connect, and training
// goes on.
//
// Threads: one, `roster-client`, which also calls the callbacks. gRPC has a few of its own beside
// it. Never fork after start(). Safe for concurrent use; next(), exchange(), formed(), failed() and
// committed() belong to one thread, the worker's.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "muster/base/clock.h"
#include "muster/base/result.h"
#include "muster/roster/follower.h"
#include "muster/roster/types.h"

namespace muster::roster {

struct ClientOptions {
  std::vector<std::string> addresses;  // of the coordinator; tried in turn
  FollowerOptions follower;            // its seed is drawn by start() if it is 0
  // Called in the client's thread, without any lock held; must not wait. The group of this roster,
  // or the attempt to form it, is to be aborted.
  std::function<void(RosterNumber roster, const std::string& reason)> on_abort;
  // Called in the client's thread: this worker was removed because it hangs, and its own thread has
  // not come back since. Ends the process.
  std::function<void(const std::string& reason)> on_stuck;
};

class Client {
 public:
  static Result<std::unique_ptr<Client>> start(ClientOptions options, const Clock& clock);
  // Closes the connection. For the coordinator this worker is then gone, unless it was released.
  ~Client();

  // Waits until there is something to do, at most `timeout` (then kWait). See Follower::next().
  Instruction next(Duration timeout);

  // Gives `blob` and gets that of every member of the group, by rank: comm's Rendezvous for one
  // group of `roster`, which next() said to form. There is no time limit: the coordinator knows
  // which member is missing, and replaces the roster if it hangs. Fails when that happens, when
  // this worker is removed, or when a stop is requested.
  Result<std::vector<std::string>> exchange(RosterNumber roster, const std::string& group,
                                            std::string blob, const std::stop_token& stop = {});
  void formed(RosterNumber roster);
  void failed(RosterNumber roster, const std::string& suspect, const std::string& trouble,
              const std::string& faulty = "");
  uint8_t commit_byte() const;
  bool committed(uint64_t step, double lane_seconds, uint8_t agreed);

  // From any thread.
  void set_activity(Activity activity);
  void progress();
  void leave();
  void finished();

  WorkerKey key() const;
  RosterPtr newest() const;  // never null; number 0: none
  bool connected() const;    // the coordinator has answered, and the connection stands
  std::string reason() const;

 private:
  class Connection;
  explicit Client(std::unique_ptr<Connection> connection);
  std::unique_ptr<Connection> connection_;
};

}  // namespace muster::roster
