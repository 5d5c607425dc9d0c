// Reads of 4 MiB ranges from a MinIO on loopback, 8 at once: S3Store, RetryStore around it, and
// libcurl alone, which is what they are compared with. Every range that is read is compared with
// what was written (once per range, outside the measured time). Not run by CI.
#include <curl/curl.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "muster/store/retry.h"
#include "muster/store/s3_store.h"
#include "muster/store/server_testing.h"

namespace muster::store {
namespace {

constexpr size_t kRange = 4 << 20;
constexpr size_t kRanges = 64;
constexpr int kConnections = 8;

// The server and its object, for all benchmarks of this program.
class Bench {
 public:
  Bench() : store_(server_.settings(), clock_), contents_(kRange * kRanges) {
    for (size_t i = 0; i < contents_.size(); ++i) {
      contents_[i] = static_cast<std::byte>(i * 2654435761U >> 24);
    }
    const auto written = store_.write(MinioServer::url("x"), contents_, WriteCondition::always());
    MUSTER_CHECK(written.ok(), written.error().message());
    object_ = store_.list(MinioServer::url("x"))->at(0);
  }
  bool right(size_t range, std::span<const std::byte> bytes) const {
    return std::memcmp(bytes.data(), contents_.data() + range * kRange, kRange) == 0;
  }

  SystemClock clock_;
  MinioServer server_;
  S3Store store_;
  Object object_;
  std::vector<std::byte> contents_;
};

Bench* bench() {
  static const std::unique_ptr<Bench> made =
      MinioServer::unavailable().empty() ? std::make_unique<Bench>() : nullptr;
  return made.get();
}

using Read = std::function<bool(size_t range, std::span<std::byte> into)>;

// kConnections threads, each with a `make_read` of its own, read all ranges.
void read_all(benchmark::State& state, const std::function<Read()>& make_read) {
  std::atomic<bool> good{true};
  std::vector<std::vector<std::byte>> buffers(kConnections, std::vector<std::byte>(kRange));
  std::vector<Read> reads;
  for (int t = 0; t < kConnections; ++t) reads.push_back(make_read());
  const auto run = [&](bool check) {
    std::atomic<size_t> next{0};
    std::vector<std::thread> threads;
    for (size_t t = 0; t < kConnections; ++t) {
      threads.emplace_back([&, t] {
        for (size_t range = next++; range < kRanges; range = next++) {
          if (!reads[t](range, buffers[t])) good = false;
          if (check && !bench()->right(range, buffers[t])) good = false;
        }
      });
    }
    for (auto& thread : threads) thread.join();
  };
  run(true);
  while (state.KeepRunning()) run(false);
  if (!good) state.SkipWithError("a read failed or gave wrong bytes");
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * kRange * kRanges));
}

void store_reads(benchmark::State& state, Store& store) {
  read_all(state, [&]() -> Read {
    return [&store](size_t range, std::span<std::byte> into) {
      return store.read(bench()->object_, range * kRange, into).ok();
    };
  });
}

void s3_store(benchmark::State& state) {
  if (bench() == nullptr) return state.SkipWithError(MinioServer::unavailable().c_str());
  store_reads(state, bench()->store_);
}

void retry_store(benchmark::State& state) {
  if (bench() == nullptr) return state.SkipWithError(MinioServer::unavailable().c_str());
  RetryStore store(std::make_unique<S3Store>(bench()->server_.settings(), bench()->clock_),
                   bench()->clock_);
  store_reads(state, store);
  state.counters["hedges"] = static_cast<double>(store.counters().hedges);
}

struct Sink {
  std::span<std::byte> into;
  size_t filled = 0;
};
size_t take(char* data, size_t size, size_t count, void* user) {
  auto& sink = *static_cast<Sink*>(user);
  if (size * count > sink.into.size() - sink.filled) return 0;
  std::memcpy(sink.into.data() + sink.filled, data, size * count);
  sink.filled += size * count;
  return size * count;
}

void curl_alone(benchmark::State& state) {
  if (bench() == nullptr) return state.SkipWithError(MinioServer::unavailable().c_str());
  const auto settings = bench()->server_.settings();
  const std::string url = *settings.endpoint + "/bucket/x";
  const std::string user = settings.credentials->key_id + ":" + settings.credentials->secret;
  read_all(state, [&]() -> Read {
    const std::shared_ptr<CURL> easy(curl_easy_init(), curl_easy_cleanup);
    curl_easy_setopt(easy.get(), CURLOPT_URL, url.c_str());
    curl_easy_setopt(easy.get(), CURLOPT_AWS_SIGV4, "aws:amz:us-east-1:s3");
    curl_easy_setopt(easy.get(), CURLOPT_USERPWD, user.c_str());
    curl_easy_setopt(easy.get(), CURLOPT_BUFFERSIZE, state.range(0));
    curl_easy_setopt(easy.get(), CURLOPT_WRITEFUNCTION, &take);
    return [easy](size_t range, std::span<std::byte> into) {
      Sink sink{.into = into};
      const auto bytes = fmt::format("{}-{}", range * kRange, (range + 1) * kRange - 1);
      curl_easy_setopt(easy.get(), CURLOPT_RANGE, bytes.c_str());
      curl_easy_setopt(easy.get(), CURLOPT_WRITEDATA, &sink);
      return curl_easy_perform(easy.get()) == CURLE_OK && sink.filled == into.size();
    };
  });
}

BENCHMARK(s3_store)->UseRealTime()->MeasureProcessCPUTime();
BENCHMARK(retry_store)->UseRealTime()->MeasureProcessCPUTime();
BENCHMARK(curl_alone)->Arg(16 << 10)->Arg(512 << 10)->UseRealTime()->MeasureProcessCPUTime();

}  // namespace
}  // namespace muster::store
