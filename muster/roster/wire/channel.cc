#include "muster/roster/wire/channel.h"

#include <absl/synchronization/mutex.h>
#include <grpc/support/log.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string_view>

namespace muster::roster::wire {

namespace {

// ms; the client pings a connection on which nothing arrives. Much longer than a lease: a
// coordinator that is suspended for some seconds must find its connections whole when it continues.
// Members that lose their coordinator keep training, so nothing is urgent here.
constexpr int kPingEvery = 2000;
constexpr int kPingTimeout = 8000;
// ms, until a connection is given up and tried anew. Not short: a coordinator to which a thousand
// workers connect at once needs seconds to answer all of them, and for ever if they begin again.
constexpr int kConnectTimeout = 5000;

// Bytes. The largest message of a worker has its addresses, or the roster it holds: some 100 kB
// with a thousand members.
constexpr int kLargestFromWorker = 16 << 20;

// Bytes that may be on their way to a worker before it has read any: more than a roster or the
// addresses of thousands of members. gRPC would find out by itself how much a link carries, with a
// probe for every few messages: half of what an idle coordinator did.
constexpr int kWindow = 4 << 20;

void drop_line(gpr_log_func_args* line) {
  // Before gRPC aborts the process this is all it says.
  if (std::string_view(line->message).starts_with("assertion failed")) {
    std::fprintf(stderr, "gRPC, %s:%d: %s\n", line->file, line->line, line->message);
  }
}

}  // namespace

void set_up_grpc() {
  static std::once_flag once;
  std::call_once(once, [] {
    // NOLINTBEGIN(concurrency-mt-unsafe): the environment changes only while there is one thread
    if (std::getenv("GRPC_VERBOSITY") == nullptr && std::getenv("GRPC_TRACE") == nullptr) {
      gpr_set_log_function(drop_line);
    }
    // NOLINTEND(concurrency-mt-unsafe)
    // Debian builds Abseil so that every lock that gRPC takes is entered into one graph, to find
    // deadlocks. With two thousand connections that took a third of the coordinator's time.
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  });
}

void tune(grpc::ServerBuilder& builder) {
  set_up_grpc();
  builder.SetMaxReceiveMessageSize(kLargestFromWorker);
  // Without this the server takes the clients' pings for an attack and hangs up.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 100);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  // Two coordinators on one port would each get some of the workers.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

std::shared_ptr<grpc::Channel> open_channel(const std::string& address) {
  set_up_grpc();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeout);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPingEvery);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingTimeout);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kWindow);
  // Clusters set proxies for the world outside; a coordinator is not there.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace muster::roster::wire
