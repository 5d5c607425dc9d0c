#include "muster/ps/net/server.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "muster/base/address.h"
#include "muster/base/fault_point.h"
#include "muster/ps/answers.h"

namespace muster::ps {

using namespace std::chrono_literals;

namespace {

constexpr Duration kRetry = 30ms;  // until a connection is tried again
constexpr Duration kRegistryRetry = 200ms;
constexpr Duration kAloneFor = 60s;       // without the registry
constexpr Duration kLookForCopies = 1ms;  // how often, if there were none
constexpr int64_t kBeatsInALease = 4;     // at least: some may come late
// Copies and whole shards that wait to be sent to somebody hold memory, and what is behind them
// waits: no further one is begun while there are more than these bytes.
constexpr size_t kMostWaiting = 64 << 20;

std::string with_host(const std::string& address, const std::string& host) {
  return bracketed(host) + address.substr(address.rfind(':'));
}

}  // namespace

Server::Server(ServerOptions options, const Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      self_{options_.id, draw_incarnation()},
      heartbeat_(options_.heartbeat) {}
Server::~Server() {
  fetcher_.reset();  // it wakes the network
  network_.reset();
}

Result<Server::End> Server::run() {
  network_.emplace(static_cast<NetworkListener&>(*this));
  MUSTER_TRY(const auto listening, network_->listen(options_.listen));
  address_ = with_host(listening, options_.host);
  while (!(options_.stopped && options_.stopped()) && !removed_ && !failure_) {
    const Moment now = clock_.now();
    connect_all(now);
    look_for_registry(now);
    if (registry_open_ && setup_ && now >= next_beat_) beat();
    if (core_) copy_some(now);
    network_->turn(whole_.empty() ? std::min(heartbeat_ / 2, Duration{10ms}) : 1ms);
    if (!core_) continue;
    take_fetched();
    answer_held();
    answer_whole();
    report_rows(now);
    if (const Error* const error = core_->failure()) failure_ = *error;
    if (disk_failed()) failure_ = *cold_->failure();
  }
  fetcher_.reset();
  network_.reset();
  if (failure_) return *std::move(failure_);
  return removed_ ? End::kRemoved : End::kStopped;
}

// ---- Connections.

void Server::connect_all(Moment now) {
  if (registry_ == 0 && now >= registry_retry_at_) registry_ = network_->connect(options_.registry);
  for (auto& [key, peer] : peers_) {
    // The one with the smaller key opens it.
    if (!(self_ < key) || peer.connection != 0 || now < peer.retry_at) continue;
    peer.connection = network_->connect(peer.address);
    servers_[peer.connection] = key;
  }
}

// Without one it is of no use to anybody, and a registry that is started again does not take it.
void Server::look_for_registry(Moment now) {
  if (registry_open_ || registry_seen_ == Moment{}) registry_seen_ = now;
  if (now - registry_seen_ <= kAloneFor) return;
  failure_ = Error(ErrorKind::kIo,
                   "the registry at {} has not answered for {} s: the launcher or coordinator of "
                   "the job has ended, or a network is in the way",
                   options_.registry, std::chrono::floor<std::chrono::seconds>(kAloneFor).count());
}

void Server::opened(ConnectionId connection) {
  const auto hello = [&] { network_->send(connection, encode_control(Hello{true, self_})); };
  if (connection == registry_) {
    registry_open_ = true;
    next_beat_ = Moment{};
    return hello();
  }
  const auto known = servers_.find(connection);
  if (known == servers_.end()) return;  // one that has yet to say who it is
  hello();
  peers_[known->second].open = true;
  core_->reconnected(known->second);
}

void Server::closed(ConnectionId connection) {
  for (auto& [shard, held] : held_) {
    std::erase_if(held.waiting, [&](const Held& one) { return one.from == connection; });
  }
  std::erase_if(whole_, [&](const auto& one) { return one.first == connection; });
  if (connection == registry_) {
    registry_ = 0;
    registry_open_ = false;
    registry_retry_at_ = clock_.now() + kRegistryRetry;
    return;
  }
  if (const auto client = clients_.find(connection); client != clients_.end()) {
    const uint64_t id = client->second;
    clients_.erase(client);
    forget_connection(id, connection);
  }
  if (const auto server = servers_.find(connection); server != servers_.end()) {
    auto& peer = peers_[server->second];
    // This is called for attempts that fail, too.
    if (peer.open) peer.closed_at = clock_.now();
    peer.connection = 0;
    peer.open = false;
    peer.retry_at = clock_.now() + kRetry;
    servers_.erase(server);
  }
}

// Of that client. It may have another one, where it waits for its answers.
void Server::forget_connection(uint64_t client, ConnectionId connection) {
  const auto found = connection_of_.find(client);
  if (found == connection_of_.end() || found->second != connection) return;
  const auto other =
      std::ranges::find_if(clients_, [&](const auto& one) { return one.second == client; });
  if (other == clients_.end()) {
    connection_of_.erase(found);
  } else {
    found->second = other->first;
  }
}

// closed() does not come for those that are closed from here.
void Server::refuse(ConnectionId connection) {
  network_->close(connection);
  closed(connection);
}

void Server::received(ConnectionId connection, const Bytes& bytes) {
  if (connection == registry_) return from_registry(*bytes);
  if (!servers_.contains(connection) && !clients_.contains(connection)) {
    return greet(connection, *bytes);
  }
  auto message = decode(bytes);
  if (!message.ok()) {
    tell(message.error().message());
    return refuse(connection);
  }
  handle(connection, *std::move(message));
}

// The first message of somebody who has connected.
void Server::greet(ConnectionId connection, std::string_view bytes) {
  const auto message = decode_control(bytes);
  const auto* const hello = message.ok() ? std::get_if<Hello>(&*message) : nullptr;
  if (!message.ok()) tell(message.error().message());
  // Who comes too early tries again.
  if (hello == nullptr || !core_) return refuse(connection);
  const ServerKey& key = hello->key;
  if (!hello->server) {
    clients_[connection] = key.incarnation;
    connection_of_[key.incarnation] = connection;
    return;
  }
  if (!(key < self_)) return refuse(connection);
  Peer& peer = peers_[key];
  if (peer.connection != 0) {  // it has noticed before us that it broke
    network_->close(peer.connection);
    servers_.erase(peer.connection);
  }
  peer.connection = connection;
  peer.open = true;
  servers_[connection] = key;
  core_->reconnected(key);
}

void Server::handle(ConnectionId from, WireMessage message) {
  if (auto* const shard = std::get_if<ShardMessage>(&message)) {
    const auto server = servers_.find(from);
    if (server == servers_.end()) return refuse(from);
    const ServerKey key = server->second;
    if (const auto* const forward = std::get_if<Forward>(&shard->what)) {
      fetch_for(shard->shard, forward->push);
    }
    core_->receive(key, *shard);
    const bool copied = std::holds_alternative<Copy>(shard->what);
    if (copied && is_joining(self_) && !core_->has_all()) fault_point(FaultPoint::kJoin);
    return;
  }
  const auto client = clients_.find(from);
  if (client == clients_.end()) return refuse(from);
  if (auto* const push = std::get_if<PushRequest>(&message)) {
    if (push->push.client != client->second) return refuse(from);
    // Of two connections of a client, it hears the answer on the one that it uses.
    connection_of_[client->second] = from;
    fetch_for(push->shard, push->push);
    core_->push(push->shard, push->epoch, std::move(push->push));
  } else if (auto* const request = std::get_if<ReadRequest>(&message)) {
    if (request->table >= setup_->tables.size()) return refuse(from);
    uint64_t fetch = 0;
    if (fetcher_ && request->shard < data_.size()) {
      fetch = data_[request->shard]->table(request->table).fetch(request->keys, false, *fetcher_);
    }
    ask({from, std::move(*request), fetch});
  } else if (const auto* const whole = std::get_if<WholeRequest>(&message)) {
    whole_.emplace_back(from, *whole);
  } else if (const auto* const order = std::get_if<OrderRequest>(&message)) {
    answer(from, *order, readable(order->shard, order->epoch));
  } else {
    refuse(from);
  }
}

void Server::send(const ServerKey& to, ShardMessage message) {
  const auto peer = peers_.find(to);
  // What is lost here is asked for again when there is a connection.
  if (peer == peers_.end() || !peer->second.open || disk_failed()) return;
  pass_fault_point(to, message);
  Packet packet = encode(message);
  if (packet.size() > options_.largest_message) {
    failure_ =
        Error(ErrorKind::kJob,
              "shard {} has {} bytes, and a copy of it is one message of {} at most: the job "
              "needs more tables.shards, from its beginning",
              message.shard, packet.size(), options_.largest_message);
    return;
  }
  network_->send(peer->second.connection, std::move(packet));
}

void Server::pass_fault_point(const ServerKey& to, const ShardMessage& message) const {
  if (std::holds_alternative<Confirm>(message.what)) fault_point(FaultPoint::kConfirm);
  if (!is_aimed_at(FaultPoint::kCopy) || !std::holds_alternative<Copy>(message.what)) return;
  if (is_joining(to) && has_sent_copies_to(to) && can_be_spared()) fault_point(FaultPoint::kCopy);
}

bool Server::is_joining(const ServerKey& server) const {
  const auto* const entry = map_.find(server);
  return entry != nullptr && !entry->ready;
}

// Whether that server has some copies from here.
bool Server::has_sent_copies_to(const ServerKey& server) const {
  for (ShardNumber shard = 0; shard < setup_->shards; ++shard) {
    if (core_->at(shard).is_with(server)) return true;
  }
  return false;
}

// Whether each shard that it answers for is with another server that is ready.
bool Server::can_be_spared() const {
  for (ShardNumber shard = 0; shard < setup_->shards; ++shard) {
    if (core_->at(shard).role() != ShardRole::kPrimary) continue;
    const bool spared = std::ranges::any_of(map_.servers, [&](const ServerEntry& server) {
      return server.ready && core_->at(shard).is_with(server.key);
    });
    if (!spared) return false;
  }
  return true;
}

void Server::answer(PushAnswer answer) {
  if (answer.verdict == PushVerdict::kApplied) fault_point(FaultPoint::kAck);
  const auto connection = connection_of_.find(answer.client);
  if (connection != connection_of_.end() && !disk_failed())
    network_->send(connection->second, encode(answer));
}

// ---- The registry.

void Server::from_registry(std::string_view bytes) {
  auto message = decode_control(bytes);
  if (!message.ok()) {
    failure_ = message.error();
    return;
  }
  if (auto* const setup = std::get_if<TablesSetup>(&*message)) {
    if (!setup_) return begin(std::move(*setup));
    auto same = check_same(*setup_, *setup, options_.registry);
    if (!same.ok()) failure_ = std::move(same).error();
  } else if (const auto* const answer = std::get_if<BeatAnswer>(&*message); answer && core_) {
    const Duration lease = answer->reply.lease;
    if (lease > Duration{0}) heartbeat_ = std::min(options_.heartbeat, lease / kBeatsInALease);
    if (answer->reply.standing == HeartbeatReply::Standing::kRemoved) {
      removed_ = true;
      const auto& reason = answer->reply.reason;
      tell("the registry has removed it: " + (reason.empty() ? "its lease expired" : reason));
    } else if (answer->reply.standing == HeartbeatReply::Standing::kMember) {
      enter(answer->reply);
      core_->extend_lease(Moment{Duration(answer->asked)}, answer->reply.lease);
    }
  } else if (const auto* const told = std::get_if<NewMap>(&*message)) {
    if (told->map.epoch > map_.epoch) next_beat_ = Moment{};
  }
}

void Server::begin(TablesSetup setup) {
  if (auto checked = check(setup); !checked.ok()) {
    failure_ = std::move(checked).error();
    return;
  }
  setup_ = std::move(setup);
  slabs_.emplace(options_.memory);
  if (auto begun = begin_disk(); !begun.ok()) {
    failure_ = std::move(begun).error();
    return;
  }
  data_.resize(setup_->shards);
  const auto make = [&](ShardNumber shard) {
    auto data = std::make_unique<TableData>(shard, setup_->shards, setup_->tables, *slabs_,
                                            cold_ ? &*cold_ : nullptr);
    data_[shard] = data.get();
    return data;
  };
  core_.emplace(self_, setup_->shards, setup_->copies, make, static_cast<ShardLinks&>(*this));
}

void Server::beat() {
  const Moment now = clock_.now();
  next_beat_ = now + heartbeat_;
  Beat beat;
  beat.asked = now.time_since_epoch().count();
  Heartbeat& heartbeat = beat.heartbeat;
  heartbeat.key = self_;
  heartbeat.entered = core_->epoch();
  heartbeat.has_all = core_->has_all();
  heartbeat.complete = core_->is_complete();
  heartbeat.address = address_;
  heartbeat.process = getpid();
  heartbeat.host = options_.host;
  heartbeat.rows = rows();
  heartbeat.unreachable = unreachable(now);
  network_->send(registry_, encode_control(beat));
}

uint64_t Server::rows() const {
  uint64_t rows = 0;
  for (TableData* const data : data_) {
    for (uint32_t table = 0; table < setup_->tables.size(); ++table) {
      rows += data->table(table).rows();
    }
  }
  return rows;
}

std::vector<Unreachable> Server::unreachable(Moment now) const {
  std::vector<Unreachable> peers;
  for (const auto& [key, peer] : peers_) {
    if (!peer.open && map_.find(key) != nullptr) peers.push_back({key, now - peer.closed_at});
  }
  return peers;
}

void Server::enter(const HeartbeatReply& reply) {
  if (reply.maps.empty()) return;
  // Before core_->enter(), which sends.
  for (const auto& map : reply.maps) {
    if (map.epoch <= map_.epoch) continue;
    for (const auto& entry : map_.servers) {
      if (map.find(entry.key) == nullptr) forget_peer(entry.key);
    }
    for (const auto& entry : map.servers) {
      if (entry.key == self_) continue;
      const auto [peer, added] = peers_.try_emplace(entry.key);
      peer->second.address = entry.address;
      if (added) peer->second.closed_at = clock_.now();
    }
    map_ = map;
    tell(fmt::format("epoch {}: {} servers", map.epoch, map.servers.size()));
  }
  core_->enter(reply.maps);
  next_beat_ = Moment{};  // others wait until all have entered it
  for (const ShardNumber shard : core_->lost()) {
    tell(fmt::format("shard {} is lost: no server that had it is left", shard));
  }
}

void Server::forget_peer(const ServerKey& key) {
  const auto peer = peers_.find(key);
  if (peer == peers_.end()) return;
  if (peer->second.connection != 0) {
    network_->close(peer->second.connection);
    servers_.erase(peer->second.connection);
  }
  peers_.erase(peer);
}

void Server::copy_some(Moment now) {
  if (now < next_copy_) return;
  // One that is slow does not hold up the others.
  const auto takes_more = [&](const ServerKey& to) {
    const auto peer = peers_.find(to);
    return peer == peers_.end() || network_->waiting(peer->second.connection) <= kMostWaiting;
  };
  if (core_->send_copies(1, takes_more) == 0) next_copy_ = now + kLookForCopies;
}

// ---- Clients.

// Null: not by a client that has seen this epoch, or not now.
TableData* Server::readable(ShardNumber shard, uint64_t epoch) {
  return core_->read(shard, epoch, clock_.now()) == nullptr ? nullptr : data_[shard];
}

void Server::ask(Held held) {
  const ReadRequest& request = held.request;
  TableData* const data = readable(request.shard, request.epoch);
  const bool waits = data != nullptr &&
                     (is_early(request, *data) || (held.fetch > 0 && !fetcher_->taken(held.fetch)));
  if (waits) {
    held_[request.shard].waiting.push_back(std::move(held));
  } else {
    answer(held.from, request, data);
  }
}

template <typename Request>
void Server::answer(ConnectionId from, const Request& request, TableData* data) {
  const auto reply = [&](auto full) {
    full.shard = request.shard;
    full.epoch = core_->epoch();
    full.request = request.request;
    Packet packet = encode(full);
    const bool fits = packet.size() <= options_.largest_message;
    if (fits && !disk_failed()) network_->send(from, std::move(packet));
    return fits;
  };
  auto answer = answer_to(request, data);
  if (data == nullptr && request.shard < data_.size() && core_->at(request.shard).lost()) {
    answer.served = Served::kLost;
  }
  if (reply(std::move(answer))) return;
  answer = {};
  answer.served = Served::kTooLarge;
  reply(std::move(answer));
}

// Those whose time has come, or that have to look for another server.
void Server::answer_held() {
  for (auto& [shard, held] : held_) {
    const std::pair now(core_->epoch(), data_[shard]->clock());
    if (std::exchange(held.seen, now) == now) continue;
    for (auto& one : std::exchange(held.waiting, {})) ask(std::move(one));
  }
}

// One at a time: each may take long, and heartbeats go on between them. A client that does not take
// what it has asked for does not hold up the others.
void Server::answer_whole() {
  const auto next = std::ranges::find_if(
      whole_, [&](const auto& one) { return network_->waiting(one.first) <= kMostWaiting; });
  if (next == whole_.end()) return;
  const auto [from, request] = *next;
  whole_.erase(next);
  TableData* const data = readable(request.shard, request.epoch);
  if (data != nullptr && is_early(request, *data)) {
    whole_.emplace_back(from, request);  // not yet
    return;
  }
  answer(from, request, data);
  if (data != nullptr && request.contents && !whole_.empty()) fault_point(FaultPoint::kSave);
}

}  // namespace muster::ps
