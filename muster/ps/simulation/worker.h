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
  void answered(const WholeAnswer& answer, const ServerKey& from);
  // It was left out of a group, and its thread hangs: such a process ends (Membership::on_stuck).
  bool is_stuck() const;

  // ---- For its group.
  void told(const Group& group);
  void agreed(uint64_t group, const Agreed& agreed);
  void met(uint64_t group, uint64_t operation, uint64_t result);
  const Group& group() const { return group_; }
  // Steps, or rounds, that it knows to be committed.
  uint64_t position() const { return position_; }
  // The last group whose position it has heard of.
  uint64_t agreed() const { return agreed_; }
  // The state of the job. One that begins has none.
  bool has_state() const { return has_state_; }
  uint64_t era() const { return era_; }  // of the state
  bool stopped() const { return stopped_; }

 protected:
  using Then = std::function<void()>;
  struct RowsRead {
    std::vector<float> weights;
    std::vector<int64_t> clocks;  // of the shards that have keys of these
  };

  // It has entered a group, and has the state from which all go on.
  virtual void begin() = 0;
  // StepRows::is_at, of rows that were read for a checkpoint or loaded from one: `then`, if nobody
  // has gone on from this position meanwhile.
  virtual void check_position(uint64_t /*position*/, const Then& then) { then(); }
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
  // Now and then, at a boundary, as Recorder::save does: the worker of rank 0 reads all rows, as
  // they are when the clock is exactly there, and writes the checkpoint of position(). The others
  // continue at once.
  void save_sometimes(int64_t clock, Then then);
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
  roster::StateReport report();
  void recover(const Agreed& agreed);
  void load(const Agreed& agreed, Then then);
  void take_state(const Agreed& agreed);
  void write(int64_t clock);
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
  Moment told_at_;
  uint64_t agreed_ = 0;
  bool has_state_ = false;
  uint64_t era_ = 0;
  roster::Rollback rollback_;  // the last that it knows of
  bool stopped_ = false;
  uint64_t operations_ = 0;  // of the group
  bool in_operation_ = false;
  std::optional<uint64_t> met_;  // the result
  std::optional<Agreed> agreement_;

  // What it waits for, and what it does then. Empty: nothing, until there is another group.
  std::function<bool()> ready_;
  Then then_;

  Questions<Request> questions_{*this};
  Reading reading_;
  std::optional<OrderView> seen_;
  std::map<ShardNumber, WholeAnswer> whole_;
};

}  // namespace muster::ps::simulation
