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
constexpr uint64_t kEra = 0;
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
  if (in_operation_ || !then_) enter();
}

bool Worker::leave() {
  if (told_.number <= group_.number) return false;
  enter();
  return true;
}

// What it waits for it gives up. Its pushes stay under way.
void Worker::enter() {
  group_ = told_;
  operations_ = 0;
  in_operation_ = false;
  stopped_ = false;
  met_.reset();
  then_ = nullptr;
  questions_.clear();
  unserved_.clear();
  reading_ = {};
  seen_.reset();
  world().trace("client {} enters group {} as {}, at {}", client_.place, group_.number, rank(),
                position_);
  meet(position_, [this](uint64_t most) {
    position_ = most;
    agreed_ = group_.number;
    begin();
  });
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
  cluster_.new_push(client_, shard, push);
}

void Worker::push(const PushHeader& header, std::span<const uint64_t> keys,
                  std::span<const float> gradients) {
  const size_t width = cluster_.tables()[header.table].width;
  const auto pushes = pushes_by_shard(header, keys, gradients, width, cluster_.shards());
  for (const auto& [shard, bytes] : pushes) new_push(shard, *bytes);
}

void Worker::push_to_all(const std::string& push) {
  for (ShardNumber shard = 0; shard < cluster_.shards(); ++shard) new_push(shard, push);
}

void Worker::push_order(std::string_view operation) {
  new_push(kOrderShard, ps::order_push(kEra, operation));
}

// ---- Questions.

void Worker::ask(Request request) {
  const uint64_t number = ++last_request_;
  std::visit([&](auto& one) { one.request = number; }, request);
  send(questions_.emplace(number, std::move(request)).first->second);
}

// If there is nobody to ask, it is repeated when there is.
void Worker::send(Request& request) {
  const ShardNumber shard = std::visit([](const auto& one) { return one.shard; }, request);
  const ServerKey* const primary = client_.queue->primary_of(shard);
  if (primary == nullptr) return;
  std::visit([&](auto& one) { one.epoch = client_.queue->epoch(); }, request);
  cluster_.ask(client_, *primary, request);
}

void Worker::retry() {
  for (const uint64_t number : std::exchange(unserved_, {})) {
    const auto found = questions_.find(number);
    if (found != questions_.end()) send(found->second);
  }
  if (!reading_.if_late || world().now() - reading_.began < kUsual) return;
  const Then if_late = std::exchange(reading_.if_late, {});
  if_late();
}

void Worker::repeat_questions(const ServerKey* server) {
  for (auto& [number, request] : questions_) {
    const ShardNumber shard = std::visit([](const auto& one) { return one.shard; }, request);
    const ServerKey* const primary = client_.queue->primary_of(shard);
    if (server == nullptr || (primary != nullptr && *primary == *server)) send(request);
  }
}

// Whether it is an answer to what this worker still wants to know.
template <typename Kind, typename Answer>
bool Worker::take_question(const Answer& answer) {
  const auto found = questions_.find(answer.request);
  if (found == questions_.end() || !std::holds_alternative<Kind>(found->second)) return false;
  if (answer.served != Served::kYes) {
    unserved_.insert(answer.request);
    return false;
  }
  questions_.erase(found);
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
        request.shard = shard;
        request.table = table;
        request.clock = clock;
        request.exactly = exactly;
        for (const uint32_t place : places) request.keys.push_back(keys[place]);
        ask(std::move(request));
      });
  wait_for([this] { return reading_.clocks.size() == reading_.places.size(); },
           [this, then = std::move(then)] {
             const Reading done = std::exchange(reading_, {});
             RowsRead rows{done.weights, {}};
             for (const auto& [shard, at] : done.clocks) rows.clocks.push_back(at);
             then(rows);
           });
}

void Worker::answered(const ReadAnswer& answer) {
  if (!take_question<ReadRequest>(answer)) return;
  const auto& places = reading_.places[answer.shard];
  const size_t width = reading_.width;
  if (answer.weights.size() != places.size() * width) return fail("a read has other rows");
  for (size_t i = 0; i < places.size(); ++i) {
    std::copy_n(&answer.weights[i * width], width, &reading_.weights[places[i] * width]);
  }
  reading_.clocks[answer.shard] = answer.clock;
  act();
}

void Worker::order(uint64_t worker, int64_t from, bool results,
                   std::function<void(const OrderView&)> then) {
  seen_.reset();
  OrderRequest request;
  request.shard = kOrderShard;
  request.worker = worker;
  request.from = from;
  request.results = results;
  ask(request);
  wait_for([this] { return seen_.has_value(); },
           [this, then = std::move(then)] {
             const OrderView view = seen_.value();
             then(view);
           });
}

void Worker::answered(const OrderAnswer& answer) {
  if (!take_question<OrderRequest>(answer)) return;
  seen_ = answer.view;
  act();
}

}  // namespace muster::ps::simulation
