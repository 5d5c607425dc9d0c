#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/ps/bytes.h"
#include "muster/ps/table_data.h"

namespace muster::ps::simulation {

// The tables of a shard, and the order in which they were pushed to: the `step` of each push is a
// number of its own.
class RecordedData final : public ShardData {
 public:
  RecordedData(ShardNumber shard, ShardNumber shards, std::span<const TableOptions> tables,
               Slabs& slabs)
      : data_(shard, shards, tables, slabs) {}
  const std::vector<int64_t>& order() const { return order_; }
  Hash128 hash() { return data_.hash(); }

  Status check(std::string_view push) const override { return data_.check(push); }
  // From now on there is no memory.
  void fill() { full_ = true; }
  bool is_full() const { return full_; }
  Status apply(std::string_view push) override {
    if (full_) return Error(ErrorKind::kMachine, "no memory");
    PushHeader header;
    (void)take(push, header);
    order_.push_back(header.step);
    return data_.apply({push.data() - sizeof(header), push.size() + sizeof(header)});
  }
  void save(std::string& to) override {
    append(to, uint64_t{order_.size()});
    for (const int64_t push : order_) append(to, push);
    data_.save(to);
  }
  Status load(std::string_view from) override {
    uint64_t count = 0;
    (void)take(from, count);
    order_.resize(count);
    for (int64_t& push : order_) (void)take(from, push);
    return data_.load(from);
  }
  void clear() override {
    order_.clear();
    data_.clear();
  }

 private:
  bool full_ = false;
  std::vector<int64_t> order_;
  TableData data_;
};

}  // namespace muster::ps::simulation
