// The script that stands beside a worker on another machine, here without ssh: it reads its lines
// from the same socket, in a session of its own as sshd gives it one. With a real sshd:
// tests/cli/hosts_test.py.
#include "muster/launch/ssh_starter.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/launch/local_starter.h"

namespace muster::launch {
namespace {

using namespace std::chrono_literals;

TEST(SshWords, EverythingThatAHostSays) {
  Host host;
  host.host = "h";
  EXPECT_THAT(ssh_words({host, {"worker", "it's"}}),
              testing::AllOf(testing::Contains("BatchMode=yes"), testing::Contains("h"),
                             testing::Not(testing::Contains("-p")),
                             testing::Contains(testing::EndsWith(" sh 'worker' 'it'\\''s'"))));
  host.user = "u";
  host.port = 22;
  host.identity = "/k";
  host.options = {"A=b"};
  const auto words = ssh_words({host, {"worker"}});
  const std::string line = fmt::format("{}", fmt::join(words, " "));
  EXPECT_THAT(line, testing::HasSubstr("-o A=b -l u -p 22 -o IdentitiesOnly=yes -i /k -- h exec"));
}

// A stand-in for ssh that runs the command as sshd would.
class RemoteScript : public testing::Test {
 protected:
  RemoteScript() : folder_((std::filesystem::temp_directory_path() / "muster-XXXXXX").string()) {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    const std::string ssh = path("ssh");
    // Its last word is the command. sshd makes a session for it; setsid needs a process that leads
    // no group, hence the fork.
    std::ofstream(ssh) << "#!/bin/sh\nfor last; do :; done\nexec setsid -w sh -c \"$last\"\n";
    chmod(ssh.c_str(), 0755);
  }
  ~RemoteScript() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  std::unique_ptr<Process> start(const std::string& script) {
    Host host;
    host.host = "h";
    starter_ = std::make_unique<SshStarter>(
        SshOptions{path("ssh"),
                   {{"0", {host, {"/bin/sh", "-c", fmt::format("cd {}; {}", folder_, script)}}}},
                   folder_,
                   silence_},
        held_);
    auto process = starter_->start("0");
    EXPECT_TRUE(process.ok());
    return *std::move(process);
  }
  static Ending end_of(const Process& process) {
    while (true) {
      if (const auto seen = reap(process.pid())) return process.ending(*seen);
      std::this_thread::sleep_for(1ms);
    }
  }
  void await(const std::string& name) const {
    while (!std::filesystem::exists(path(name))) std::this_thread::sleep_for(1ms);
  }
  bool runs(const std::string& pid_file) const {
    int pid = 0;
    std::ifstream(path(pid_file)) >> pid;
    std::ifstream stat(fmt::format("/proc/{}/stat", pid));
    const std::string text{std::istreambuf_iterator<char>(stat), {}};
    return !text.empty() && text[text.rfind(") ") + 2] != 'Z';
  }

  std::string folder_;
  const HeldSignals held_;
  std::chrono::seconds silence_ = kSilence;
  std::unique_ptr<SshStarter> starter_;
};

TEST_F(RemoteScript, TheExitCodeAndTheWordsAreTheWorkers) {
  EXPECT_EQ(end_of(*start("echo here >&2; exit 4")), (Ending{4, 0}));
  EXPECT_EQ(starter_->last_words("0", 20), "here");
  EXPECT_EQ(end_of(*start("exit 0")), (Ending{0, 0}));
  EXPECT_EQ(end_of(*start("kill -KILL $$")), (Ending{0, SIGKILL}));
  EXPECT_EQ(end_of(*start("exit 130")), (Ending{130, 0})) << "a worker's own code";
  EXPECT_EQ(end_of(*start("exit 255")), (Ending{255, 0})) << "ssh's own code";
}

TEST_F(RemoteScript, SignalsTravel) {
  const auto process =
      start("trap 'touch heard' USR1; trap 'exit 130' INT; touch up; while :; do sleep 0.01; done");
  await("up");
  process->send(SIGUSR1);
  await("heard");
  process->send(SIGTSTP);
  process->send(SIGINT);
  EXPECT_EQ(end_of(*process), (Ending{130, 0}));
}

TEST_F(RemoteScript, TheWorkerSeesThatItsParentIsTheOneThatStartedIt) {
  EXPECT_EQ(
      end_of(*start("[ $MUSTER_LAUNCHER_PID = $PPID ] && [ $OMP_NUM_THREADS = 1 ] && exit 7")),
      (Ending{7, 0}));
}

TEST_F(RemoteScript, WhenTheLineIsCutTheWorkerGoes) {
  auto process = start("trap '' INT TERM; echo $$ > pid; mv pid up; while :; do sleep 0.01; done");
  await("up");
  EXPECT_TRUE(runs("up"));
  const pid_t pid = process->pid();
  process.reset();  // closes our end, as our death would
  while (runs("up")) std::this_thread::sleep_for(1ms);
  while (!reap(pid)) std::this_thread::sleep_for(1ms);
}

// The link goes silent: nothing is closed, but no keepalive arrives there.
TEST_F(RemoteScript, WithoutKeepalivesTheWorkerIsKilled) {
  silence_ = 2s;
  const auto process =
      start("trap '' INT TERM; echo $$ > pid; mv pid up; while :; do sleep 0.01; done");
  EXPECT_TRUE(process->wants_keepalive());
  await("up");
  (void)end_of(*process);
  // It was killed with the others of its group, but one of these may be gone first.
  while (runs("up")) std::this_thread::sleep_for(1ms);
}

TEST_F(RemoteScript, KeepalivesKeepTheWorkerAlive) {
  silence_ = 2s;
  const auto process = start("sleep 5; exit 9");
  std::optional<Ending> seen;
  while (!(seen = reap(process->pid()))) {
    process->keep_alive();
    std::this_thread::sleep_for(200ms);
  }
  EXPECT_EQ(process->ending(*seen), (Ending{9, 0}));
}

}  // namespace
}  // namespace muster::launch
