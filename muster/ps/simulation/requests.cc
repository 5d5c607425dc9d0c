// How servers of a simulated run answer reads and look at the order of tasks: as ps/net/server.cc.
#include <type_traits>
#include <utility>
#include <variant>

#include "muster/ps/answers.h"
#include "muster/ps/simulation/cluster.h"

namespace muster::ps::simulation {
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
  if (const auto* const whole = std::get_if<WholeRequest>(&asked.request)) {
    return when_due(server, asked, *whole);
  }
  when_due(server, asked, std::get<ReadRequest>(asked.request));
}

template <typename One>
void Cluster::when_due(ServerProcess& server, const Asked& asked, const One& request) {
  RecordedData* const data = readable(server, request.shard, request.epoch);
  const bool hasty = std::is_same_v<One, WholeRequest> && plant_ == Plant::kEarlySave;
  if (data != nullptr && is_early(request, data->data()) && !hasty) {
    server.held.push_back(asked);
  } else {
    reply(server, asked, request, data);
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
  auto answer = answer_to(request, data == nullptr ? nullptr : &data->data());
  if constexpr (std::is_same_v<One, ReadRequest>) {
    if (plant_ == Plant::kReadNow && data != nullptr) {
      answer.weights = Bytes::filled<float>(
          answer.weights->size() / sizeof(float),
          [&](float* now) { data->table(request.table).read(request.keys, now); });
    }
  }
  if constexpr (std::is_same_v<One, WholeRequest>) {
    if (plant_ == Plant::kEarlySave) answer.clock = request.clock;
  }
  answer.shard = request.shard;
  answer.epoch = server.core.epoch();
  answer.request = request.request;
  if (data != nullptr) {
    ++tally_.reads;
    fail(witness_.read(request.shard, server.core.at(request.shard), asked.least));
  }
  send_client(server.place, asked.client,
              [answer = over_the_wire(answer), from = server.core.self()](ClientProcess& client) {
                client.worker->answered(answer, from);
              });
}

}  // namespace muster::ps::simulation
