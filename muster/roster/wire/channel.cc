#include "muster/roster/wire/channel.h"

namespace muster::roster::wire {

namespace {

constexpr int kPingEvery = 1000;  // ms; the client pings a connection on which nothing moves
constexpr int kPingTimeout = 1500;
constexpr int kConnectTimeout = 1000;

}  // namespace

void tune(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(-1);  // addresses of hundreds of workers come in one message
  // Without this the server takes the clients' pings for an attack and hangs up.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 100);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  // Two coordinators on one port would each get some of the workers.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

std::shared_ptr<grpc::Channel> open_channel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeout);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPingEvery);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingTimeout);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Clusters set proxies for the world outside; a coordinator is not there.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace muster::roster::wire
