// How servers of a simulated run answer reads and look at the order of tasks: as ps/net/server.cc.
#include <utility>
#include <variant>

#include "muster/ps/simulation/cluster.h"

namespace muster::ps::simulation {
namespace {

ReadAnswer answer_to(const ReadRequest& request, RecordedData* data) {
  ReadAnswer answer;
  if (data == nullptr) return answer;
  TableShard& table = data->table(request.table);
  answer.weights.resize(request.keys.size() * table.options().width);
  table.read(request.keys, answer.weights.data());
  return answer;
}

OrderAnswer answer_to(const OrderRequest& request, RecordedData* data) {
  OrderAnswer answer;
  if (data != nullptr) {
    answer.view = data->tasks().view(request.worker, request.from, request.results);
  }
  return answer;
}

}  // namespace

void Cluster::ask(const ClientProcess& from, const ServerKey& to, const Request& request) {
  Asked asked{from.place, {}, 0};
  std::visit(
      [&](const auto& one) {
        asked.request = over_the_wire(one);
        asked.least = witness_.latest(one.shard);
      },
      request);
  send(from.place, place_of(to),
       [this, asked = std::move(asked)](ServerProcess& server) { receive(server, asked); });
}

// Null: not by a client that has seen this epoch, or not now.
RecordedData* Cluster::readable(ServerProcess& server, ShardNumber shard, uint64_t epoch) {
  return server.core.read(shard, epoch, world_.now()) == nullptr ? nullptr : server.data[shard];
}

void Cluster::receive(ServerProcess& server, const Asked& asked) {
  if (const auto* const order = std::get_if<OrderRequest>(&asked.request)) {
    return reply(server, asked, *order, readable(server, order->shard, order->epoch));
  }
  const auto& read = std::get<ReadRequest>(asked.request);
  RecordedData* const data = readable(server, read.shard, read.epoch);
  if (data != nullptr && data->clock() < read.clock) {
    server.held.push_back(asked);
  } else {
    reply(server, asked, read, data);
  }
}

// Those whose time has come, or that have to look for another server.
void Cluster::answer_held(ServerProcess& server) {
  for (const auto& asked : std::exchange(server.held, {})) receive(server, asked);
}

// That a shard is lost is noticed elsewhere (got_reply).
template <typename One>
void Cluster::reply(const ServerProcess& server, const Asked& asked, const One& request,
                    RecordedData* data) {
  auto answer = answer_to(request, data);
  answer.shard = request.shard;
  answer.epoch = server.core.epoch();
  answer.request = request.request;
  if (data != nullptr) {
    answer.served = Served::kYes;
    answer.clock = data->clock();
    ++tally_.reads;
    fail(witness_.read(request.shard, server.core.at(request.shard), asked.least));
  }
  send_client(server.place, asked.client, [answer = over_the_wire(answer)](ClientProcess& client) {
    client.worker->answered(answer);
  });
}

}  // namespace muster::ps::simulation
