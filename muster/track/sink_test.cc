#include "muster/track/sink.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <string>

#include <gtest/gtest.h>

namespace muster::track {
namespace {

TEST(FdSink, APipeIsNoTerminal) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  FdSink sink(ends[1], "xterm", "");
  EXPECT_FALSE(sink.is_terminal());
  EXPECT_FALSE(sink.has_colour());
  EXPECT_EQ(sink.width(), 80);
  sink.write("hello");
  char text[5];
  ASSERT_EQ(::read(ends[0], text, 5), 5);
  EXPECT_EQ(std::string(text, 5), "hello");
  ::close(ends[0]);
  ::close(ends[1]);
  sink.write("nobody listens");  // dropped
}

TEST(FdSink, KnowsWhatATerminalCanDo) {
  const int host = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (host < 0 || ::grantpt(host) != 0 || ::unlockpt(host) != 0) {
    GTEST_SKIP() << "this machine gives no pseudo terminals";
  }
  char name[128];
  ASSERT_EQ(::ptsname_r(host, name, sizeof(name)), 0);
  const int terminal = ::open(name, O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  FdSink sink(terminal, "xterm", "");
  EXPECT_TRUE(sink.is_terminal());
  EXPECT_TRUE(sink.has_colour());
  struct winsize size = {};
  size.ws_col = 123;
  ASSERT_EQ(::ioctl(terminal, TIOCSWINSZ, &size), 0);
  EXPECT_EQ(sink.width(), 123);
  EXPECT_FALSE(FdSink(terminal, "xterm", "1").has_colour());
  EXPECT_TRUE(FdSink(terminal, "xterm", "1").is_terminal());
  EXPECT_FALSE(FdSink(terminal, "dumb", "").is_terminal());
  EXPECT_FALSE(FdSink(terminal, "", "").is_terminal());
  ::close(terminal);
  ::close(host);
}

}  // namespace
}  // namespace muster::track
