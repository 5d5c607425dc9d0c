// Servers, clients and a coordinator of a simulated run, and what happens to them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "muster/ps/push_queue.h"
#include "muster/ps/server_core.h"
#include "muster/ps/server_registry.h"
#include "muster/ps/simulation/messages.h"
#include "muster/ps/simulation/network.h"
#include "muster/ps/simulation/recorded_data.h"
#include "muster/ps/simulation/simulation.h"
#include "muster/ps/simulation/training.h"
#include "muster/ps/simulation/witness.h"
#include "muster/ps/simulation/worker.h"
#include "muster/roster/simulation/world.h"

namespace muster::ps::simulation {

inline constexpr int kCoordinator = roster::simulation::kCoordinator;
inline constexpr int kFirstClient = 100000;  // servers have the places below
inline constexpr Duration kHeartbeat = std::chrono::milliseconds(100);

class Cluster;

struct ServerProcess final : ShardLinks {
  ServerProcess(Cluster& owner, int at, ServerKey key);
  void send(const ServerKey& to, ShardMessage message) override;
  void answer(PushAnswer answer) override;

  Cluster& cluster;
  const int place;
  std::vector<RecordedData*> data;  // by shard
  ServerCore core;
  bool alive = true;
  Moment paused_until;
  std::vector<std::function<void(ServerProcess&)>> inbox;  // what came while it was suspended
  std::vector<Asked> held;  // reads that wait for the clock of their shard
};

struct ClientProcess final : PushLinks {
  ClientProcess(Cluster& owner, int at);
  void send(const ServerKey& to, ShardNumber shard, uint64_t epoch, const Push& push) override;
  void push(ShardNumber shard, int64_t id, Bytes bytes) {
    unanswered[{shard, queue->push(shard, std::move(bytes))}] = id;
  }

  Cluster& cluster;
  const int place;
  uint64_t number = 0;  // as a client of servers
  std::unique_ptr<PushQueue> queue;
  std::map<ShardNumber, uint64_t> pushed;                          // how many
  std::map<std::pair<ShardNumber, uint64_t>, int64_t> unanswered;  // ids, by number
  bool alive = true;
  Moment paused_at;
  Moment paused_until;
  std::vector<std::function<void(ClientProcess&)>> inbox;  // what came while it was suspended
  std::unique_ptr<Worker> worker;  // null: it updates at random (Clients::kUpdates)
};

class Cluster {
 public:
  Cluster(uint64_t seed, Plant plant, std::ostream* trace, int servers, Clients clients);
  Outcome run();

  // ---- For servers and clients.
  std::unique_ptr<RecordedData> make_data(ShardNumber shard);
  ShardNumber shards() const { return shards_; }
  int copies() const { return copies_; }
  std::string host_of(const std::string& id) const;
  const std::vector<TableOptions>& tables() const { return tables_; }
  roster::simulation::World& world() { return world_; }
  void forward(const ServerProcess& from, const ServerKey& to, const ShardMessage& message);
  void push(const ClientProcess& from, const ServerKey& to, ShardNumber shard, uint64_t epoch,
            const Push& push);
  void answer(const ServerProcess& from, const PushAnswer& answer);

  // ---- For workers and their groups.
  const std::vector<std::unique_ptr<ClientProcess>>& clients() const { return clients_; }
  bool is_suspended(const ClientProcess& client) const {
    return world_.now() < client.paused_until;
  }
  bool is_calm() const { return world_.now() >= calm_at_; }  // there are no faults any more
  void new_push(ClientProcess& client, ShardNumber shard, std::string bytes);
  void ask(const ClientProcess& from, const ServerKey& to, const Request& request);
  void act_after(int place, Duration delay);
  // One that is suspended takes it when it continues.
  void take_client(int place, const std::function<void(ClientProcess&)>& what);
  void send_client(int from, int to, std::function<void(ClientProcess&)> what);
  // What is wrong with it; empty: nothing.
  std::string check(const Checkpoint& checkpoint);
  // Plant::kSameEra.
  uint64_t era_of_load(uint64_t group, uint64_t last) const {
    return plant_ == Plant::kSameEra && last > 0 ? last : group;
  }
  bool saves_any_era() const { return plant_ == Plant::kAnyEra; }
  Tally& tally() { return tally_; }
  void fail(const std::string& what);  // nothing if it is empty

 private:
  // Processes. Null: it has ended.
  ServerProcess& start_server(const std::string& id);
  void restart(ServerProcess& server);
  ClientProcess& start_client();
  ServerProcess* server_at(int place);
  ClientProcess* client_at(int place);
  int place_of(const ServerKey& key) const;  // -1: nowhere
  ServerProcess& server_of(const ServerKey& key) {
    return *servers_[static_cast<size_t>(place_of(key))];
  }
  const ServerMap& map() const { return registry_.maps().newest(); }

  // Messages.
  void send(int from, int to, std::function<void(ServerProcess&)> what);
  void take(int place, const std::function<void(ServerProcess&)>& what);
  void break_connection(int a, int b);
  void tell_reconnected(int at, int peer);

  // The coordinator.
  void watch();
  void suspend_coordinator();
  void got_heartbeat(int place, const Heartbeat& heartbeat, Moment sent);
  void tell_map();
  void got_reply(ServerProcess& server, HeartbeatReply reply, Moment sent);
  void got_map(ClientProcess& client, const ServerMap& map);
  void send_map(int client);

  // Servers.
  void beat(int place);
  void beat_once(const ServerProcess& server);
  std::vector<Unreachable> unreachable(const ServerProcess& server);
  void copy_on(int place);

  // Their answers to what clients ask (requests.cc).
  RecordedData* readable(ServerProcess& server, ShardNumber shard, uint64_t epoch);
  void receive(ServerProcess& server, const Asked& asked);
  void answer_held(ServerProcess& server);
  template <typename One>
  void when_due(ServerProcess& server, const Asked& asked, const One& request);
  template <typename One>
  void reply(const ServerProcess& server, const Asked& asked, const One& request,
             RecordedData* data);

  // Clients (clients.cc).
  void act(int place);
  void act_now(ClientProcess& client);
  void new_update(ClientProcess& client);
  std::string update_of(ShardNumber shard);
  void note_answered(ShardNumber shard, std::string_view push);
  void got_answer(ClientProcess& client, const PushAnswer& answer);
  void read(ClientProcess& client);
  void begin_again(ClientProcess& client);  // Plant::kNewNumbers

  // Faults (faults.cc).
  void fault();
  bool at_risk(const ServerProcess& server) const;
  bool one_will_fail(const ServerProcess* but) const;
  bool can_lose(const ServerProcess& victim);
  void hurt(ServerProcess& victim, uint64_t kind);
  void crash(ServerProcess& victim);
  void suspend(ServerProcess& victim);
  void isolate(const ServerProcess& victim);
  void part(const ServerProcess& victim);
  void cut_parted();
  bool is_parted(const ServerProcess& server) const;
  int other_end(const ServerProcess& victim, const std::vector<ServerProcess*>& there);
  void replace_client();
  void replace(ClientProcess& client);
  void reconnect_client();
  void fault_worker();
  void lose_workers();
  void suspend(ClientProcess& client, Duration least, Duration most);

  // The end.
  bool all_answered() const;
  bool trained() const;
  bool all_have();
  bool settled();
  bool done();
  void check_end();

  roster::simulation::World world_;
  Network network_{world_};
  const Plant plant_;
  const std::vector<TableOptions> tables_;
  const ShardNumber shards_;
  const int first_;  // how many servers
  const int copies_;
  const uint64_t hosts_;  // how many
  Slabs slabs_;
  ServerRegistry registry_;
  Moment away_until_;                                // the coordinator is suspended
  std::vector<std::function<void()>> heartbeats_;    // what came meanwhile
  uint64_t told_ = 0;                                // epoch
  std::map<ServerKey, Moment> heard_;                // by the coordinator
  std::map<std::pair<int, int>, Moment> unreached_;  // from whom, whom, and since when
  // Ids of two servers that never reach each other again, whatever process has them.
  std::optional<std::pair<std::string, std::string>> parted_;
  std::vector<std::unique_ptr<ServerProcess>> servers_;  // all that ever were
  std::vector<std::unique_ptr<ClientProcess>> clients_;
  std::map<uint64_t, int> senders_;       // places of clients, by the number that servers know
  std::unique_ptr<Training> training_;    // null: Clients::kUpdates
  std::map<ShardNumber, int64_t> steps_;  // Clients::kUpdates: whose commits were answered
  Witness witness_;
  Moment calm_at_;
  Moment end_at_;
  int new_ids_ = 0;
  Tally tally_;
  std::string violation_;
};

}  // namespace muster::ps::simulation
