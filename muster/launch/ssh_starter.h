// Workers on other machines, over the ssh that the user has.
//
// Our child is an ssh; its end is the worker's end. ssh does not pass signals on, so they travel as
// lines ("INT") through its standard input to a few lines of shell (remote_script) that stand
// beside the worker and send them. When that input ends, because we were killed or the connection
// was lost, they kill the worker: nobody is left behind on a machine that we cannot reach.
//
// What the worker needs must be there at the same paths: the run's directory, the data. SIGTSTP and
// SIGWINCH stay here: a worker there has no terminal.
#pragma once

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

struct SshOptions {
  std::string program = "/usr/bin/ssh";
  std::map<std::string, RemoteSlot> slots;  // by id
  std::string folder;                       // for standard error, as ID.err: ssh's and the worker's
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
std::vector<std::string> ssh_words(const RemoteSlot& slot);
// POSIX shell: runs "$@", sends it the signals that lines of standard input name, kills it when
// that input ends, and leaves as it did.
extern const char* const kRemoteScript;
// As one word for a shell.
std::string quoted(const std::string& word);

}  // namespace muster::launch
