// What servers and clients tell the registry, and what it answers, as bytes. Rows go other ways
// (wire.h).
//
// A connection to the registry, or to a server, begins with Hello. The registry answers with
// TablesSetup; then a server sends a Beat now and then and gets a BeatAnswer for each, and a client
// gets the newest map whenever there is another, and ServersStatus for each AskStatus.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "muster/base/result.h"
#include "muster/ps/server_map.h"
#include "muster/ps/server_registry.h"
#include "muster/ps/table.h"

namespace muster::ps {

struct Hello {
  bool server = false;  // else a client
  ServerKey key;        // of a client: without an id
};

// A number for `incarnation`: another one for each process.
uint64_t draw_incarnation();

// What all servers and clients of a job have in common.
struct TablesSetup {
  ShardNumber shards = 64;
  int copies = 2;
  std::vector<TableOptions> tables;  // the id of a table is its place
};
Status check(const TablesSetup& setup);
// After another connection to the registry, whether it is still that of the same job: with other
// tables, rows would be computed in another way.
Status check_same(const TablesSetup& before, const TablesSetup& now, const std::string& registry);
// Whether saved rows, in so many shards, can be loaded.
Status check_shards(const TablesSetup& setup, size_t saved);

struct Beat {
  Heartbeat heartbeat;
  int64_t asked = 0;  // the server's clock; comes back with the answer
};
struct BeatAnswer {
  HeartbeatReply reply;
  int64_t asked = 0;
};

// To a client: the newest map. To a server: there is one, so it should ask.
struct NewMap {
  ServerMap map;
};

// Answered with ServersStatus.
struct AskStatus {};

using ControlMessage =
    std::variant<Hello, TablesSetup, Beat, BeatAnswer, NewMap, AskStatus, ServersStatus>;

std::string encode_control(const ControlMessage& message);
// An error: it is damaged, or of another version.
Result<ControlMessage> decode_control(std::string_view bytes);

}  // namespace muster::ps
