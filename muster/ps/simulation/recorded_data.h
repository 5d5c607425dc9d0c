#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/ps/simulation/simulation.h"
#include "muster/ps/table_data.h"

namespace muster::ps::simulation {

// The tables of a shard, and the order in which they were pushed to. Mistakes in what a shard does
// with a push (Plant) are built in here: the push that it gets is another one than was sent.
class RecordedData final : public ShardData {
 public:
  RecordedData(ShardNumber shard, ShardNumber shards, std::span<const TableOptions> tables,
               Slabs& slabs, Plant plant)
      : plant_(plant), data_(shard, shards, tables, slabs) {}
  // Gives a push a number of its own, in a field of its header that nobody else uses.
  static void set_id(std::string& push, int64_t id);

  const std::vector<int64_t>& order() const { return order_; }  // of numbers
  Hash128 hash() { return data_.hash(); }
  int64_t clock() const { return data_.clock(); }
  TableShard& table(uint32_t id) { return data_.table(id); }
  const TaskOrder& tasks() const { return data_.order(); }
  TableData& data() { return data_; }

  Status check(std::string_view push) const override {
    return plant_ == Plant::kLoadAgain ? Status() : data_.check(push);
  }
  // From now on there is no memory.
  void fill() { full_ = true; }
  bool is_full() const { return full_; }
  Status apply(std::string_view push) override;
  void save(std::string& to) override;
  Status load(std::string_view from) override;
  void clear() override;

 private:
  std::string with_mistake(std::string_view push, PushHeader header);
  void mistake_era(PushHeader& header);

  const Plant plant_;
  bool full_ = false;
  std::vector<int64_t> order_;
  int64_t told_ = 0;  // places, each as often as it was told: Plant::kTellAgain
  // Plant::kOldEras and kLoadAgain: the era, and how often it was loaded.
  uint64_t era_ = 0;
  uint64_t loads_ = 0;
  TableData data_;
};

}  // namespace muster::ps::simulation
