#include "muster/ps/task_order.h"

#include <algorithm>
#include <utility>

#include "muster/base/check.h"
#include "muster/ps/bytes.h"

namespace muster::ps {
namespace {

enum class Op : uint8_t { kOpen = 1, kNext = 2, kCut = 3 };

constexpr int64_t kMostTasks = int64_t{1} << 20;  // of a round
constexpr int64_t kNoTask = -1;

Error malformed(std::string_view what) {
  return Error(ErrorKind::kIo, "a push is malformed: {}", what);
}
Error damaged() { return Error(ErrorKind::kIo, "the saved order of tasks is damaged"); }

void append_open(std::string& to, const OpenRound& open) {
  append(to, open.openings);
  append(to, open.token);
  append(to, open.first);
  append(to, open.end);
  append(to, open.staleness);
  append(to, open.pushes);
  append(to, open.chain);
}

bool take_open(std::string_view& from, OpenRound& open) {
  return take(from, open.openings) && take(from, open.token) && take(from, open.first) &&
         take(from, open.end) && take(from, open.staleness) && take(from, open.pushes) &&
         take(from, open.chain);
}

void append_result(std::string& to, const TaskResult& result) {
  append(to, result.loss);
  append(to, result.samples);
  append(to, result.used);
}

bool take_result(std::string_view& from, TaskResult& result) {
  return take(from, result.loss) && take(from, result.samples) && take(from, result.used);
}

void append_results(std::string& to, const std::vector<TaskResult>& results) {
  append(to, uint64_t{results.size()});
  for (const auto& result : results) append_result(to, result);
}

bool take_results(std::string_view& from, std::vector<TaskResult>& results) {
  uint64_t count = 0;
  if (!take(from, count) || count > from.size() / sizeof(TaskResult)) return false;
  results.resize(count);
  return std::ranges::all_of(results, [&](auto& result) { return take_result(from, result); });
}

// The rest of the op.
Result<OpenRound> parse_open(std::string_view rest) {
  OpenRound open;
  if (!take_open(rest, open) || !rest.empty()) return malformed("its length");
  if (open.token == 0 || open.first < 0 || open.end < open.first || open.end >= kMostNumber ||
      open.end - open.first > kMostTasks || open.staleness < -1 || open.pushes < 1 ||
      (open.end - open.first) % open.pushes != 0 || open.chain < 0 || open.chain > kMostTasks) {
    return malformed("there is no such round");
  }
  return open;
}

Result<CutRound> parse_cut(std::string_view rest) {
  CutRound cut;
  if (!take(rest, cut.token) || !take(rest, cut.unit) || !rest.empty()) {
    return malformed("its length");
  }
  if (cut.unit < 1 || cut.unit > kMostTasks) return malformed("where a round is to be cut");
  return cut;
}

Result<NextTask> parse_next(std::string_view rest) {
  NextTask next;
  if (!take(rest, next.token) || !take(rest, next.worker) || !take(rest, next.done) ||
      !take_result(rest, next.result)) {
    return malformed("its length");
  }
  auto record = take_record(rest, 0, 0);
  if (!record.ok() || !rest.empty()) return malformed("what it was computed from");
  next.versions = std::move(record->versions);
  return next;
}

}  // namespace

std::string order_bytes(const OpenRound& open) {
  std::string bytes;
  append(bytes, Op::kOpen);
  append_open(bytes, open);
  return bytes;
}

std::string order_bytes(const CutRound& cut) {
  std::string bytes;
  append(bytes, Op::kCut);
  append(bytes, cut.token);
  append(bytes, cut.unit);
  return bytes;
}

std::string order_bytes(const NextTask& next) {
  std::string bytes;
  append(bytes, Op::kNext);
  append(bytes, next.token);
  append(bytes, next.worker);
  append(bytes, next.done);
  append_result(bytes, next.result);
  append_record(bytes, 0, 0, {0, next.versions});
  return bytes;
}

std::string encode_view(const OrderView& view) {
  std::string bytes;
  append(bytes, view.openings);
  append(bytes, view.token);
  append(bytes, view.first);
  append(bytes, view.end);
  append(bytes, view.finished);
  append(bytes, view.ticket);
  append(bytes, view.task);
  append(bytes, view.oldest);
  append(bytes, view.from);
  append_all(bytes, view.ordered);
  append_results(bytes, view.results);
  return bytes;
}

Result<OrderView> decode_view(std::string_view bytes) {
  OrderView view;
  if (take(bytes, view.openings) && take(bytes, view.token) && take(bytes, view.first) &&
      take(bytes, view.end) && take(bytes, view.finished) && take(bytes, view.ticket) &&
      take(bytes, view.task) && take(bytes, view.oldest) && take(bytes, view.from) &&
      take_all(bytes, view.ordered) && take_results(bytes, view.results) && bytes.empty()) {
    return view;
  }
  return Error(ErrorKind::kIo, "a parameter server has sent a damaged order of tasks");
}

Status TaskOrder::check(std::string_view op) const {
  Op kind{};
  if (!take(op, kind)) return malformed("it is empty");
  const auto status = [](const auto& parsed) { return parsed.ok() ? Status() : parsed.error(); };
  if (kind == Op::kOpen) return status(parse_open(op));
  if (kind == Op::kNext) return status(parse_next(op));
  if (kind == Op::kCut) return status(parse_cut(op));
  return malformed("it is of no kind that there is");
}

void TaskOrder::apply(std::string_view op) {
  Op kind{};
  MUSTER_CHECK(take(op, kind), "an empty push");
  if (kind == Op::kOpen) {
    apply(*parse_open(op));
  } else if (kind == Op::kCut) {
    apply(*parse_cut(op));
  } else {
    apply(*parse_next(op));
  }
}

void TaskOrder::apply(OpenRound open) {
  if (open.openings != openings_) return;
  const bool other_job = open.pushes != round_.pushes || open.chain != round_.chain;
  if (places_ > 0 && other_job) return;
  const bool again = open.first == round_.first && round_.end > round_.first;
  if (again && open.end > round_.end) open.end = round_.end;  // it was cut short
  if (open.first != round_.first || open.end != round_.end) {
    // Of somebody who has missed the end of a round.
    if (open.first != round_.end || finished_ != round_.end - round_.first) return;
    taken_.clear();
    next_task_ = open.first;
    finished_ = 0;
    results_.assign(static_cast<size_t>(open.end - open.first), {});
    ordered_.clear();
    waiting_.clear();
  }
  for (const auto& [worker, taken] : taken_) waiting_.insert(taken.task);
  taken_.clear();
  round_ = open;
  ++openings_;
}

void TaskOrder::apply(const CutRound& cut) {
  if (cut.token != round_.token || cut.unit % round_.pushes != 0) return;
  const int64_t units = std::max<int64_t>(1, (next_task_ - round_.first + cut.unit - 1) / cut.unit);
  round_.end = std::min(round_.end, round_.first + units * cut.unit);
  results_.resize(static_cast<size_t>(round_.end - round_.first));
}

int64_t TaskOrder::oldest_unfinished() const {
  int64_t oldest = waiting_.empty() ? next_task_ : std::min(*waiting_.begin(), next_task_);
  for (const auto& [worker, taken] : taken_) oldest = std::min(oldest, taken.task);
  return oldest;
}

bool TaskOrder::may_begin(int64_t task) const {
  if (round_.staleness >= 0 && task - oldest_unfinished() > round_.staleness) return false;
  const int64_t before = task - round_.chain;
  // All of the rounds before have a place.
  if (round_.chain == 0 || before < round_.first) return true;
  return before < next_task_ && !waiting_.contains(before) &&
         std::ranges::none_of(taken_, [&](const auto& one) { return one.second.task == before; });
}

int64_t TaskOrder::find_task(int64_t except) const {
  const auto fits = [&](int64_t task) { return task != except && may_begin(task); };
  const auto found = std::ranges::find_if(waiting_, fits);
  if (found != waiting_.end()) return *found;
  // If none of a whole chain may begin, none of those that follow may.
  const int64_t end = std::min(round_.end, next_task_ + std::max<int64_t>(round_.chain, 1));
  for (int64_t task = next_task_; task < end; ++task) {
    if (fits(task)) return task;
  }
  return kNoTask;
}

void TaskOrder::give(int64_t task, uint64_t worker) {
  for (; next_task_ <= task; ++next_task_) waiting_.insert(next_task_);
  waiting_.erase(task);
  taken_[worker] = {++last_ticket_, task};
}

void TaskOrder::apply(const NextTask& next) {
  if (next.token != round_.token) return;
  int64_t successor = kNoTask;
  if (const auto found = taken_.find(next.worker); found != taken_.end()) {
    if (found->second.ticket != next.done) return;  // it has one already
    if (round_.chain > 0) successor = found->second.task + round_.chain;
    finish(found->second, next);
    taken_.erase(found);
  }
  int64_t task = find_task(successor);
  if (task == kNoTask) task = find_task(kNoTask);
  if (task != kNoTask) give(task, next.worker);
}

void TaskOrder::finish(const Taken& taken, const NextTask& next) {
  const PushRecord record{taken.task, next.versions};
  const int64_t updates = places_ / round_.pushes;
  append_record(record_, places_, updates, record);
  ordered_.push_back({taken.ticket, record.staleness(updates)});
  results_[static_cast<size_t>(taken.task - round_.first)] = next.result;
  ++places_;
  ++finished_;
}

OrderView TaskOrder::view(uint64_t worker, int64_t from, bool results) const {
  OrderView view;
  view.openings = openings_;
  view.token = round_.token;
  view.first = round_.first;
  view.end = round_.end;
  view.finished = finished_;
  view.oldest = last_ticket_ + 1;
  for (const auto& [who, taken] : taken_) {
    view.oldest = std::min(view.oldest, taken.ticket);
    if (who != worker) continue;
    view.ticket = taken.ticket;
    view.task = taken.task;
  }
  const int64_t begin = places_ - static_cast<int64_t>(ordered_.size());
  view.from = std::clamp(from, begin, places_);
  view.ordered.assign(ordered_.begin() + (view.from - begin), ordered_.end());
  if (results) view.results = results_;
  return view;
}

void TaskOrder::save(std::string& to) const {
  append(to, openings_);
  append_open(to, round_);
  append(to, next_task_);
  append(to, last_ticket_);
  append(to, uint64_t{taken_.size()});
  for (const auto& [worker, taken] : taken_) {
    append(to, worker);
    append(to, taken.ticket);
    append(to, taken.task);
  }
  append_all(to, std::vector<int64_t>(waiting_.begin(), waiting_.end()));
  append(to, finished_);
  append_results(to, results_);
  append(to, places_);
  append_all(to, ordered_);
  append(to, uint64_t{record_.size()});
  to += record_;
}

Status TaskOrder::load(std::string_view& from) {
  TaskOrder order;
  uint64_t workers = 0;
  if (!take(from, order.openings_) || !take_open(from, order.round_) ||
      !take(from, order.next_task_) || !take(from, order.last_ticket_) || !take(from, workers)) {
    return damaged();
  }
  for (uint64_t i = 0; i < workers; ++i) {
    uint64_t worker = 0;
    Taken taken;
    if (!take(from, worker) || !take(from, taken.ticket) || !take(from, taken.task)) {
      return damaged();
    }
    order.taken_[worker] = taken;
  }
  std::vector<int64_t> waiting;
  uint64_t bytes = 0;
  if (!take_all(from, waiting) || !take(from, order.finished_) ||
      !take_results(from, order.results_) || !take(from, order.places_) ||
      !take_all(from, order.ordered_) || !take(from, bytes) || bytes > from.size()) {
    return damaged();
  }
  order.waiting_.insert(waiting.begin(), waiting.end());
  order.record_ = from.substr(0, bytes);
  from.remove_prefix(bytes);

  // What the other functions rely on.
  const OpenRound& round = order.round_;
  std::set<int64_t> unfinished = order.waiting_;
  bool sound = round.pushes >= 1 && round.chain >= 0 && round.chain <= kMostTasks &&
               round.first >= 0 && round.end >= round.first && round.end < kMostNumber &&
               round.end - round.first <= kMostTasks && order.next_task_ >= round.first &&
               order.next_task_ <= round.end;
  for (const auto& [worker, taken] : order.taken_) {
    sound = sound && unfinished.insert(taken.task).second && taken.ticket <= order.last_ticket_;
  }
  const auto is_given = [&](int64_t task) {
    return task >= round.first && task < order.next_task_;
  };
  sound =
      sound && std::ranges::all_of(unfinished, is_given) &&
      order.finished_ + static_cast<int64_t>(unfinished.size()) == order.next_task_ - round.first &&
      order.ordered_.size() == static_cast<uint64_t>(order.finished_) &&
      order.places_ >= order.finished_ && order.places_ < kMostNumber &&
      order.results_.size() == static_cast<size_t>(round.end - round.first);
  if (!sound) return damaged();
  *this = std::move(order);
  return {};
}

}  // namespace muster::ps
