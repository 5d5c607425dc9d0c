#include "muster/ps/net/fetch_map.h"

#include <optional>
#include <string_view>
#include <type_traits>

#include "muster/ps/net/control.h"
#include "muster/ps/net/network.h"

namespace muster::ps {
namespace {

// Waits for one message of this kind.
template <typename Message>
class Reader final : NetworkListener {
 public:
  Result<Message> fetch(const std::string& registry, Duration timeout) {
    const auto until = std::chrono::steady_clock::now() + timeout;
    network_.connect(registry);
    while (!got_ && !broken_ && std::chrono::steady_clock::now() < until) network_.turn(timeout);
    if (got_) return *std::move(got_);
    return Error(ErrorKind::kIo, "the registry of parameter servers at {} {}", registry,
                 broken_ ? "cannot be reached" : waited_for());
  }

 private:
  static constexpr bool kStatus = std::is_same_v<Message, ServersStatus>;
  static const char* waited_for() { return kStatus ? "does not answer" : "has no servers yet"; }

  void opened(ConnectionId connection) override {
    network_.send(connection, encode_control(Hello{false, {"", draw_incarnation()}}));
    if (kStatus) network_.send(connection, encode_control(AskStatus{}));
  }
  void received(ConnectionId /*connection*/, const Bytes& bytes) override {
    auto message = decode_control(*bytes);
    if (!message.ok()) return;
    if (auto* const one = std::get_if<Message>(&*message)) got_ = std::move(*one);
  }
  void closed(ConnectionId /*connection*/) override { broken_ = true; }

  std::optional<Message> got_;
  bool broken_ = false;
  Network network_{*this};
};

}  // namespace

Result<ServerMap> fetch_map(const std::string& registry, Duration timeout) {
  MUSTER_TRY(auto newest, Reader<NewMap>().fetch(registry, timeout));
  return std::move(newest.map);
}

Result<ServersStatus> fetch_servers_status(const std::string& registry, Duration timeout) {
  return Reader<ServersStatus>().fetch(registry, timeout);
}

}  // namespace muster::ps
