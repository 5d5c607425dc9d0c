// A worker of a simulated training: a client that is a member of groups.
//
// Its calls are those of train::Tables and comm::Group. As there are no threads, each call that
// waits is given what to do then; a worker waits for one thing at a time.
//
// A worker that was told of a newer group enters it when it looks: in an operation of its group,
// and where it calls leave(). As in the product it does not look while it waits for servers, so
// what it began in the old group may still come late.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "muster/base/clock.h"
#include "muster/ps/questions.h"
#include "muster/ps/server_map.h"
#include "muster/ps/simulation/groups.h"
#include "muster/ps/simulation/messages.h"
#include "muster/ps/table_data.h"
#include "muster/roster/simulation/world.h"

namespace muster::ps::simulation {

class Worker : Questions<Request>::Links {
 public:
  // All must outlive it.
  Worker(Cluster& cluster, Groups& groups, ClientProcess& client)
      : cluster_(cluster), groups_(groups), client_(client) {}
  ~Worker() override = default;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // ---- For its process.
  // Goes on, if what it waits for is there.
  void act();
  // Asks again what a server could not answer.
  void retry();
  // There is another map.
  void repeat_questions() { questions_.repeat(); }
  // There is a new connection to this server.
  void reconnected(const ServerKey& server);
  void answered(const ReadAnswer& answer, const ServerKey& from);
  void answered(const OrderAnswer& answer, const ServerKey& from);

  // ---- For its group.
  void told(const Group& group);
  void met(uint64_t group, uint64_t operation, uint64_t result);
  const Group& group() const { return group_; }
  // Steps, or rounds, that it knows to be committed.
  uint64_t position() const { return position_; }
  // The last group whose position it has heard of.
  uint64_t agreed() const { return agreed_; }
  bool stopped() const { return stopped_; }

 protected:
  using Then = std::function<void()>;
  struct RowsRead {
    std::vector<float> weights;
    std::vector<int64_t> clocks;  // of the shards that have keys of these
  };

  // It has entered a group, and all go on from where the one is that knows the most.
  virtual void begin() = 0;
  // It has come to the end, together with the others of its group.
  void stop();

  // These return at once.
  void push(const PushHeader& header, std::span<const uint64_t> keys,
            std::span<const float> gradients);
  void push_to_all(const std::string& push);
  void push_order(std::string_view operation);

  // Until all pushes are answered.
  void wait(Then then);
  void sleep(Duration duration, Then then);
  // `if_late` is called once if it takes longer than usual; it may be empty.
  void read(uint32_t table, const std::vector<uint64_t>& keys, int64_t clock,
            std::function<void(const RowsRead&)> then, Then if_late, bool exactly = false);
  void order(uint64_t worker, int64_t from, bool results,
             std::function<void(const OrderView&)> then);
  // An operation of the group, which gives the largest value of all.
  void meet(uint64_t value, std::function<void(uint64_t)> then);
  void barrier(Then then) {
    meet(0, [then = std::move(then)](uint64_t) { then(); });
  }

  // Enters the group that it was told of, if that is a newer one than its own.
  bool leave();
  // No newer group was formed.
  bool is_current() const { return group_.number == groups_.newest().number; }
  uint64_t rank() const;

  Cluster& cluster() { return cluster_; }
  Groups& groups() { return groups_; }
  ClientProcess& client() { return client_; }
  roster::simulation::World& world();
  void fail(const std::string& what);

  uint64_t position_ = 0;

 private:
  struct Reading {
    size_t width = 0;
    std::map<ShardNumber, std::vector<uint32_t>> places;  // of the keys, by their shard
    std::map<ShardNumber, int64_t> clocks;                // of the shards that have answered
    std::vector<float> weights;
    Moment began;
    Then if_late;
  };

  void wait_for(std::function<bool()> ready, Then then);
  void enter();
  void new_push(ShardNumber shard, const std::string& push);
  const ServerKey* primary_of(ShardNumber shard) const override;
  bool ask(const ServerKey& to, uint64_t request, ShardNumber shard, const Request& what) override;
  template <typename Kind, typename Answer>
  bool take_question(const Answer& answer, const ServerKey& from);

  Cluster& cluster_;
  Groups& groups_;
  ClientProcess& client_;

  Group group_;
  Group told_;  // the newest that it knows of
  uint64_t agreed_ = 0;
  bool stopped_ = false;
  uint64_t operations_ = 0;  // of the group
  bool in_operation_ = false;
  std::optional<uint64_t> met_;  // the result

  // What it waits for, and what it does then. Empty: nothing, until there is another group.
  std::function<bool()> ready_;
  Then then_;

  Questions<Request> questions_{*this};
  Reading reading_;
  std::optional<OrderView> seen_;
};

}  // namespace muster::ps::simulation
