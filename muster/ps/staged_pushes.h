// Gradients of asynchronous training that a shard has, and that have no place in the order yet
// (task_order.h); and making updates of those that have.
//
// An update is made of `pushes` of them, in their order: the mean of gradient times weight. The sum
// is plain floating point, so its bits follow from the order, which is recorded.
//
// Delay compensation (DC-ASGD: Zheng et al., ICML 2017, arXiv 1609.08326). A gradient g was
// computed from weights that were read some updates ago. At the weights as they are now it would be
// about g + H (now - read); the diagonal of g g^T, times a factor, is taken for the Hessian H:
//
//   g + compensation * g * g * (now - read)
//
// So such a push has what was read, too. Only if an update is made of one push.
//
// Equal calls in equal order give equal contents. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
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
  std::vector<float> read;       // the weights that they were computed from; or empty
};

// Makes g of each element what stands above.
void compensate(float compensation, std::span<const float> now, std::span<const float> read,
                std::span<float> gradients);

class StagedPushes {
 public:
  // Before the ticket gets its place. What belongs to one that is given up has no effect.
  void stage(uint64_t ticket, StagedRows rows);

  // How many have a place.
  int64_t places() const { return places_; }
  // The next place is that of this ticket. True: that completes an update.
  bool place(uint64_t ticket, float weight, float compensation, int64_t pushes);
  // The update, of one table; false: it has none of its rows. `lr`: of the last push that has.
  bool read_update(uint32_t table, std::vector<uint64_t>& keys, std::vector<float>& gradients,
                   double& lr) const;
  // What its gradients were computed from, for these keys, which are all that the table has in the
  // update; of a key that it has twice, the first. Returns the compensation; 0: there is none.
  float read_weights(uint32_t table, std::span<const uint64_t> keys,
                     std::vector<float>& read) const;
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
    float compensation = 0;
    std::vector<StagedRows> rows;
  };

  std::map<uint64_t, std::vector<StagedRows>> staged_;  // by ticket
  uint64_t oldest_ = 0;                                 // tickets before it are given up
  int64_t places_ = 0;
  std::vector<Placed> update_;  // that is not complete
};

}  // namespace muster::ps
