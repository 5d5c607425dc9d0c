// A laboratory changes the namespaces of the process that makes it, so each test has a process of
// its own. Skipped where there can be none.
#include "muster/lab/lab.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "muster/base/check.h"

namespace muster::lab {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr uint16_t kPort = 7000;

// What a process on that host reads from the file of this path.
std::string read_on(const Lab& lab, size_t host, const std::string& path) {
  std::string line;
  for (const auto& word : lab.enter(host)) line += word + " ";
  FILE* pipe = popen((line + "cat " + path).c_str(), "r");
  MUSTER_CHECK(pipe != nullptr, "popen");
  std::array<char, 100> text{};
  const size_t n = fread(text.data(), 1, text.size(), pipe);
  pclose(pipe);
  return {text.data(), n};
}

// A process on that host, for as long as this object lives.
class OnHost {
 public:
  OnHost(const Lab& lab, size_t host, const std::function<void()>& body) : pid_(fork()) {
    if (pid_ != 0) return;
    const std::string word = lab.enter(host)[1];
    const Fd net(open(word.substr(word.find('=') + 1).c_str(), O_RDONLY));
    if (!net || setns(net.get(), CLONE_NEWNET) != 0) _exit(1);
    body();
    _exit(0);
  }
  ~OnHost() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  OnHost(const OnHost&) = delete;
  OnHost& operator=(const OnHost&) = delete;

 private:
  pid_t pid_;
};

// Connects from one host to another, sends so many bytes, and waits for an answer of one byte: two
// round trips, and the time for the bytes. None if there is no connection within half a second.
std::optional<double> seconds_for(const Lab& lab, size_t from, size_t to, size_t bytes) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kPort);
  inet_pton(AF_INET, lab.address(to).c_str(), &address.sin_addr);
  const auto* where = reinterpret_cast<const sockaddr*>(&address);
  std::array<int, 2> ready{};
  std::array<int, 2> result{};
  MUSTER_CHECK(pipe(ready.data()) == 0 && pipe(result.data()) == 0, "pipe");
  const OnHost server(lab, to, [&] {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0) _exit(1);
    const int on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(listener, where, sizeof(address)) != 0 || listen(listener, 1) != 0) _exit(1);
    (void)!write(ready[1], "r", 1);
    const int guest = accept(listener, nullptr, nullptr);
    std::vector<char> buffer(1 << 20);
    for (size_t left = bytes; left > 0;) {
      const ssize_t n = read(guest, buffer.data(), buffer.size());
      if (n <= 0) _exit(1);
      left -= static_cast<size_t>(n);
    }
    (void)!write(guest, "!", 1);
  });
  close(ready[1]);  // so that a child that ends early is noticed
  char byte = 0;
  (void)!read(ready[0], &byte, 1);
  const OnHost client(lab, from, [&] {
    double seconds = -1;
    const auto begin = steady_clock::now();
    const int connection = socket(AF_INET, SOCK_STREAM, 0);
    if (connection < 0) _exit(1);
    const timeval patience{.tv_sec = 0, .tv_usec = 500'000};
    setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    const std::vector<char> data(bytes);
    char answer = 0;
    if (connect(connection, where, sizeof(address)) == 0) {
      const timeval long_patience{.tv_sec = 20, .tv_usec = 0};
      setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &long_patience, sizeof(long_patience));
      if (send(connection, data.data(), data.size(), MSG_NOSIGNAL) ==
              static_cast<ssize_t>(data.size()) &&
          read(connection, &answer, 1) == 1) {
        seconds = std::chrono::duration<double>(steady_clock::now() - begin).count();
      }
    }
    (void)!write(result[1], &seconds, sizeof(seconds));
  });
  close(result[1]);
  double seconds = -1;
  if (read(result[0], &seconds, sizeof(seconds)) != sizeof(seconds)) seconds = -1;
  close(ready[0]);
  close(result[0]);
  return seconds < 0 ? std::nullopt : std::optional(seconds);
}

class LabTest : public testing::Test {
 protected:
  LabTest() : folder_((std::filesystem::temp_directory_path() / "muster-XXXXXX").string()) {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
  }
  ~LabTest() override { std::filesystem::remove_all(folder_); }
  // What a laboratory is made of, without our code.
  void SetUp() override {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): one thread
    if (geteuid() != 0 || std::system("PATH=$PATH:/usr/sbin:/sbin; unshare --net --mount true && "
                                      "command -v ip && command -v tc && command -v nsenter && "
                                      "test -w /dev/net/tun") != 0) {
      GTEST_SKIP() << "needs root, iproute2, network namespaces and /dev/net/tun";
    }
  }

  // Runs the story; what it returns is what went wrong.
  void tell(std::vector<HostOptions> hosts,
            const std::function<std::string(Lab& lab)>& story) const {
    const std::string out = folder_ + ".out";
    const pid_t pid = fork();
    if (pid == 0) {
      auto lab = Lab::make(std::move(hosts), folder_);
      std::ofstream(out) << (lab.ok() ? story(**lab) : lab.error().message());
      if (lab.ok()) lab->reset();
      _exit(0);
    }
    ASSERT_GT(pid, 0);
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    std::ifstream file(out);
    const std::string said{std::istreambuf_iterator<char>(file), {}};
    std::filesystem::remove(out);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(said, "");
    EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "files are left";
  }

  std::string folder_;
};

TEST_F(LabTest, HostsReachEachOtherUnlessTheyAreCut) {
  tell({{"paris", {}}, {"tokyo", {}}, {"lima", {}}}, [](Lab& lab) -> std::string {
    const auto reach = [&](size_t from, size_t to) { return bool(seconds_for(lab, from, to, 1)); };
    const auto tokyo = lab.find("tokyo");
    if (!tokyo.ok() || *tokyo != 1 || lab.find("rome").ok()) return "find";
    if (!reach(0, 1) || !reach(1, 2)) return "they do not reach each other";
    if (!lab.cut(0, 1).ok() || reach(0, 1) || reach(1, 0)) return "not cut";
    if (!reach(0, 2)) return "another one is cut too";
    if (!lab.heal(0, 1).ok() || !reach(0, 1)) return "not healed";
    return "";
  });
}

// So that workers on them do not share memory (comm/shared_segment.h).
TEST_F(LabTest, HostsAreDifferentMachines) {
  tell({{"a", {}}, {"b", {}}}, [](Lab& lab) -> std::string {
    const std::string boot_id = "/proc/sys/kernel/random/boot_id";
    const std::string a = read_on(lab, 0, boot_id);
    const std::string b = read_on(lab, 1, boot_id);
    return a.empty() || a == b ? "one boot id: " + a : "";
  });
}

TEST_F(LabTest, RatesHoldInBothDirectionsAndCanBeChanged) {
  tell({{"a", {.rate = 2e7}}, {"b", {}}}, [](Lab& lab) -> std::string {
    // 8 Mbit at 20 Mbit/s: 0.4 s.
    const double there = seconds_for(lab, 0, 1, 1'000'000).value_or(-1);
    if (there < 0.38) return fmt::format("{} s", there);
    const auto traffic = lab.traffic(0);
    if (!traffic.ok() || traffic->sent < 1'000'000 || traffic->sent > 1'200'000) return "traffic";
    const double back = seconds_for(lab, 1, 0, 1'000'000).value_or(-1);
    if (back < 0.38) return fmt::format("the other way: {} s", back);
    if (!lab.set_link(0, {}).ok()) return "set_link";
    const double fast = seconds_for(lab, 0, 1, 1'000'000).value_or(-1);
    if (fast < 0 || fast > there / 2) return fmt::format("without a rate: {} s", fast);
    if (lab.set_link(0, {.delay = milliseconds(5)}).ok()) return "delay without a relay";
    return "";
  });
}

TEST_F(LabTest, DelaysAddUpToTheRoundTrip) {
  tell({{"a", {.delay = milliseconds(40)}}, {"b", {.delay = milliseconds(20)}}},
       [](Lab& lab) -> std::string {
         (void)seconds_for(lab, 0, 1, 1);  // they look for each other's hardware addresses first
         const double both = seconds_for(lab, 0, 1, 1).value_or(-1);
         if (both < 0.119) return fmt::format("{} s", both);
         if (!lab.set_link(0, {}).ok()) return "set_link";
         const double one = seconds_for(lab, 0, 1, 1).value_or(-1);
         if (one < 0.039 || one > both) return fmt::format("without the one delay {} s", one);
         return "";
       });
}

}  // namespace
}  // namespace muster::lab
