// A worker's line to the coordinator: asks in, sends heartbeats, brings rosters, exchanges
// addresses.
//
// The worker tells it how things are (activity, step, group) and asks it what to do; it never waits
// for the coordinator except in wait() and exchange(). When the coordinator is gone the client
// keeps looking for it, with back-off, and shows itself with the roster it holds; training goes on
// meanwhile.
//
// Once the worker is out (wait() says kOut, on_out is called) its key is used up: the worker leaves
// its group, and calls ask_in_again() when it is ready to be a joiner. That it must ask by itself
// is on purpose: a worker whose own thread hangs shall not come back in by its client alone.
//
// Once the job has ended (wait() says kFinished or kStopped, on_ended is called) nothing follows.
//
// Threads: one, `roster-client`, which also calls the callbacks. gRPC has a few of its own beside
// it. Never fork after start(). Safe for concurrent use.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "muster/base/clock.h"
#include "muster/base/result.h"
#include "muster/roster/types.h"

namespace muster::roster {

using RosterPtr = std::shared_ptr<const Roster>;

struct ClientOptions {
  std::vector<std::string> addresses;  // of the coordinator; tried in turn
  JoinRequest join;                    // the incarnation is drawn by the client, held is its own
  Duration heartbeat = std::chrono::milliseconds(400);  // until the coordinator says another
  Duration least_backoff = std::chrono::milliseconds(10);
  Duration longest_backoff = std::chrono::milliseconds(500);
  // Called in the client's thread, without any lock held; they must not wait. Meant for aborting a
  // group the moment it is known to be broken (follow.h: why_abort).
  std::function<void(const RosterPtr&)> on_roster;
  std::function<void(const std::string& reason)> on_out;
  std::function<void(const Ended& how)> on_ended;
};

enum class Tiding : uint8_t {
  kRoster,    // there is a newer roster
  kOut,       // this worker is out
  kRefused,   // the coordinator will not have this worker: reason() says why
  kReleased,  // it asked to leave, and nobody needs it any more
  kFinished,  // the job is done, and what it leaves behind is saved: nobody needs it any more
  kStopped,   // the job was ended before it was done: reason() says why
  kTimeout,   // nothing of this
};

class Client {
 public:
  static Result<std::unique_ptr<Client>> start(ClientOptions options, const Clock& clock);
  // Closes the line. For the coordinator this worker is then gone, unless it was released.
  ~Client();

  // Of now. It may change until the first roster is here, and does with ask_in_again().
  WorkerKey key() const;
  // The newest roster; number 0 before the first, and from being out to being in again. Never null.
  RosterPtr newest() const;
  bool connected() const;
  std::string reason() const;  // why it is out or refused, or how the job ended

  // Waits until there is a newer roster than `than`, or something else to be told, or the time is
  // over. kReleased is told only with `until_released`, and then a newer roster is not. kFinished
  // and kStopped stay: the line is closed for good. A `timeout` of 0 looks without waiting.
  Tiding wait(RosterNumber than, Duration timeout, bool until_released = false);

  // Gives `blob` and gets everybody's, by rank: comm's Rendezvous for the group of `roster`. Fails
  // as soon as `roster` is not the newest any more, a stop is requested, or the time is over. One
  // at a time.
  Result<std::vector<std::string>> exchange(RosterNumber roster, std::string blob, Duration timeout,
                                            const std::stop_token& stop = {});

  // How things are. Sent with the next heartbeat; group, broken, leaving, done and finished at
  // once.
  void set_activity(Activity activity);
  void set_group(RosterNumber roster, Activity activity);  // 0: none
  void committed(uint64_t step, double lane_seconds);
  void progress();
  // The group of `roster` failed, or could not be formed. `suspect`: the id of the peer, or empty.
  void broken(RosterNumber roster, const std::string& suspect, const std::string& trouble);
  void leave();  // wants to go at a step boundary
  // The job is done and what it leaves behind is saved. For the one who saved it: all others are
  // told kFinished, wherever they are. So those who have nothing to save wait for that, or for
  // another roster, if the one who should have saved it is lost.
  void finished();

  void ask_in_again();

 private:
  class Line;
  explicit Client(std::unique_ptr<Line> line);
  std::unique_ptr<Line> line_;
};

}  // namespace muster::roster
