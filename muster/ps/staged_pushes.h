// Gradients of asynchronous training that a shard has, and that have no place in the order yet
// (task_order.h); and making updates of those that have.
//
// An update is made of `pushes` of them, in their order: the mean of gradient times weight. The sum
// is plain floating point, so its bits follow from the order, which is recorded.
//
// Equal calls in equal order give equal contents. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/result.h"

namespace muster::ps {

struct StagedRows {
  uint32_t table = 0;
  double lr = 0;
  std::vector<uint64_t> keys;    // ascending
  std::vector<float> gradients;  // one after the other
};

class StagedPushes {
 public:
  // Before the ticket gets its place. What belongs to one that is given up has no effect.
  void stage(uint64_t ticket, StagedRows rows);

  // How many have a place.
  int64_t places() const { return places_; }
  // The next place is that of this ticket. True: that completes an update.
  bool place(uint64_t ticket, float weight, int64_t pushes);
  // The update, of one table; false: it has none of its rows. `lr`: of the last push that has.
  bool read_update(uint32_t table, std::vector<uint64_t>& keys, std::vector<float>& gradients,
                   double& lr) const;
  void end_update() { update_.clear(); }
  // No ticket before this one gets a place any more, except those that have one here.
  void forget_before(uint64_t ticket);

  void save(std::string& to) const;
  // The number of places alone.
  void save_places(std::string& to) const;
  // `fits`: whether rows can be of this shard.
  Status load(std::string_view& from, const std::function<bool(const StagedRows&)>& fits);

 private:
  struct Placed {
    float weight = 1;
    std::vector<StagedRows> rows;
  };

  std::map<uint64_t, std::vector<StagedRows>> staged_;  // by ticket
  uint64_t oldest_ = 0;                                 // tickets before it are given up
  int64_t places_ = 0;
  std::vector<Placed> update_;  // that is not complete
};

}  // namespace muster::ps
