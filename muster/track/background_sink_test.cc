#include "muster/track/background_sink.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <future>
#include <string>

#include <gtest/gtest.h>

#include "muster/base/clock.h"
#include "muster/track/progress.h"

namespace muster::track {
namespace {

// A pipe that is full already: the next byte written to it waits until somebody reads.
class FullPipe {
 public:
  FullPipe() {
    EXPECT_EQ(::pipe2(ends_.data(), O_NONBLOCK), 0);
    const std::string some(4096, '.');
    while (::write(ends_[1], some.data(), some.size()) > 0) filled_ += some.size();
    for (const int end : ends_) EXPECT_EQ(::fcntl(end, F_SETFL, 0), 0);  // blocking from now on
  }
  ~FullPipe() {
    ::close(ends_[0]);
    close_write();
  }
  FullPipe(const FullPipe&) = delete;
  FullPipe& operator=(const FullPipe&) = delete;

  int write_end() const { return ends_[1]; }
  void close_write() {
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }
  // Everything until the other end is closed, without what it was filled with.
  std::string read_all() {
    std::string text;
    std::array<char, 4096> buffer;
    for (ssize_t got = 1; got > 0;) {
      got = ::read(ends_[0], buffer.data(), buffer.size());
      if (got > 0) text.append(buffer.data(), static_cast<size_t>(got));
    }
    return text.substr(filled_);
  }

 private:
  std::array<int, 2> ends_{-1, -1};
  size_t filled_ = 0;
};

TEST(BackgroundSink, APipeNobodyReadsDoesNotStopTheWriter) {
  FullPipe pipe;
  FdSink sink(pipe.write_end(), "", "");
  std::string expected;
  std::future<std::string> read;
  {
    BackgroundSink background(sink);
    for (int i = 0; i < 10000; ++i) {  // would hang here
      const std::string line = "line " + std::to_string(i) + "\n";
      background.write(line);
      expected += line;
      EXPECT_EQ(background.keeps_up(), expected.size() < BackgroundSink::kBacklog);
    }
    // Somebody reads at last; until then the sink could not be taken down.
    read = std::async(std::launch::async, [&] { return pipe.read_all(); });
    while (!background.keeps_up()) ::usleep(1000);  // it is being read: this ends
  }
  pipe.close_write();
  EXPECT_EQ(read.get(), expected) << "whole and in order";
}

TEST(BackgroundSink, StepsAreLeftOutWhileTheReaderSleepsButResultsAreNot) {
  constexpr size_t kSteps = 10000;
  FullPipe pipe;
  FdSink sink(pipe.write_end(), "", "");
  FakeClock clock;
  std::future<std::string> read;
  {
    BackgroundSink background(sink);
    ProgressOptions options;
    options.mode = ProgressMode::kJson;
    options.json_every = Duration(0);
    Progress progress(background, clock, options);
    for (size_t step = 1; step <= kSteps; ++step) {
      progress.step({static_cast<int64_t>(step), 0, 0.5, 1});
    }
    progress.eval({kSteps, 1, std::array{Metric{"loss", 0.25}}, false});
    progress.finish({{"steps", kSteps}});
    read = std::async(std::launch::async, [&] { return pipe.read_all(); });
  }
  pipe.close_write();
  const std::string text = read.get();
  EXPECT_TRUE(text.starts_with(R"({"event":"step","step":1,)"));
  EXPECT_TRUE(
      text.ends_with(R"({"event":"eval","step":10000,"pass":1.0,"test":{"loss":0.25},"best":false})"
                     "\n"
                     R"({"event":"result","steps":10000})"
                     "\n"));
  EXPECT_GE(text.size(), BackgroundSink::kBacklog);
  EXPECT_LE(text.size(), BackgroundSink::kBacklog + 1000) << "steps went on piling up";
}

}  // namespace
}  // namespace muster::track
