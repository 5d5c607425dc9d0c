// Servers that a test starts, on loopback, and ends.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "muster/base/check.h"
#include "muster/base/clock.h"
#include "muster/base/scratch_directory.h"
#include "muster/store/http_client.h"
#include "muster/store/s3_store.h"

namespace muster::store {

// A child process whose standard output can be read; killed when its owner goes.
class TestProcess {
 public:
  TestProcess(const std::vector<std::string>& command,
              const std::vector<std::string>& environment) {
    std::vector<char*> arguments;
    std::vector<char*> variables;
    for (const auto& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    for (const auto& word : environment) variables.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    variables.push_back(nullptr);
    int ends[2];
    MUSTER_CHECK(::pipe2(ends, O_CLOEXEC) == 0, "a test needs a pipe");
    pid_ = ::fork();
    MUSTER_CHECK(pid_ >= 0, "a test needs a process");
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(ends[1], 1);
      ::execvpe(arguments[0], arguments.data(), variables.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    out_ = ends[0];
  }
  ~TestProcess() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::close(out_);
  }
  TestProcess(const TestProcess&) = delete;
  TestProcess& operator=(const TestProcess&) = delete;

  // Empty at the end of its output.
  std::string read_line() {
    std::string line;
    char c = 0;
    while (::read(out_, &c, 1) == 1 && c != '\n') line += c;
    return line;
  }
  // SIGSTOP; returns once all its threads stand still.
  void suspend() const {
    ::kill(pid_, SIGSTOP);
    ::waitpid(pid_, nullptr, WUNTRACED);
  }
  void resume() const { ::kill(pid_, SIGCONT); }

 private:
  pid_t pid_ = -1;
  int out_ = -1;
};

// testdata/range_server.py
class RangeServer {
 public:
  // Why it cannot be started, or "".
  static std::string unavailable() {
    return source().empty() ? "MUSTER_SOURCE_DIR is not set; run it through ctest" : "";
  }
  RangeServer()
      : process_({"python3", "-B", source() + "/muster/store/testdata/range_server.py"},
                 {"PATH=/usr/local/bin:/usr/bin:/bin"}),
        port_(process_.read_line()) {
    MUSTER_CHECK(!port_.empty(), "testdata/range_server.py did not start");
  }
  std::string host() const { return "127.0.0.1:" + port_; }
  std::string url(const std::string& path) const { return "http://" + host() + path; }
  std::string post(const std::string& path) const {
    HttpClient client;
    HttpRequest request;
    request.method = "POST";
    request.url = request.name = url(path);
    return client.perform(request)->body;
  }

 private:
  static std::string source() {
    const char* const place = std::getenv("MUSTER_SOURCE_DIR");  // NOLINT(concurrency-mt-unsafe)
    return place != nullptr ? place : "";
  }

  TestProcess process_;
  std::string port_;
};

inline int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  MUSTER_CHECK(fd >= 0, "a test needs a socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const bool bound = ::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  ::close(fd);
  MUSTER_CHECK(bound, "a test needs a port");
  return ntohs(address.sin_port);
}

// A real MinIO with a directory of its own.
class MinioServer {
 public:
  static constexpr const char* kVersion = "20260212201848";
  static constexpr const char* kBucket = "bucket";

  // MUSTER_MINIO, or scripts/fetch_minio.sh's place in the cache; "" if it is in neither.
  static std::string program() {
    const auto environment = process_environment();
    if (auto named = environment("MUSTER_MINIO")) return *named;
    const auto home = environment("HOME").value_or("");
    const auto cache = environment("XDG_CACHE_HOME").value_or(home + "/.cache");
    auto path = cache + "/muster/minio/" + kVersion + "/minio";
    return std::filesystem::exists(path) ? path : "";
  }
  static std::string unavailable() {
    return program().empty() ? "MinIO is not there: scripts/fetch_minio.sh builds it" : "";
  }

  explicit MinioServer(int port = free_port()) : port_(port) {
    // A bucket is a directory in MinIO's own.
    std::filesystem::create_directories(data_.path() + "/" + kBucket);
    start();
  }
  void kill() { process_.reset(); }
  void start() {
    const std::string address = "127.0.0.1:" + std::to_string(port_);
    process_ = std::make_unique<TestProcess>(
        std::vector<std::string>{program(), "server", "--quiet", "--address", address,
                                 data_.path()},
        std::vector<std::string>{"HOME=" + data_.path(), "MINIO_ROOT_USER=tester",
                                 "MINIO_ROOT_PASSWORD=test-password", "MINIO_BROWSER=off",
                                 "MINIO_UPDATE=off", "GOMAXPROCS=2"});
    // Its own "ready" comes earlier than answers to signed requests.
    const SystemClock clock;
    S3Store store(settings(), clock);
    for (int i = 0; i < 600; ++i) {
      if (store.list(url("*")).ok()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    MUSTER_CHECK(false, "MinIO did not start within 30 s");
  }
  void suspend() const { process_->suspend(); }
  void resume() const { process_->resume(); }

  S3Settings settings() const {
    return {.endpoint = "http://127.0.0.1:" + std::to_string(port_),
            .region = "us-east-1",
            .credentials =
                Credentials{.key_id = "tester", .secret = "test-password", .session_token = ""}};
  }
  static std::string url(const std::string& key) {
    return std::string("s3://") + kBucket + "/" + key;
  }

 private:
  ScratchDirectory data_ = *ScratchDirectory::make("minio");
  int port_;
  std::unique_ptr<TestProcess> process_;
};

}  // namespace muster::store
