// Inside peer_watch: accepts connections and returns those that prove to come from a member.
//
// A member's port can be reached by anyone in its network: port scanners, browsers, workers of an
// older group that had the port before. A connection counts as a stranger until it has sent a hello
// with this member's token. What strangers can cost is limited:
// - bytes: a header is read, then, if its token is right, the greeting; never more;
// - connections: at most Limits::strangers at a time; one more, and the oldest is closed;
// - time: a stranger that has not completed its hello within Limits::hello_time is closed.
// When the process has no free descriptor, accepting pauses for Limits::pause and is tried again,
// instead of being told of the same waiting connection in a busy loop.
//
// Not safe for concurrent use; no threads.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "muster/base/clock.h"
#include "muster/comm/socket.h"

namespace muster::comm {

class HelloListener {
 public:
  struct Limits {
    size_t strangers = 64;
    Duration hello_time = std::chrono::seconds(5);
    Duration pause = std::chrono::milliseconds(100);
  };
  // A connection whose hello was right.
  struct Guest {
    int rank = 0;
    bool probe = false;
    Fd fd;
    std::string greeting;
  };

  HelloListener(Listener listener, uint64_t token, int rank, int size, Limits limits);

  const SocketAddress& address() const { return listener_.address; }

  // Appends what is to be polled; handle() wants these entries back, and no others.
  void add_to(std::vector<pollfd>& set, Moment now) const;
  std::vector<Guest> handle(std::span<const pollfd> polled, Moment now);
  // When handle() must be called even if nothing happens.
  std::optional<Moment> due() const;

  // Why connections could not be accepted, if they could not: completes a sentence.
  const std::string& trouble() const { return trouble_; }
  size_t strangers() const { return strangers_.size(); }
  // Closes everything. add_to() then adds nothing.
  void close();

 private:
  struct Stranger {
    Fd fd;
    std::string heard;
    Moment expires;
  };
  void accept_all(Moment now);

  Listener listener_;
  const uint64_t token_;
  const int rank_;
  const int size_;
  const Limits limits_;
  std::vector<Stranger> strangers_;  // the oldest first
  std::optional<Moment> paused_until_;
  std::string trouble_;
};

}  // namespace muster::comm
