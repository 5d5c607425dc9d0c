// Workers on other machines, over the ssh that the user has.
//
// Our child is an ssh; its end is the worker's end. ssh does not pass signals on, so they travel as
// lines ("INT") through its standard input to a few lines of shell (remote_script) that stand
// beside the worker and send them. The script kills the worker when that input ends (we were
// killed, or the connection was closed) and when no line has come for kSilence. We send a keepalive
// line every kKeepalive, so silence means that the link is down or that we are suspended.
//
// A replacement never runs beside its predecessor: a link that goes silent at time 0 makes the
// script kill the worker at 16 s at the latest (kSilence; it looks every 2 s), while
// ssh here gives up, and the replacement is started, between 20 s and 25 s (ServerAliveInterval 5,
// CountMax 4; the last answer came up to 5 s before).
//
// What the worker needs must be there at the same paths: the data, and the run's directory unless
// the worker can make its own (track/run_identity.h). SIGTSTP and SIGWINCH stay here: a worker
// there has no terminal.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "muster/launch/hosts.h"
#include "muster/launch/process.h"
#include "muster/launch/starter.h"

namespace muster::launch {

// One slot: where, and with which words.
struct RemoteSlot {
  Host host;
  std::vector<std::string> command;  // the program there and its words
};

inline constexpr std::chrono::seconds kSilence{14};

struct SshOptions {
  std::string program = "/usr/bin/ssh";
  std::map<std::string, RemoteSlot> slots;  // by id
  std::string folder;                       // for standard error, as ID.err: ssh's and the worker's
  std::chrono::seconds silence = kSilence;  // after which the script there kills the worker
};

class SshStarter final : public Starter {
 public:
  // `held` must outlive it.
  SshStarter(SshOptions options, const HeldSignals& held)
      : options_(std::move(options)), held_(held) {}

  Result<std::unique_ptr<Process>> start(const std::string& id) override;
  std::string last_words(const std::string& id, int lines) const override;

 private:
  SshOptions options_;
  const HeldSignals& held_;
  std::map<std::string, int64_t> begins_;
};

// The words for ssh: its options, the host, and what is run there.
std::vector<std::string> ssh_words(const RemoteSlot& slot, std::chrono::seconds silence = kSilence);
// POSIX shell: runs "$@", sends it the signals that lines of standard input name ("-" names none),
// kills it when that input ends or no line has come for `silence`, and exits as it did.
std::string remote_script(std::chrono::seconds silence);

}  // namespace muster::launch
