#include "muster/ps/net/fetch_map.h"

#include <optional>
#include <string_view>

#include "muster/ps/net/control.h"
#include "muster/ps/net/network.h"

namespace muster::ps {
namespace {

class MapReader final : NetworkListener {
 public:
  Result<ServerMap> fetch(const std::string& registry, Duration timeout) {
    const auto until = std::chrono::steady_clock::now() + timeout;
    network_.connect(registry);
    while (!map_ && !broken_ && std::chrono::steady_clock::now() < until) network_.turn(timeout);
    if (map_) return *map_;
    return Error(ErrorKind::kIo, "the registry at {} {}", registry,
                 broken_ ? "cannot be reached" : "has no parameter servers yet");
  }

 private:
  void opened(ConnectionId connection) override {
    network_.send(connection, encode_control(Hello{false, {"", draw_incarnation()}}));
  }
  void received(ConnectionId /*connection*/, std::string_view bytes) override {
    const auto message = decode_control(bytes);
    if (!message.ok()) return;
    if (const auto* const newest = std::get_if<NewMap>(&*message)) map_ = newest->map;
  }
  void closed(ConnectionId /*connection*/) override { broken_ = true; }

  std::optional<ServerMap> map_;
  bool broken_ = false;
  Network network_{*this};
};

}  // namespace

Result<ServerMap> fetch_map(const std::string& registry, Duration timeout) {
  return MapReader().fetch(registry, timeout);
}

}  // namespace muster::ps
