// A parameter server: a ServerCore with its tables, its connections and its clock.
//
// Everything happens in the thread that calls run(): requests of clients, messages of other
// servers, heartbeats. So no row has a lock. A machine with several cores has several servers.
//
// Rows on disk (ServerOptions::open_disk). Rows that a request or a push needs are read by threads
// of their own (row_fetcher.h) as soon as it comes. A read waits for them; a push waits for its
// commit anyway. After an error of the disk nothing is sent any more, and run() ends with it.
//
// Connections. To the registry, for as long as it lives. Between two servers one, opened by the one
// with the smaller key; whoever sees it break waits for the next one, and both then begin again
// (ServerCore::reconnected). Clients open theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "muster/base/clock.h"
#include "muster/base/result.h"
#include "muster/ps/cold_tier.h"
#include "muster/ps/net/control.h"
#include "muster/ps/net/network.h"
#include "muster/ps/row_fetcher.h"
#include "muster/ps/server_core.h"
#include "muster/ps/shared_bytes.h"
#include "muster/ps/slabs.h"
#include "muster/ps/table_data.h"
#include "muster/ps/wire.h"

namespace muster::ps {

struct ServerOptions {
  std::string id;
  std::string registry;                // its address
  std::string listen = "127.0.0.1:0";  // where
  std::string host = "127.0.0.1";      // by which others reach it; the same for all of a machine
  size_t memory = std::numeric_limits<size_t>::max();  // bytes, of rows
  // Where rows go that do not fit. May be empty: nowhere.
  std::function<Result<std::unique_ptr<ColdRows>>(const ServerKey& self)> open_disk;
  Duration heartbeat = std::chrono::milliseconds(100);  // or more often, if its lease is short
  size_t largest_message = kLargestMessage;             // bytes
  // Asked about every 10 ms: whether to stop. May be empty.
  std::function<bool()> stopped;
  // What happens, in sentences. May be empty.
  std::function<void(const std::string&)> tell;
};

class Server final : NetworkListener, ShardLinks {
 public:
  // `clock` must be one that goes on while the machine sleeps (BootClock), and outlive it.
  Server(ServerOptions options, const Clock& clock);
  ~Server() override;

  enum class End : uint8_t {
    kStopped,
    kRemoved,  // the registry counts it no more; start another one
  };
  // Serves until it is told to stop, or cannot go on.
  Result<End> run();

 private:
  struct Peer {
    std::string address;          // empty: not known yet
    ConnectionId connection = 0;  // 0: none
    bool open = false;
    Moment retry_at;
    Moment closed_at;  // or known since, if it was never open
  };
  // A request that waits for the clock of its shard, or for rows from the disk.
  struct Held {
    ConnectionId from = 0;
    ReadRequest request;
    uint64_t fetch = 0;  // the last one that it waits for, or 0
  };
  struct HeldReads {
    std::vector<Held> waiting;
    std::pair<uint64_t, int64_t> seen;  // epoch and clock, when they were looked at last
  };

  // Network.
  void opened(ConnectionId connection) override;
  void received(ConnectionId connection, const Bytes& message) override;
  void closed(ConnectionId connection) override;
  void from_registry(std::string_view bytes);
  void greet(ConnectionId connection, std::string_view bytes);
  void handle(ConnectionId from, WireMessage message);
  void refuse(ConnectionId connection);
  void forget_connection(uint64_t client, ConnectionId connection);

  // ServerCore.
  void send(const ServerKey& to, ShardMessage message) override;
  void answer(PushAnswer answer) override;

  void begin(TablesSetup setup);
  void enter(const HeartbeatReply& reply);
  void forget_peer(const ServerKey& key);
  void connect_all(Moment now);
  void look_for_registry(Moment now);
  void beat();
  uint64_t rows() const;
  std::vector<Unreachable> unreachable(Moment now) const;
  void copy_some(Moment now);
  // Points at which `muster verify` kills a server (base/fault_point.h).
  void pass_fault_point(const ServerKey& to, const ShardMessage& message) const;
  bool is_joining(const ServerKey& server) const;
  bool has_sent_copies_to(const ServerKey& server) const;
  bool can_be_spared() const;
  Status begin_disk();
  void take_fetched();
  void fetch_for(ShardNumber shard, const Push& push);
  bool disk_failed() const { return cold_ && cold_->failure(); }
  void report_rows(Moment now);

  TableData* readable(ShardNumber shard, uint64_t epoch);
  // Answers it, or holds it until its time has come.
  void ask(Held held);
  // `data`: null if it is not served here.
  template <typename Request>
  void answer(ConnectionId from, const Request& request, TableData* data);
  void answer_held();
  void answer_whole();
  void tell(const std::string& what) const {
    if (options_.tell) options_.tell(what);
  }

  const ServerOptions options_;
  const Clock& clock_;
  const ServerKey self_;
  Duration heartbeat_;  // how often it beats
  std::string address_;
  bool removed_ = false;
  std::optional<Error> failure_;

  std::optional<TablesSetup> setup_;
  std::optional<Slabs> slabs_;
  std::unique_ptr<ColdRows> disk_;  // null: there is none; then these are not there either
  std::optional<ColdTier> cold_;
  std::optional<RowFetcher> fetcher_;
  std::vector<TableData*> data_;  // by shard
  std::optional<ServerCore> core_;
  ServerMap map_;  // the newest that it has entered

  ConnectionId registry_ = 0;
  bool registry_open_ = false;
  Moment registry_seen_;  // when it was open last
  Moment registry_retry_at_;
  Moment next_beat_;
  Moment next_copy_;
  Moment next_report_;
  std::map<ServerKey, Peer> peers_;
  std::map<ConnectionId, ServerKey> servers_;  // who is there
  std::map<ConnectionId, uint64_t> clients_;
  std::map<uint64_t, ConnectionId> connection_of_;  // of clients
  std::map<ShardNumber, HeldReads> held_;
  std::deque<std::pair<ConnectionId, WholeRequest>> whole_;  // in their order

  std::optional<Network> network_;
};

}  // namespace muster::ps
