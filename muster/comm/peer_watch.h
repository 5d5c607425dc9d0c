// Who of a group's members lives: a socket to and from each peer that carries almost nothing.
//
// Why beside the connections that carry the data. A library such as Gloo tells of a lost peer only
// through operations that wait for that peer, and this Gloo not even always then: if the connection
// breaks in the middle of a message, the operation is not woken. And a listening side that waits
// for a peer to connect cannot know that the peer has died since it gave its address. Here every
// member connects to every other; the kernel answers for a process that is busy, and closes for one
// that has died, within a millisecond. A process that is stopped (SIGSTOP, a hung machine, a cut
// cable) is not noticed here: that is what deadlines and the coordinator's lease are for.
//
// A member says hello when it connects (with a few bytes for that peer), and has last words: that
// it leaves in good order, or what failed and who began it. So everyone learns who failed first,
// not only those who were talking to it. And it answers questions at once, whatever its other
// threads do: who is asked and silent is stopped, hung or cut off.
//
// Threads: one of its own (muster-watch), which calls the handlers; all other calls from any
// thread.
#pragma once

#include <poll.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "muster/base/clock.h"
#include "muster/base/result.h"
#include "muster/base/thread.h"
#include "muster/comm/group.h"
#include "muster/comm/socket.h"

namespace muster::comm {

class PeerWatch {
 public:
  // Called on the watch's thread, each at most once per peer. They may call say().
  struct Handlers {
    // The peer is gone without a word; `how` completes "rank 3 (name) ...".
    std::function<void(int rank, const std::string& how)> lost;
    // The peer failed, and this is what it knew.
    std::function<void(int rank, Failure failure)> failed;
    // The moment given to set_alarm() has come.
    std::function<void()> alarm;
    // A peer asks; returns the answer. Must not wait for anything.
    std::function<std::string(std::string_view question)> asked;
  };

  // Begins to listen at `at` (the port is ignored).
  static Result<std::unique_ptr<PeerWatch>> listen(SocketAddress at, int rank, int size);
  // Silent: whoever wants to be understood calls say() first.
  ~PeerWatch();

  // What the others need to find this member: text without line ends.
  std::string address() const;

  // Connects to the peers. `addresses` and `greetings` are by rank, one's own is ignored; the
  // greeting for a peer is what its greeting(rank) returns. An error: an address makes no sense.
  Status start(const std::vector<std::string>& addresses, std::vector<std::string> greetings,
               Handlers handlers);
  // Waits until all peers have said hello; false at the deadline or after give_up().
  bool wait_all(Moment deadline);
  void give_up();
  std::vector<int> unheard() const;
  // After wait_all().
  std::string greeting(int rank) const;
  // The peer has left in good order: expect no more of it.
  bool has_left(int rank) const;
  // It has left, failed or been lost. For the latter two a handler has been called, or is about to.
  bool is_over(int rank) const;

  void set_alarm(std::optional<Moment> moment);

  // Puts a question to all peers and waits for the answers, until all that can be reached have
  // answered or `at_most` has passed. By rank; none where there was silence. Not from a handler.
  std::vector<std::optional<std::string>> ask(std::string_view question, Duration at_most);

  // Last words to all peers that can be reached, without waiting. Null: leaving in good order.
  void say(const Failure* failure);

 private:
  struct Peer {
    Fd out;                  // ours to it; hello and last words go here
    bool connected = false;  // and hello said
    Fd in;                   // its to us
    std::string heard;       // bytes of it not yet understood
    std::string hello;       // to say once connected
    std::optional<std::string> greeting;
    std::optional<std::string> answer;  // to the question that is being asked
    bool left = false;
    bool over = false;  // nothing more is to be learnt of it
  };
  // Accepted, but has not said yet who it is.
  struct Stranger {
    Fd fd;
    std::string heard;
  };

  PeerWatch(Listener listener, int rank, int size);
  void run(const std::vector<std::pair<int, int>>& unreachable);
  void handle(const std::vector<pollfd>& set, size_t strangers);
  std::vector<pollfd> poll_set() const;
  void wake();
  void accept_strangers();
  // Reads hellos; returns the peers that have just been recognised.
  std::vector<int> hear_strangers(const std::vector<pollfd>& set, size_t count);
  bool understand_hello(Stranger& stranger, std::vector<int>& recognised);
  void on_out(int rank, short events);
  void on_in(int rank);
  bool take_frame(int rank, std::unique_lock<std::mutex>& lock);
  void lose(int rank, const std::string& how);
  void lose(int rank, int error);
  void ring_if_due();

  const int rank_;
  const int size_;
  const uint64_t token_;  // tells our callers from those of a group that had this port before
  Listener listener_;
  Fd wake_;
  Handlers handlers_;

  std::mutex asking_;  // held by the one who asks, before mutex_
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // All below guarded by mutex_; sockets are closed by the thread only.
  std::vector<Peer> peers_;
  std::vector<Stranger> strangers_;
  std::optional<Moment> alarm_;
  uint32_t question_ = 0;  // the number of the last one asked
  bool gave_up_ = false;
  bool stopping_ = false;

  Thread thread_;  // last: uses all of the above
};

}  // namespace muster::comm
