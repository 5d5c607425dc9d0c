#include "muster/ps/simulation/task_training.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "muster/base/hash.h"
#include "muster/ps/by_shard.h"
#include "muster/ps/simulation/cluster.h"
#include "muster/ps/simulation/task_client.h"

namespace muster::ps::simulation {
namespace {

constexpr uint64_t kWeightKeys = 4;

// Computes the pushes of a record again, one after the other, each from rows as they were when its
// task read them.
class Replay {
 public:
  Replay(const TaskTraining& training, ShardNumber shards, std::span<const TableOptions> tables)
      : training_(training), shards_(shards), tables_(tables), reference_(shards, tables) {
    keep();
  }

  // Returns what cannot be. `era`: in which it was computed.
  std::string run(const ps::PushRecord& record, uint64_t era);
  Reference& reference() { return reference_; }
  // Of the last push.
  uint64_t hash() const { return hash_; }

 private:
  // All rows, in the order of their keys, by table.
  using AllRows = std::vector<std::vector<float>>;
  void keep() {
    kept_.push_back({reference_.read(kRowTable, first_keys(kKeys)),
                     reference_.read(kWeightTable, weight_keys())});
  }
  bool read(uint32_t table, std::span<const uint64_t> keys, const std::vector<int64_t>& versions,
            std::vector<float>& rows) const;

  const TaskTraining& training_;
  const ShardNumber shards_;
  const std::span<const TableOptions> tables_;
  Reference reference_;
  int64_t places_ = 0;
  std::vector<AllRows> kept_;  // by the number of updates before
  uint64_t hash_ = 0;
};

bool Replay::read(uint32_t table, std::span<const uint64_t> keys,
                  const std::vector<int64_t>& versions, std::vector<float>& rows) const {
  const size_t width = tables_[table].width;
  rows.resize(keys.size() * width);
  size_t part = 0;
  bool sound = true;
  ByShard(keys, shards_).for_each([&](ShardNumber /*shard*/, std::span<const uint32_t> places) {
    const int64_t version = part < versions.size() ? versions[part] : -1;
    ++part;
    if (version < 0 || version >= static_cast<int64_t>(kept_.size())) {
      sound = false;
      return;
    }
    const auto& then = kept_[static_cast<size_t>(version)][table];
    for (const uint32_t place : places) {
      std::copy_n(&then[keys[place] * width], width, &rows[place * width]);
    }
  });
  return sound && part == versions.size();
}

std::string Replay::run(const ps::PushRecord& record, uint64_t era) {
  const auto keys = row_keys(record.task);
  std::vector<float> weights;
  std::vector<float> rows;
  if (record.versions.size() != 2 ||
      !read(kWeightTable, weight_keys(), record.versions[0], weights) ||
      !read(kRowTable, keys, record.versions[1], rows)) {
    return fmt::format("task {}, at place {}, has read what there never was", record.task, places_);
  }
  const auto gradient = gradient_of(era, record.task, rows, weights);
  hash_ = gradient.hash;
  const auto ticket = static_cast<uint64_t>(places_ + 1);
  reference_.push(training_.stage_header(0, kRowTable, ticket), keys,
                  training_.with_reads(kRowTable, gradient.rows, rows));
  reference_.push(training_.stage_header(0, kWeightTable, ticket), weight_keys(),
                  training_.with_reads(kWeightTable, gradient.weights, weights));
  const int64_t updates = places_ / training_.pushes();
  const float weight = training_.weight_of(record.staleness(updates));
  reference_.push_to_all(apply_bytes(0, {.first = places_,
                                         .pushes = training_.pushes(),
                                         .oldest = 0,
                                         .placed = {{ticket, weight, training_.compensation()}}}));
  ++places_;
  if (places_ % training_.pushes() == 0) keep();
  return {};
}

}  // namespace

TaskGradient gradient_of(uint64_t era, int64_t task, const std::vector<float>& rows,
                         const std::vector<float>& weights) {
  const auto number = static_cast<uint64_t>(task);
  TaskGradient gradient;
  for (size_t i = 0; i < rows.size(); ++i) {
    gradient.rows.push_back(0.25F * rows[i] + 0.125F * weights[i % weights.size()] +
                            noise(era, number, kRowTable, i));
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    gradient.weights.push_back(0.25F * weights[i] + 0.125F * rows[i % rows.size()] +
                               noise(era, number, kWeightTable, i));
  }
  gradient.hash = hash64(gradient.rows.data(), gradient.rows.size() * sizeof(float));
  gradient.hash =
      hash64(gradient.weights.data(), gradient.weights.size() * sizeof(float), gradient.hash);
  return gradient;
}

std::vector<uint64_t> row_keys(int64_t task) { return some_keys(static_cast<uint64_t>(task), 0); }

const std::vector<uint64_t>& weight_keys() {
  static const std::vector<uint64_t> keys = first_keys(kWeightKeys);
  return keys;
}

PushHeader TaskTraining::stage_header(uint64_t era, uint32_t table, uint64_t ticket) const {
  return {.kind = compensates_ ? PushKind::kStageRead : PushKind::kStage,
          .table = table,
          .era = era,
          .step = static_cast<int64_t>(ticket),
          .lr = kRate};
}

std::vector<float> TaskTraining::with_reads(uint32_t table, const std::vector<float>& gradients,
                                            const std::vector<float>& read) const {
  if (!compensates_) return gradients;
  const auto width = static_cast<std::ptrdiff_t>(cluster().tables()[table].width);
  std::vector<float> both;
  for (auto g = gradients.begin(), r = read.begin(); g != gradients.end(); g += width, r += width) {
    both.insert(both.end(), g, g + width);
    both.insert(both.end(), r, r + width);
  }
  return both;
}

TaskTraining::TaskTraining(Cluster& cluster)
    : Training(cluster),
      tasks_(kStep * static_cast<int64_t>(1 + cluster.world().below(4))),
      pushes_(static_cast<int64_t>(1 + cluster.world().below(3))),
      staleness_(cluster.world().chance(0.5) ? -1 : static_cast<int64_t>(cluster.world().below(5))),
      fetch_(static_cast<int64_t>(1 + cluster.world().below(2))),
      scaled_(cluster.world().chance(0.5)),
      compensates_(pushes_ == 1 && cluster.world().chance(0.5)),
      chain_(cluster.world().chance(0.5) ? 0 : static_cast<int64_t>(1 + cluster.world().below(6))) {
}

// As train::weight_of.
float TaskTraining::weight_of(int64_t staleness) const {
  return scaled_ ? 1 / static_cast<float>(std::max<int64_t>(staleness, 1)) : 1;
}

std::unique_ptr<Worker> TaskTraining::make_worker(ClientProcess& client) {
  return std::make_unique<TaskClient>(cluster(), *this, client);
}

std::string TaskTraining::check_places(const std::vector<ps::PushRecord>& records) const {
  std::set<int64_t> there;
  int64_t oldest = 0;  // without a place
  for (const auto& record : records) {
    if (!there.insert(record.task).second) {
      return fmt::format("task {} has two places", record.task);
    }
    // All before the bound had a place when it was given.
    if (staleness_ >= 0 && record.task - oldest > staleness_) {
      return fmt::format("task {} has a place before task {}", record.task, oldest);
    }
    while (there.contains(oldest)) ++oldest;
  }
  // None is there twice, so these are the first ones.
  if (oldest == static_cast<int64_t>(records.size())) return {};
  return fmt::format("task {} has no place", oldest);
}

// A task of a chain has read what the one before has pushed.
std::string TaskTraining::check_chains(const std::vector<ps::PushRecord>& records) const {
  if (chain_ == 0) return {};
  std::map<int64_t, int64_t> places;  // by task
  for (const auto& record : records) {
    const auto place = static_cast<int64_t>(places.size());
    const auto before = places.find(record.task - chain_);
    if (record.task >= chain_ && before == places.end()) {
      return fmt::format("task {} has a place before task {}", record.task, record.task - chain_);
    }
    places[record.task] = place;
    if (record.task < chain_ || record.versions.size() != 2) continue;
    const int64_t updates = (before->second + 1) / pushes_;
    for (const int64_t version : record.versions[1]) {  // rows: they are read for each task
      if (version >= updates) continue;
      return fmt::format("task {} has read rows after {} updates, and task {} was number {}",
                         record.task, version, before->first, before->second);
    }
  }
  return {};
}

std::string TaskTraining::check_end(std::span<TableData* const> shards) {
  const uint64_t done = groups().position();
  cluster().tally().tasks += done;
  const auto& order = shards[kOrderShard]->order();
  cluster().tally().again += order.view(0, 0, false).oldest - 1 - done;  // tickets begin with 1
  return Training::check_end(shards);
}

std::string TaskTraining::check(std::span<TableData* const> shards, uint64_t position,
                                const std::vector<uint64_t>& eras) {
  const auto done = static_cast<int64_t>(position);
  const TaskOrder& order = shards[kOrderShard]->order();
  const auto records = read_records(order.record(), pushes_);
  if (!records.ok()) return records.error().message();
  if (order.places() != done || records->size() != static_cast<size_t>(done)) {
    return fmt::format("{} tasks have {} places and {} records", done, order.places(),
                       records->size());
  }
  if (auto wrong = check_places(*records); !wrong.empty()) return wrong;
  if (auto wrong = check_chains(*records); !wrong.empty()) return wrong;

  const OrderView view = order.view(0, 0, true);  // of the last round
  Replay replay(*this, cluster().shards(), cluster().tables());
  for (const auto& record : *records) {
    // A round is of one era, and all of it has places before the next one.
    const uint64_t era = eras[static_cast<size_t>(record.task)];
    if (auto wrong = replay.run(record, era); !wrong.empty()) return wrong;
    if (record.task < view.first) continue;
    const auto& result = view.results[static_cast<size_t>(record.task - view.first)];
    if (result.used != replay.hash()) {
      return fmt::format("the result of task {} is not that of its place", record.task);
    }
  }
  return replay.reference().compare(shards);
}

}  // namespace muster::ps::simulation
