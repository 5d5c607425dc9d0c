#include "tools/muster-launch/verify/children.h"

#include <signal.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

constexpr const char* kShell = "/bin/sh";

TEST(Children, TellHowTheyEnded) {
  const launch::HeldSignals held;
  Children children(held);
  const pid_t seven = children.start(kShell, {"-c", "exit 7"}).value();
  const pid_t killed = children.start(kShell, {"-c", "kill -s KILL $$"}).value();
  EXPECT_EQ(children.wait(seven, [] {}).value(), (launch::Ending{7, 0}));
  EXPECT_EQ(children.wait(killed, [] {}).value(), (launch::Ending{0, SIGKILL}));
  EXPECT_EQ(children.ended(seven), (launch::Ending{7, 0})) << "it is remembered";
  EXPECT_FALSE(children.start("/nonexistent", {}).ok());
}

TEST(Children, ASignalEndsTheWait) {
  const launch::HeldSignals held;
  Children children(held);
  const pid_t pid = children.start("/bin/sleep", {"600"}).value();
  raise(SIGWINCH);  // is held too, and means nothing
  raise(SIGTERM);
  const auto ending = children.wait(pid, [] {});
  ASSERT_FALSE(ending.ok());
  EXPECT_EQ(ending.error().kind(), ErrorKind::kInterrupted);
  EXPECT_EQ(children.stopped_by(), SIGTERM);
}

TEST(Children, OneThatIsKilledSaysNothingMore) {
  const launch::HeldSignals held;
  Children children(held);
  const pid_t pid = children.start("/bin/sleep", {"600"}).value();
  children.kill_now(pid);
  EXPECT_EQ(children.ended(pid), (launch::Ending{0, SIGKILL}));
  children.kill_now(pid);  // gone already
}

TEST(Children, AreToldToStopFirstThenKilledAlsoIfStopped) {
  const launch::HeldSignals held;
  const std::string notes = testing::TempDir() + "/verify_children_test.notes";
  std::filesystem::remove(notes);
  const std::string deaf = notes + ".deaf";
  std::filesystem::remove(deaf);
  pid_t gentle = 0;
  pid_t stubborn = 0;
  pid_t stopped = 0;
  {
    Children children(held);
    const auto script = fmt::format(
        "trap 'echo told >>{0}; exit' TERM; echo up >>{0}; while :; do sleep 0.01; done", notes);
    gentle = children.start(kShell, {"-c", script}).value();
    while (!std::filesystem::exists(notes)) (void)children.ended(gentle);
    stubborn = children
                   .start(kShell, {"-c", fmt::format("trap '' TERM; : >{}; while :; do sleep 1; "
                                                     "done",
                                                     deaf)})
                   .value();
    while (!std::filesystem::exists(deaf)) (void)children.ended(stubborn);
    stopped = children.start("/bin/sleep", {"600"}).value();
    kill(stopped, SIGSTOP);
  }
  std::ifstream file(notes);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "up\ntold\n");
  for (const pid_t pid : {gentle, stubborn, stopped}) EXPECT_NE(kill(pid, 0), 0);
}

}  // namespace
}  // namespace muster::cli
