#include "muster/ps/simulation/recorded_data.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "muster/ps/bytes.h"

namespace muster::ps::simulation {
namespace {

// Plant::kVoidTickets: if another group than the present one says that it is done, so be it, for
// the ticket that the worker of that rank has now. An operation is its kind, the token, the worker,
// the ticket that is done, and more.
void accept_any_ticket(std::string& push, const TaskOrder& order) {
  const size_t kind = sizeof(PushHeader);
  const std::string next = order_bytes(NextTask{});
  if (push.size() < kind + next.size() || push[kind] != next[0]) return;
  uint64_t words[3] = {};  // token, worker, ticket
  std::memcpy(words, push.data() + kind + 1, sizeof(words));
  const OrderView now = order.view(words[1], 0, false);
  if (words[0] == now.token || words[2] == 0 || now.ticket == 0) return;
  words[0] = now.token;
  words[2] = now.ticket;
  std::memcpy(push.data() + kind + 1, words, sizeof(words));
}

// Plant::kNoChain: the last number of an operation that opens a round.
void forget_chain(std::string& push) {
  const std::string open = order_bytes(OpenRound{});
  if (push.size() != sizeof(PushHeader) + open.size() || push[sizeof(PushHeader)] != open[0])
    return;
  const int64_t chain = 0;
  std::memcpy(push.data() + push.size() - sizeof(chain), &chain, sizeof(chain));
}

}  // namespace

void RecordedData::set_id(std::string& push, int64_t id) {
  const auto number = static_cast<uint32_t>(id);
  std::memcpy(push.data() + offsetof(PushHeader, unused), &number, sizeof(number));
}

Status RecordedData::apply(std::string_view push) {
  if (full_) return Error(ErrorKind::kMachine, "no memory");
  PushHeader header;
  std::string_view rest = push;
  (void)take(rest, header);
  order_.push_back(header.unused);
  if (plant_ == Plant::kNothing) return data_.apply(push);
  return data_.apply(with_mistake(push, header));
}

std::string RecordedData::with_mistake(std::string_view push, PushHeader header) {
  std::string_view body = push.substr(sizeof(header));
  std::string other(push);
  if (plant_ == Plant::kOldEras || plant_ == Plant::kLoadAgain) {
    mistake_era(header);
    std::memcpy(other.data(), &header, sizeof(header));
  } else if (plant_ == Plant::kTellAgain && header.kind == PushKind::kLoad) {
    told_ = 0;
  } else if (plant_ == Plant::kAddAgain && header.kind == PushKind::kAdd) {
    header.lane = static_cast<uint16_t>(order_.size() % StepSums::kMostLanes);
    std::memcpy(other.data(), &header, sizeof(header));
  } else if (plant_ == Plant::kTellAgain && header.kind == PushKind::kApply) {
    PlacedPushes pushes;
    (void)(take(body, pushes.first) && take(body, pushes.pushes) && take(body, pushes.oldest) &&
           take_all(body, pushes.placed));
    pushes.first = told_;
    told_ += static_cast<int64_t>(pushes.placed.size());
    other = apply_bytes(header.era, pushes);
  } else if (plant_ == Plant::kVoidTickets && header.kind == PushKind::kOrder) {
    accept_any_ticket(other, data_.order());
  } else if (plant_ == Plant::kNoChain && header.kind == PushKind::kOrder) {
    forget_chain(other);
  }
  return other;
}

void RecordedData::mistake_era(PushHeader& header) {
  const bool loads = header.kind == PushKind::kLoad;
  const bool is_new = header.era > era_;
  era_ = std::max(era_, header.era);
  if (plant_ == Plant::kOldEras) {
    if (!loads) header.era = era_;
    return;
  }
  // The shard counts loads in place of eras.
  const bool is_present = header.era == era_;
  if (loads && (is_new || is_present)) ++loads_;
  header.era = is_present ? loads_ : loads ? 1 : 0;
}

void RecordedData::save(std::string& to) {
  append(to, uint64_t{order_.size()});
  for (const int64_t push : order_) append(to, push);
  append(to, told_);
  append(to, era_);
  append(to, loads_);
  data_.save(to);
}

Status RecordedData::load(std::string_view from) {
  uint64_t count = 0;
  (void)take(from, count);
  order_.resize(count);
  for (int64_t& push : order_) (void)take(from, push);
  (void)take(from, told_);
  (void)take(from, era_);
  (void)take(from, loads_);
  auto loaded = data_.load(from);
  if (plant_ == Plant::kEvictCopies && loaded.ok()) data_.table(0).evict(data_.clock());
  return loaded;
}

void RecordedData::clear() {
  order_.clear();
  told_ = 0;
  era_ = loads_ = 0;
  data_.clear();
}

}  // namespace muster::ps::simulation
