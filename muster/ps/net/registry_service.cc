#include "muster/ps/net/registry_service.h"

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "muster/base/thread.h"
#include "muster/ps/net/network.h"

namespace muster::ps {

class RegistryService::Impl final : NetworkListener {
 public:
  Impl(RegistryServiceOptions options, const Clock& clock)
      : options_(with_copies(std::move(options))), clock_(clock), registry_(options_.registry) {}

  ~Impl() override {
    stopped_ = true;
    network_.wake();
    thread_.join();
  }

  Status start() {
    MUSTER_RETURN_IF_ERROR(check(options_.setup));
    MUSTER_TRY(address_, network_.listen(options_.address));
    thread_ = Thread("ps-registry", [this] { run(); });
    return {};
  }

  const std::string& address() const { return address_; }

  void ended(const std::string& id) {
    {
      const std::lock_guard lock(mutex_);
      ended_.push_back(id);
    }
    network_.wake();
  }

  ServerMap map() const {
    const std::lock_guard lock(mutex_);
    return map_;
  }

 private:
  static RegistryServiceOptions with_copies(RegistryServiceOptions options) {
    options.registry.copies = options.setup.copies;
    return options;
  }

  void run() {
    while (!stopped_) {
      network_.turn(options_.registry.patience / 10);
      take_ended();
      registry_.expire(clock_.now());
      for (const auto& what : registry_.take_events()) {
        if (options_.tell) options_.tell(what);
      }
      tell_map();
    }
  }

  void take_ended() {
    std::vector<std::string> ids;
    {
      const std::lock_guard lock(mutex_);
      ids.swap(ended_);
    }
    for (const auto& id : ids) {
      std::erase_if(servers_, [&](const ServerKey& key) {
        if (key.id == id) registry_.ended(key);
        return key.id == id;
      });
    }
  }

  void tell_map() {
    const ServerMap& newest = registry_.maps().newest();
    if (newest.epoch == told_) return;
    told_ = newest.epoch;
    for (const auto& [connection, hello] : connections_) send_map(connection, hello);
    const std::lock_guard lock(mutex_);
    map_ = newest;
  }

  void send_map(ConnectionId connection, const Hello& hello) {
    // A server asks for those that it has missed.
    NewMap message;
    message.map.epoch = told_;
    if (!hello.server) message.map = registry_.maps().newest();
    network_.send(connection, encode_control(message));
  }

  void opened(ConnectionId /*connection*/) override {}
  void closed(ConnectionId connection) override { connections_.erase(connection); }

  void received(ConnectionId connection, const Bytes& bytes) override {
    const auto message = decode_control(*bytes);
    if (!message.ok()) return refuse(connection);
    if (const auto* const hello = std::get_if<Hello>(&*message)) {
      connections_[connection] = *hello;
      if (hello->server) servers_.insert(hello->key);
      network_.send(connection, encode_control(options_.setup));
      if (!hello->server && told_ > 0) send_map(connection, *hello);
    } else if (const auto* const beat = std::get_if<Beat>(&*message)) {
      const auto known = connections_.find(connection);
      if (known == connections_.end() || known->second.key != beat->heartbeat.key) {
        return refuse(connection);
      }
      const BeatAnswer answer{registry_.heard(beat->heartbeat, clock_.now()), beat->asked};
      network_.send(connection, encode_control(answer));
      tell_map();
    } else if (std::holds_alternative<AskStatus>(*message)) {
      network_.send(connection, encode_control(registry_.status(clock_.now())));
    } else {
      refuse(connection);
    }
  }

  void refuse(ConnectionId connection) {
    connections_.erase(connection);
    network_.close(connection);
  }

  const RegistryServiceOptions options_;
  const Clock& clock_;
  std::string address_;
  std::atomic<bool> stopped_ = false;

  mutable std::mutex mutex_;
  ServerMap map_;                   // for map()
  std::vector<std::string> ended_;  // and not taken yet

  // Of the thread.
  ServerRegistry registry_;
  std::map<ConnectionId, Hello> connections_;
  std::set<ServerKey> servers_;  // that have said Hello
  uint64_t told_ = 0;            // epoch
  Network network_{*this};
  Thread thread_;
};

RegistryService::RegistryService(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RegistryService::~RegistryService() = default;

Result<std::unique_ptr<RegistryService>> RegistryService::start(RegistryServiceOptions options,
                                                                const Clock& clock) {
  auto impl = std::make_unique<Impl>(std::move(options), clock);
  MUSTER_RETURN_IF_ERROR(impl->start());
  return std::unique_ptr<RegistryService>(new RegistryService(std::move(impl)));
}

const std::string& RegistryService::address() const { return impl_->address(); }
void RegistryService::ended(const std::string& id) { impl_->ended(id); }
ServerMap RegistryService::map() const { return impl_->map(); }

}  // namespace muster::ps
