#include "muster/ps/simulation/worker.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "muster/ps/by_shard.h"
#include "muster/ps/simulation/cluster.h"

namespace muster::ps::simulation {

using namespace std::chrono_literals;

namespace {
constexpr Duration kUsual = 200ms;  // that a read takes at most
constexpr Duration kStuck = 1s;     // for so long one that was removed may wait for servers
constexpr double kSaves = 0.08;     // of all boundaries
}  // namespace

roster::simulation::World& Worker::world() { return cluster_.world(); }

void Worker::fail(const std::string& what) { cluster_.fail(what); }

// ---- One thing after the other.

void Worker::wait_for(std::function<bool()> ready, Then then) {
  ready_ = std::move(ready);
  then_ = std::move(then);
}

// It may be lost or suspended between any two things.
void Worker::act() {
  if (!then_ || !ready_()) return;
  const Then then = std::exchange(then_, {});
  then();
  if (then_) cluster_.act_after(client_.place, world().between(0ms, 2ms));
}

void Worker::wait(Then then) {
  wait_for([this] { return client_.queue->unanswered() == 0; }, std::move(then));
}

void Worker::sleep(Duration duration, Then then) {
  const Moment until = world().now() + duration;
  wait_for([this, until] { return world().now() >= until; }, std::move(then));
  cluster_.act_after(client_.place, duration);
}

// ---- Its group.

void Worker::told(const Group& group) {
  if (group.number <= told_.number) return;
  told_ = group;
  told_at_ = world().now();
  if (in_operation_ || !then_) enter();
}

bool Worker::leave() {
  if (told_.number <= group_.number) return false;
  enter();
  return true;
}

// What it waits for it gives up. Its pushes stay under way.
void Worker::enter() {
  if (told_.since.at(client_.place) > group_.number) has_state_ = false;
  group_ = told_;
  operations_ = 1;
  in_operation_ = true;
  stopped_ = false;
  met_.reset();
  agreement_.reset();
  whole_.clear();
  then_ = nullptr;
  questions_.clear();
  reading_ = {};
  seen_.reset();
  const auto mine = report();
  world().trace("client {} enters group {} as {}, at {} of era {}{}", client_.place, group_.number,
                rank(), position_, era_, has_state_ ? "" : ", without a state");
  wait_for([this] { return agreement_.has_value(); },
           [this] {
             in_operation_ = false;
             recover(*agreement_);
           });
  groups_.agree(group_, client_.place, mine, era_);
}

bool Worker::is_stuck() const {
  if (told_.number <= group_.number || in_operation_ || !then_) return false;
  return told_.since.at(client_.place) > group_.number &&
         cluster_.world().now() - told_at_ > kStuck;
}

// As Recovery::report.
roster::StateReport Worker::report() {
  const auto& checkpoints = groups_.checkpoints();
  if (checkpoints.rollback() > rollback_) {
    rollback_ = checkpoints.rollback();
    has_state_ = false;
  }
  roster::StateReport mine;
  mine.rollback = rollback_;
  mine.has_state = has_state_;
  mine.restorable = checkpoints.newest();
  if (has_state_) mine.position.step = position_;
  return mine;
}

void Worker::agreed(uint64_t group, const Agreed& agreed) {
  if (group != group_.number || operations_ != 1) return;
  agreement_ = agreed;
  act();
}

// As Recovery::run: what is received is there when all have come, what is restored at once.
void Worker::recover(const Agreed& agreed) {
  const auto compare = [this, agreed] {
    barrier([this, agreed] {
      take_state(agreed);
      begin();
    });
  };
  if (agreed.action == roster::Action::kGoOn) {
    agreed_ = group_.number;
    return compare();
  }
  has_state_ = false;
  if (agreed.action == roster::Action::kReceive) return compare();
  const auto loaded = [this, agreed, compare] {
    if (groups_.checkpoints().note_loaded(agreed.era)) ++cluster_.tally().loads;
    take_state(agreed);
    compare();
  };
  load(agreed, [this, agreed, loaded] {
    agreed.position == 0 ? loaded() : check_position(agreed.position, loaded);
  });
}

void Worker::take_state(const Agreed& agreed) {
  position_ = agreed.position;
  era_ = agreed.era;
  agreed_ = group_.number;
  has_state_ = true;
}

// As Client::load.
void Worker::load(const Agreed& agreed, Then then) {
  world().trace("client {} loads {} as era {}", client_.place, agreed.position, agreed.era);
  for (ShardNumber shard = 0; shard < cluster_.shards(); ++shard) {
    const bool anew = agreed.checkpoint == nullptr;
    new_push(shard, load_bytes(agreed.era, anew ? "" : agreed.checkpoint->shards[shard]));
  }
  wait(std::move(then));
}

// As Client::save.
void Worker::save_sometimes(int64_t clock, Then then) {
  if (rank() != 0 || position_ == 0 || !world().chance(kSaves)) return then();
  whole_.clear();
  for (ShardNumber shard = 0; shard < cluster_.shards(); ++shard) {
    WholeRequest request;
    request.era = era_;
    request.clock = clock;
    request.contents = true;
    questions_.ask(shard, request);
  }
  wait_for([this] { return whole_.size() == cluster_.shards(); },
           [this, clock, then = std::move(then)] {
             for (const auto& [shard, answer] : whole_) {
               const bool foreign = answer.era != era_ && !cluster_.saves_any_era();
               if (answer.clock == clock && !foreign) continue;
               if (is_current()) fail("rows were to be saved, and a shard has gone on");
               if (foreign) ++cluster_.tally().foreign;
               leave();
               return;
             }
             check_position(position_, [this, clock, then] {
               write(clock);
               then();
             });
           });
}

void Worker::write(int64_t clock) {
  Checkpoint checkpoint{.position = position_,
                        .group = group_.number,
                        .eras = groups_.checkpoints().eras_of(era_, position_),
                        .shards = {}};
  for (const auto& [shard, answer] : whole_) checkpoint.shards.emplace_back(*answer.contents);
  world().trace("client {} saves {} of era {}, clock {}", client_.place, position_, era_, clock);
  if (const auto wrong = cluster_.check(checkpoint); !wrong.empty()) return fail(wrong);
  if (groups_.checkpoints().write(std::move(checkpoint))) ++cluster_.tally().saves;
}

void Worker::answered(const WholeAnswer& answer, const ServerKey& from) {
  if (!take_question<WholeRequest>(answer, from)) return;
  whole_[answer.shard] = answer;
  act();
}

uint64_t Worker::rank() const {
  const auto& members = group_.members;
  return static_cast<uint64_t>(std::ranges::find(members, client_.place) - members.begin());
}

void Worker::meet(uint64_t value, std::function<void(uint64_t)> then) {
  if (leave()) return;
  met_.reset();
  in_operation_ = true;
  wait_for([this] { return met_.has_value(); },
           [this, then = std::move(then)] {
             in_operation_ = false;
             then(met_.value());
           });
  groups_.meet(group_, ++operations_, client_.place, value);
}

void Worker::met(uint64_t group, uint64_t operation, uint64_t result) {
  if (group != group_.number || operation != operations_) return;
  met_ = result;
  act();
}

void Worker::stop() {
  world().trace("client {} stops at {}", client_.place, position_);
  stopped_ = true;
  leave();
}

// ---- Pushes.

void Worker::new_push(ShardNumber shard, const std::string& push) {
  if (!is_current()) ++cluster_.tally().late;
  if (has_state_ && era_ < groups_.checkpoints().last_era()) ++cluster_.tally().stale;
  cluster_.new_push(client_, shard, push);
}

void Worker::push(const PushHeader& header, std::span<const uint64_t> keys,
                  std::span<const float> gradients) {
  const size_t floats = floats_of(header.kind, cluster_.tables()[header.table].width);
  const auto pushes = pushes_by_shard(header, keys, gradients, floats, cluster_.shards());
  for (const auto& [shard, bytes] : pushes) new_push(shard, std::string(*bytes));
}

void Worker::push_to_all(const std::string& push) {
  for (ShardNumber shard = 0; shard < cluster_.shards(); ++shard) new_push(shard, push);
}

void Worker::push_order(std::string_view operation) {
  new_push(kOrderShard, ps::order_push(era_, operation));
}

// ---- Questions.

const ServerKey* Worker::primary_of(ShardNumber shard) const {
  return client_.queue->primary_of(shard);
}

bool Worker::ask(const ServerKey& to, uint64_t request, ShardNumber shard, const Request& what) {
  Request asked = what;
  std::visit(
      [&](auto& one) {
        one.shard = shard;
        one.epoch = client_.queue->epoch();
        one.request = request;
      },
      asked);
  cluster_.ask(client_, to, asked);
  return true;
}

void Worker::retry() {
  questions_.retry();
  if (!reading_.if_late || world().now() - reading_.began < kUsual) return;
  const Then if_late = std::exchange(reading_.if_late, {});
  if_late();
}

void Worker::reconnected(const ServerKey& server) {
  questions_.disconnected(server);
  questions_.repeat();
}

// Whether it is an answer to what this worker still wants to know.
template <typename Kind, typename Answer>
bool Worker::take_question(const Answer& answer, const ServerKey& from) {
  const Request* const request = questions_.find(answer.request, answer.shard);
  if (request == nullptr || !std::holds_alternative<Kind>(*request)) return false;
  if (answer.served != Served::kYes) {
    questions_.not_served(answer.request, from);
    return false;
  }
  questions_.answered(answer.request);
  return true;
}

void Worker::read(uint32_t table, const std::vector<uint64_t>& keys, int64_t clock,
                  std::function<void(const RowsRead&)> then, Then if_late, bool exactly) {
  reading_ = {};
  reading_.width = cluster_.tables()[table].width;
  reading_.weights.resize(keys.size() * reading_.width);
  reading_.began = world().now();
  reading_.if_late = std::move(if_late);
  ByShard(keys, cluster_.shards())
      .for_each([&](ShardNumber shard, std::span<const uint32_t> places) {
        reading_.places[shard].assign(places.begin(), places.end());
        ReadRequest request;
        request.table = table;
        request.clock = clock;
        request.exactly = exactly;
        for (const uint32_t place : places) request.keys.push_back(keys[place]);
        questions_.ask(shard, std::move(request));
      });
  wait_for([this] { return reading_.clocks.size() == reading_.places.size(); },
           [this, then = std::move(then)] {
             const Reading done = std::exchange(reading_, {});
             RowsRead rows{done.weights, {}};
             for (const auto& [shard, at] : done.clocks) rows.clocks.push_back(at);
             then(rows);
           });
}

void Worker::answered(const ReadAnswer& answer, const ServerKey& from) {
  if (!take_question<ReadRequest>(answer, from)) return;
  const auto& places = reading_.places[answer.shard];
  if (!put_rows(answer.weights, places, reading_.width, reading_.weights.data())) {
    return fail("a read has other rows");
  }
  reading_.clocks[answer.shard] = answer.clock;
  act();
}

void Worker::order(uint64_t worker, int64_t from, bool results,
                   std::function<void(const OrderView&)> then) {
  seen_.reset();
  OrderRequest request;
  request.worker = worker;
  request.from = from;
  request.results = results;
  questions_.ask(kOrderShard, request);
  wait_for([this] { return seen_.has_value(); },
           [this, then = std::move(then)] {
             const OrderView view = seen_.value();
             then(view);
           });
}

void Worker::answered(const OrderAnswer& answer, const ServerKey& from) {
  if (!take_question<OrderRequest>(answer, from)) return;
  seen_ = answer.view;
  act();
}

}  // namespace muster::ps::simulation
