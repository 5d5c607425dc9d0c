#include "muster/ps/simulation/cluster.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "muster/ps/bytes.h"

namespace muster::ps::simulation {
namespace {

using namespace std::chrono_literals;

constexpr Duration kTick = 20ms;
constexpr Duration kFaults = 6s;  // for so long there are faults

// kRowTable and kWeightTable. Adam's updates depend on the number of updates before. In half of the
// schedules rows come and go.
std::vector<TableOptions> make_tables(uint64_t seed) {
  std::vector<TableOptions> tables(2);
  tables[kRowTable].id = kRowTable;
  tables[kRowTable].name = "rows";
  tables[kRowTable].width = 2;
  tables[kRowTable].seed = 7;
  tables[kRowTable].versions = kMostStaleness;
  tables[kWeightTable].id = kWeightTable;
  tables[kWeightTable].name = "weights";
  tables[kWeightTable].width = 3;
  tables[kWeightTable].seed = 8;
  tables[kWeightTable].optimizer.rule = RowRule::kAdam;
  const uint64_t drawn = seed / client_names().size();  // each kind of clients has all of these
  if (drawn % 2 == 0) return tables;
  TableOptions& rows = tables[kRowTable];
  rows.admission.sights = static_cast<uint16_t>(1 + drawn / 2 % 3);
  rows.admission.probability = drawn / 6 % 2 == 0 ? 1 : 0.7;
  rows.eviction.age = static_cast<uint32_t>(4 + drawn / 12 % 8);
  rows.eviction.most = drawn / 4 % 2 == 0 ? 0 : 4;
  rows.eviction.every = static_cast<uint32_t>(1 + drawn / 2 % 5);
  return tables;
}

std::string text_of(const ShardMessage& message) {
  const std::string where = fmt::format("shard {} epoch {}: ", message.shard, message.epoch);
  if (const auto* forward = std::get_if<Forward>(&message.what)) {
    return where + fmt::format("forward {}, push {} of {:x}", forward->place, forward->push.number,
                               forward->push.client >> 48);
  }
  if (const auto* confirm = std::get_if<Confirm>(&message.what)) {
    return where + fmt::format("confirm {}", confirm->place);
  }
  if (const auto* ask = std::get_if<Ask>(&message.what)) {
    return where + fmt::format("ask, at {}{}", ask->place, ask->complete ? ", complete" : "");
  }
  if (const auto* copy = std::get_if<Copy>(&message.what)) {
    return where + (copy->state ? "copy" : "the same");
  }
  return where + "release";
}

std::string text_of(const ServerMap& map) {
  std::string text = fmt::format("epoch {}:", map.epoch);
  for (const auto& server : map.servers) {
    text += fmt::format(" {}{}", server.key.id, server.ready ? "" : " (joining)");
  }
  return text;
}

// Plant::kForgetNumbers: place, chain, no clients, the data.
void forget_numbers(ShardMessage& message) {
  auto* const copy = std::get_if<Copy>(&message.what);
  if (copy == nullptr || !copy->state) return;
  std::string_view state = *copy->state;
  uint64_t head[3] = {};
  for (uint64_t& word : head) (void)take(state, word);
  state.remove_prefix(head[2] * 16);
  std::string without;
  append(without, head[0]);
  append(without, head[1]);
  append(without, uint64_t{0});
  without += state;
  copy->state = Bytes(std::move(without));
}

RegistryOptions registry_options(int first, int copies, Plant plant) {
  RegistryOptions options;
  options.copies = copies;
  options.quarantine = 2s;
  options.first = static_cast<size_t>(first);
  if (plant == Plant::kHasty) options.patience = options.lease / 2;
  return options;
}

}  // namespace

ServerProcess::ServerProcess(Cluster& owner, int at, ServerKey key)
    : cluster(owner),
      place(at),
      core(
          std::move(key), owner.shards(), owner.copies(),
          [&](ShardNumber shard) {
            auto made = owner.make_data(shard);
            data.push_back(made.get());
            return made;
          },
          *this) {}
void ServerProcess::send(const ServerKey& to, ShardMessage message) {
  cluster.forward(*this, to, message);
}
void ServerProcess::answer(PushAnswer answer) { cluster.answer(*this, answer); }

Cluster::Cluster(uint64_t seed, Plant plant, std::ostream* trace, int servers, Clients clients)
    : world_(seed, roster::simulation::Plant::kNothing, trace),
      plant_(plant),
      tables_(make_tables(seed)),
      shards_(static_cast<ShardNumber>(1 + world_.below(5))),
      first_(servers > 0 ? servers : 2 + static_cast<int>(world_.below(4))),
      copies_(world_.chance(0.1) ? 1 : 2),
      hosts_(1 + world_.below(3)),
      registry_(registry_options(first_, copies_, plant)) {
  for (int i = 0; i < first_; ++i) start_server(fmt::format("s{}", i));
  training_ = make_training(clients, *this);
  const uint64_t count = training_ == nullptr ? 1 + world_.below(4) : 2 + world_.below(3);
  for (uint64_t i = 0; i < count; ++i) start_client();
  world_.after(kTick, [this] { watch(); });
  world_.after(world_.between(100ms, 400ms), [this] { fault(); });
  if (training_ != nullptr) {
    world_.after(world_.between(100ms, 400ms), [this] { fault_worker(); });
  }
  calm_at_ = world_.now() + kFaults;
  end_at_ = calm_at_ + bound();
}

Outcome Cluster::run() {
  while (violation_.empty() && !done() && world_.step()) {
  }
  if (violation_.empty()) check_end();
  tally_.epochs = map().epoch;
  return {violation_, tally_, world_.events()};
}

// ---- Processes.

std::unique_ptr<RecordedData> Cluster::make_data(ShardNumber shard) {
  return std::make_unique<RecordedData>(shard, shards_, tables_, slabs_, plant_);
}

ServerProcess& Cluster::start_server(const std::string& id) {
  const int place = static_cast<int>(servers_.size());
  servers_.push_back(
      std::make_unique<ServerProcess>(*this, place, ServerKey{id, world_.draw() | 1}));
  cut_parted();
  beat(place);
  copy_on(place);
  return *servers_.back();
}

std::string Cluster::host_of(const std::string& id) const {
  return fmt::format("host{}", std::stoull(id.substr(1)) % hosts_);
}

void Cluster::restart(ServerProcess& server) {
  const std::string id = server.core.self().id;
  server.alive = false;
  world_.trace("server {} ({}) starts again", server.place, id);
  world_.after(world_.between(1ms, 200ms), [this, id] { start_server(id); });
}

ClientProcess& Cluster::start_client() {
  clients_.push_back(
      std::make_unique<ClientProcess>(*this, kFirstClient + static_cast<int>(clients_.size())));
  auto& client = *clients_.back();
  if (training_ != nullptr) client.worker = training_->make_worker(client);
  act(client.place);
  return client;
}

ServerProcess* Cluster::server_at(int place) {
  auto* const server = servers_[static_cast<size_t>(place)].get();
  return server->alive ? server : nullptr;
}

ClientProcess* Cluster::client_at(int place) {
  auto* const client = clients_[static_cast<size_t>(place - kFirstClient)].get();
  return client->alive ? client : nullptr;
}

int Cluster::place_of(const ServerKey& key) const {
  for (const auto& server : servers_) {
    if (server->core.self() == key) return server->place;
  }
  return -1;
}

// ---- Messages.

// One that is suspended takes them when it continues.
void Cluster::take(int place, const std::function<void(ServerProcess&)>& what) {
  auto* const server = server_at(place);
  if (server == nullptr) return;
  if (world_.now() < server->paused_until) {
    server->inbox.push_back(what);
    return;
  }
  what(*server);
  // A program ends then.
  if (server->alive && server->core.failure() != nullptr) crash(*server);
  if (server->alive) answer_held(*server);
}

void Cluster::take_client(int place, const std::function<void(ClientProcess&)>& what) {
  auto* const client = client_at(place);
  if (client == nullptr) return;
  if (is_suspended(*client)) {
    client->inbox.push_back(what);
    return;
  }
  what(*client);
}

void Cluster::send(int from, int to, std::function<void(ServerProcess&)> what) {
  network_.deliver(from, to, [this, to, what = std::move(what)] { take(to, what); });
}

void Cluster::send_client(int from, int to, std::function<void(ClientProcess&)> what) {
  network_.deliver(from, to, [this, to, what = std::move(what)] { take_client(to, what); });
}

void Cluster::break_connection(int a, int b) {
  network_.break_connection(a, b);
  tell_reconnected(a, b);
  tell_reconnected(b, a);
}

void Cluster::tell_reconnected(int at, int peer) {
  if (peer >= kFirstClient) return;
  const ServerKey key = servers_[static_cast<size_t>(peer)]->core.self();
  if (at < kFirstClient) {
    take(at, [key](ServerProcess& server) { server.core.reconnected(key); });
  } else {
    take_client(at, [key](ClientProcess& client) {
      client.queue->reconnected(key);
      if (client.worker != nullptr) client.worker->reconnected(key);
    });
  }
}

void Cluster::forward(const ServerProcess& from, const ServerKey& to, const ShardMessage& message) {
  const int place = place_of(to);
  world_.trace("server {} to {}: {}", from.place, place, text_of(message));
  if (const auto* copy = std::get_if<Copy>(&message.what); copy != nullptr && copy->state) {
    ++tally_.copies;
  }
  if (plant_ == Plant::kAnswerEarly && std::holds_alternative<Forward>(message.what)) {
    ShardMessage forged = message;
    const auto& forward = std::get<Forward>(message.what);
    forged.what = Confirm{forward.question, forward.place};
    world_.after(0ms, [this, at = from.place, to, forged] {
      if (auto* const server = server_at(at)) server->core.receive(to, forged);
    });
  }
  send(from.place, place, [this, key = from.core.self(), message](ServerProcess& server) {
    ShardMessage got = over_the_wire(message);
    if (plant_ == Plant::kIgnoreEpochs) got.epoch = server.core.epoch();
    if (plant_ == Plant::kForgetNumbers) forget_numbers(got);
    server.core.receive(key, got);
  });
}

void Cluster::push(const ClientProcess& from, const ServerKey& to, ShardNumber shard,
                   uint64_t epoch, const Push& push) {
  senders_[push.client] = from.place;
  send(from.place, place_of(to),
       [shard, epoch, push](ServerProcess& server) { server.core.push(shard, epoch, push); });
}

void Cluster::answer(const ServerProcess& from, const PushAnswer& answer) {
  if (answer.verdict == PushVerdict::kLost) fail("a push was refused because a shard is lost");
  if (answer.verdict == PushVerdict::kApplied) {
    fail(witness_.told(answer.shard, from.core.at(answer.shard)));
  }
  send_client(from.place, senders_[answer.client],
              [this, answer](ClientProcess& client) { got_answer(client, over_the_wire(answer)); });
}

// ---- The coordinator.

void Cluster::watch() {
  world_.after(kTick, [this] { watch(); });
  if (world_.now() < away_until_) return;
  for (const auto& key : registry_.expire(world_.now())) {
    if (server_of(key).alive) ++tally_.removals;
  }
  tell_map();
  for (const auto& what : std::exchange(heartbeats_, {})) what();
}

// If it is new.
void Cluster::tell_map() {
  if (map().epoch == told_) return;
  told_ = map().epoch;
  world_.trace("{}", text_of(map()));
  for (const auto& client : clients_) {
    send_map(client->place);
  }
  // They ask for it, as with every heartbeat.
  for (const auto& entry : map().servers) {
    send(kCoordinator, place_of(entry.key), [this](ServerProcess& server) { beat_once(server); });
  }
}

void Cluster::got_heartbeat(int place, const Heartbeat& heartbeat, Moment sent) {
  if (world_.now() < away_until_) {
    heartbeats_.push_back(
        [this, place, heartbeat, sent] { got_heartbeat(place, heartbeat, sent); });
    return;
  }
  const bool known = registry_.maps().newest().find(heartbeat.key) != nullptr;
  heard_[heartbeat.key] = world_.now();
  auto reply = registry_.heard(heartbeat, world_.now());
  if (!known && map().find(heartbeat.key) != nullptr) ++tally_.joins;
  tell_map();
  send(kCoordinator, place, [this, reply = std::move(reply), sent](ServerProcess& server) {
    got_reply(server, reply, sent);
  });
}

void Cluster::got_reply(ServerProcess& server, HeartbeatReply reply, Moment sent) {
  if (reply.standing == HeartbeatReply::Standing::kRemoved) return restart(server);
  if (reply.standing == HeartbeatReply::Standing::kWaiting) return;
  for (auto& map : reply.maps) {
    if (plant_ == Plant::kSkipEpochs) map.servers = reply.maps.back().servers;
    if (plant_ == Plant::kMoveUp) map.away.clear();
  }
  server.core.enter(reply.maps);
  server.core.extend_lease(sent, plant_ == Plant::kNoLease ? Duration{1h} : reply.lease);
  const auto lost = server.core.lost();
  if (lost.empty()) return;
  fail(fmt::format("server {} is primary of shard {} and does not have it", server.place, lost[0]));
}

void Cluster::send_map(int client) {
  send_client(kCoordinator, client,
              [this, newest = map()](ClientProcess& got) { got_map(got, newest); });
}

void Cluster::got_map(ClientProcess& client, const ServerMap& newest) {
  if (newest.epoch <= client.queue->epoch()) return;
  client.queue->enter(newest);
  if (plant_ == Plant::kNewNumbers) begin_again(client);
  if (client.worker != nullptr) client.worker->repeat_questions();
}

// ---- Servers.

void Cluster::beat(int place) {
  if (server_at(place) == nullptr) return;
  if (world_.now() >= server_at(place)->paused_until) beat_once(*server_at(place));
  world_.after(kHeartbeat, [this, place] { beat(place); });
}

void Cluster::beat_once(const ServerProcess& server) {
  const auto& self = server.core.self();
  Heartbeat heartbeat;
  heartbeat.key = self;
  heartbeat.entered = server.core.epoch();
  heartbeat.has_all = server.core.has_all();
  heartbeat.complete = server.core.is_complete();
  heartbeat.host = host_of(self.id);
  heartbeat.unreachable = unreachable(server);
  if (plant_ == Plant::kReadyEarly && server.core.epoch() > 0) heartbeat.has_all = true;
  network_.deliver(server.place, kCoordinator,
                   [this, place = server.place, heartbeat, sent = world_.now()] {
                     got_heartbeat(place, heartbeat, sent);
                   });
}

std::vector<Unreachable> Cluster::unreachable(const ServerProcess& server) {
  std::vector<Unreachable> peers;
  if (plant_ == Plant::kNoComplaints) return peers;
  for (const auto& entry : map().servers) {
    const int place = place_of(entry.key);
    if (place == server.place) continue;
    if (server_of(entry.key).alive && !world_.is_cut(server.place, place)) {
      unreached_.erase({server.place, place});
      continue;
    }
    const auto since = unreached_.try_emplace({server.place, place}, world_.now()).first->second;
    peers.push_back({entry.key, world_.now() - since});
  }
  return peers;
}

void Cluster::copy_on(int place) {
  auto* const server = server_at(place);
  if (server == nullptr) return;
  if (world_.now() >= server->paused_until) {
    server->core.send_copies(1);
    answer_held(*server);
  }
  world_.after(kTick, [this, place] { copy_on(place); });
}

// ---- The end.

bool Cluster::all_answered() const {
  return std::ranges::all_of(clients_, [](const auto& client) {
    return !client->alive || client->queue->unanswered() == 0;
  });
}

// All who are there have what they hold.
bool Cluster::all_have() {
  return std::ranges::all_of(map().servers, [&](const ServerEntry& entry) {
    const auto& server = server_of(entry.key);
    return server.alive && server.core.epoch() == map().epoch && entry.ready &&
           server.core.has_all();
  });
}

bool Cluster::settled() {
  if (!all_have()) return false;
  // The last push of a client that crashed may still be under way.
  for (ShardNumber shard = 0; shard < shards_; ++shard) {
    std::set<uint64_t> places;
    for (const auto& entry : map().servers) {
      const auto& copy = server_of(entry.key).core.at(shard);
      if (copy.role() != ShardRole::kNone) places.insert(copy.place());
    }
    if (places.size() > 1) return false;
  }
  return true;
}

bool Cluster::trained() const { return training_ == nullptr || training_->groups().all_stopped(); }

bool Cluster::done() {
  if (!is_calm()) return false;
  return (all_answered() && trained() && settled()) || world_.now() > end_at_;
}

void Cluster::check_end() {
  if (!all_answered()) return fail("there are pushes without an answer long after the last fault");
  if (!trained()) return fail("workers wait for something long after the last fault");
  if (!settled()) return fail("some server does not have its shards long after the last fault");
  std::set<std::string> hosts;
  for (const auto& entry : map().servers) hosts.insert(entry.host);
  std::vector<RecordedData*> shards;
  for (ShardNumber shard = 0; shard < shards_; ++shard) {
    std::vector<RecordedData*> copies;
    std::set<std::string> hosts_of_copies;
    for (const auto& entry : map().servers) {
      auto& server = server_of(entry.key);
      if (server.core.at(shard).role() == ShardRole::kNone) continue;
      copies.push_back(server.data[shard]);
      hosts_of_copies.insert(entry.host);
    }
    if (map().away.empty() && hosts_of_copies.size() != std::min(copies.size(), hosts.size())) {
      return fail(fmt::format("both copies of shard {} are on one host", shard));
    }
    fail(witness_.check_end(shard, copies, *make_data(shard)));
    if (!copies.empty()) shards.push_back(copies[0]);
  }
  if (training_ != nullptr && violation_.empty()) {
    std::vector<TableData*> data;
    for (auto* const shard : shards) data.push_back(&shard->data());
    fail(training_->check_end(data));
  }
  for (auto* const shard : shards) tally_.evicted += shard->table(kRowTable).tombstones().size();
}

std::string Cluster::check(const Checkpoint& checkpoint) {
  Slabs aside;
  std::vector<std::unique_ptr<TableData>> data;
  std::vector<TableData*> shards;
  for (ShardNumber shard = 0; shard < shards_; ++shard) {
    data.push_back(std::make_unique<TableData>(shard, shards_, tables_, aside));
    if (!data.back()->load(checkpoint.shards[shard]).ok()) return "saved rows cannot be loaded";
    shards.push_back(data.back().get());
  }
  return training_->check(shards, checkpoint.position, checkpoint.eras);
}

void Cluster::fail(const std::string& what) {
  if (what.empty() || !violation_.empty()) return;
  violation_ = what;
  world_.trace("VIOLATION: {}", what);
}

}  // namespace muster::ps::simulation
