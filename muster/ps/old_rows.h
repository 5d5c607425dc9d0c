// The weights that rows of one shard had before its last updates: for those who read them as they
// were after an earlier one (TableOptions::versions).
//
// Equal calls in equal order give equal contents. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/result.h"

namespace muster::ps {

class OldRows {
 public:
  // An update is going to change these rows of a table, which have these weights. Keys ascend. At
  // most once for each table and update; tables ascend.
  void keep(uint32_t table, std::span<const uint64_t> keys, std::vector<float> weights);
  // It removes these rows, too, which have these weights after what it has changed. Keys ascend.
  // Those that it has changed are known as they were before. At most once for each table and
  // update, after keep() of all tables.
  void keep_evicted(uint32_t table, std::span<const uint64_t> keys, std::span<const float> weights);
  // It was made. Those of all but the last `most` are forgotten.
  void end_update(size_t most);

  // Of how many updates they are known.
  size_t updates() const { return kept_.size(); }
  // Rows whose weights now are in `weights`: as they were before the last `back` updates.
  void read(uint32_t table, std::span<const uint64_t> keys, size_t back, size_t width,
            float* weights) const;

  void save(std::string& to) const;
  // `widths`: by table.
  Status load(std::string_view& from, std::span<const size_t> widths);

 private:
  struct Changed {
    uint32_t table = 0;
    std::vector<uint64_t> keys;  // ascending
    std::vector<float> weights;
  };
  using Update = std::vector<Changed>;
  // Null: it has not changed this row.
  static const float* find(const Update& update, uint32_t table, uint64_t key, size_t width);

  std::deque<Update> kept_;  // the last one is that of the last update
  Update next_;              // tables ascend
};

}  // namespace muster::ps
