// Failure detector between the members of a group: one connection for each pair of members, which
// carries almost nothing.
//
// Why beside the connections that carry the data. A library such as Gloo reports a lost peer only
// through operations that wait for that peer, and this Gloo not even always then: if the connection
// breaks in the middle of a message, the operation is not woken. Here the kernel answers for a
// process that is busy, and closes the connections of one that has died, within a millisecond. A
// process that is stopped (SIGSTOP) or hangs is not noticed here: that is what deadlines and the
// coordinator's lease are for.
//
// Each pair has one connection: the member that dials() says dials, the other one accepts; both
// begin with a hello that carries a greeting (a few bytes for that peer). The accepting member
// cannot know by itself that its peer died before it dialled. So it probes: it connects to the
// peer as well, for as long as it waits. It does so for kProbes peers at most; in larger groups a
// death that it cannot see reaches it through the members that dial the dead one.
//
// A member that fails sends its final message to all peers: that it leaves in good order, or its
// GroupFailure. And it answers questions at once, whatever its other threads do: a member that is
// asked and silent is stopped, hung or cut off.
//
// Threads: one of its own (muster-watch), which calls the handlers; all other calls from any
// thread.
#pragma once

#include <poll.h>

#include <cerrno>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/clock.h"
#include "muster/base/result.h"
#include "muster/base/thread.h"
#include "muster/comm/group.h"
#include "muster/comm/hello_listener.h"
#include "muster/comm/socket.h"
#include "muster/comm/watch_frames.h"

namespace muster::comm {

// Whether `from` dials `to`, in a group of `size`: each dials the half that follows it in the order
// of ranks, so that in a group of three or more everyone is dialled by someone.
bool dials(int from, int to, int size);

class PeerWatch {
 public:
  // Peers that a member probes at most while it waits to be dialled.
  static constexpr int kProbes = 4;
  // How long attempts to connect may remain unanswered, or be refused by a route: the kernel of the
  // peer's machine answers for a process that is busy or stopped. Linux repeats an unanswered
  // attempt after 1 s and 3 s. Long enough for all others to connect meanwhile, so that they learn
  // the reason.
  static constexpr Duration kDialTime = std::chrono::seconds(4);

  // How long a peer's machine may leave packets unanswered before the peer counts as unreachable
  // (see notice_silence_of): a cut link, a firewall that drops, a machine without power. The kernel
  // answers for a process that is suspended, so that is not noticed here.
  static constexpr Duration kSilence = std::chrono::seconds(3);

  enum class Loss {
    kClosed,       // its process died or closed: the connection ended, or its machine refused it
    kUnreachable,  // no connection could be made, or its machine does not answer any more
  };
  // Called on the watch's thread, each at most once per peer. They may call say().
  struct Handlers {
    // The peer is gone without a final message; `how` completes "rank 3 (name) ...".
    std::function<void(int rank, Loss loss, const std::string& how)> lost;
    // The peer failed, and this is what it reported. `suspect` is not set.
    std::function<void(int rank, GroupFailure failure)> failed;
    // The peer has left in good order.
    std::function<void(int rank)> left;
    // The moment given to set_alarm() has come.
    std::function<void()> alarm;
    // A peer asks; returns the answer. Must not wait for anything.
    std::function<std::string(std::string_view question)> asked;
  };

  // Begins to listen at `at` (the port is ignored).
  static Result<std::unique_ptr<PeerWatch>> listen(SocketAddress at, int rank, int size);
  // Sends nothing: a member that wants to be understood calls say() first.
  ~PeerWatch();

  // What the others need to find this member: text without line ends.
  std::string address() const;

  // Before start(). Once a peer has said hello, its silence (kSilence) is noticed only if it is one
  // of these; default: all. To notice it takes a packet a second, and those of all pairs of a large
  // group fall into the same moments: enough to overflow the queue of a host, so that several in a
  // row are lost and a peer seems unreachable.
  void notice_silence_of(const std::vector<int>& ranks);
  // Connects to the peers. `addresses` and `greetings` are by rank, one's own is ignored; the
  // greeting for a peer is what its greeting(rank) returns. An error: an address makes no sense.
  Status start(const std::vector<std::string>& addresses, std::vector<std::string> greetings,
               Handlers handlers);
  // Waits until all peers have sent a hello; false at the deadline or after give_up().
  bool wait_all(Moment deadline);
  void give_up();
  // Peers that have not sent a hello: with which no connection stands, and with which one does.
  struct Missing {
    std::vector<int> unreached;
    std::vector<int> silent;
  };
  Missing missing() const;
  // Why this process could not make or accept connections, if it could not: completes a sentence.
  std::string trouble() const;
  // After wait_all().
  std::string greeting(int rank) const;
  // The peer has left in good order: expect no more of it.
  bool has_left(int rank) const;
  // It has left, failed or been lost. For the latter two a handler has been called, or is about to.
  bool is_over(int rank) const;

  void set_alarm(std::optional<Moment> moment);

  // Puts a question to a peer and waits for the answer: none if it is silent for `at_most`, or if
  // it is over. Not from a handler.
  std::optional<std::string> ask(int rank, std::string_view question, Duration at_most);

  // The final message to all peers that can be reached, without waiting. Null: leaving in good
  // order.
  void say(const GroupFailure* failure);

 private:
  struct Peer {
    SocketAddress address;
    Fd fd;                   // the connection, dialled or accepted
    bool connected = false;  // and our hello sent
    bool notice_silence = true;
    std::string hello;               // ours
    uint64_t token = 0;              // its
    std::string heard;               // bytes of it not yet understood
    std::optional<Moment> dial_due;  // when to dial; none: not now
    std::optional<Moment> give_up;   // when dialling has failed
    int dial_error = ETIMEDOUT;      // with which
    Fd probe;
    bool probe_connected = false;
    std::optional<std::string> greeting;
    std::optional<std::string> answer;  // to the question that is being asked
    bool left = false;
    bool over = false;  // nothing more is to be learnt of it
  };
  using Lock = std::unique_lock<std::mutex>;

  PeerWatch(Listener listener, uint64_t token, int rank, int size);
  Peer& peer(int rank) { return peers_[static_cast<size_t>(rank)]; }
  const Peer& peer(int rank) const { return peers_[static_cast<size_t>(rank)]; }
  std::string hello_for(uint64_t token, bool probe, std::string_view greeting) const;
  bool all_greeted() const;
  void wake();

  void run();
  std::vector<pollfd> poll_set(Moment now) const;
  std::optional<Moment> next_due() const;
  void handle(const std::vector<pollfd>& set);
  void dial_due(Moment now);
  // Whether dialling is to be tried again after this error.
  bool redial(Peer& p, int error, Moment now);
  void probe(Peer& p);
  void admit(std::span<const pollfd> polled);
  static void connected(Peer& p);
  void greeted(Peer& p, std::string greeting);
  void on_dialling(int rank, short events);
  void on_probe(int rank, short events);
  void on_readable(int rank);
  bool read_reply(int rank, Lock& lock);
  bool take_frame(int rank, Lock& lock);
  void ring_if_due();
  void lose(int rank, Loss loss, const std::string& how);
  void lose(int rank, int error);

  const int rank_;
  const int size_;
  const uint64_t token_;  // tells our callers from those of a group that had this port before
  Fd wake_;
  Handlers handlers_;

  std::mutex asking_;  // held by the thread that asks, before mutex_
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // All below guarded by mutex_; sockets are closed by the watch's thread only.
  HelloListener listener_;
  std::vector<Peer> peers_;
  std::vector<Fd> probes_of_others_;  // held until all are connected
  std::string trouble_;               // of dialling
  std::optional<Moment> alarm_;
  uint32_t question_ = 0;  // the number of the last one asked
  bool gave_up_ = false;
  bool stopping_ = false;

  Thread thread_;  // last: uses all of the above
};

}  // namespace muster::comm
