// The periodic strategies as rows of one table.
//
// With a periodic strategy a job has R replicas of the model. A replica is logical, like a lane:
// who computes it has no effect on the result. A round is H steps (sync.period), in which each
// replica trains by itself, on its share of each batch, with the job's optimizer ("inner"). Then
// the replicas are merged: with w the weights at the beginning of the round and w_r those of
// replica r at its end,
//
//   D = 1/R * sum of (w - w_r)        the mean of what the replicas changed
//
// is taken for a gradient, and an outer optimizer makes one step with it:
//
//   m = momentum * m + D
//   w = w - lr * m                    nesterov: w = w - lr * (D + momentum * m)
//
// The next round begins with these weights in all replicas, except with easgd. The rows:
//
//   average   lr 1, momentum 0: the mean of the weights. McDonald, Hall, Mann 2010; local SGD,
//             Stich, arXiv 1805.09767
//   bmuf      lr 1, momentum 1 - 1/R: blockwise model update filtering. Chen, Huo, ICASSP 2016
//   diloco    lr 0.7, momentum 0.9, nesterov. Douillard et al., arXiv 2311.08105
//   easgd     elastic averaging: each replica keeps weights of its own, and is drawn to the common
//             ones and these to it. With a = lr / R, lr 0.9:
//                 d_r = a * (w_r - w);  w_r = w_r - d_r;  w = w + sum of d_r
//             Zhang, Choromanska, LeCun, arXiv 1412.6651
//
// So that a lost worker takes nothing with it, the weights of easgd's replicas are part of the
// common state: every worker has them all, and what each replica has changed is sent to all, R
// times as much as for the others.
//
// Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "muster/config/job.h"

namespace muster::sync {

// The outer optimizer.
struct Recipe {
  double lr = 1;
  double momentum = 0;
  bool nesterov = false;
  bool elastic = false;  // easgd
  bool operator==(const Recipe&) const = default;
};

// Whether the strategy has rounds: all but lockstep.
bool is_periodic(std::string_view strategy);
// Of the periodic strategy that the job names, with the job's own sync.outer where it is set.
Recipe recipe_of(const config::SyncOptions& sync);

// What is dealt out to workers: with a periodic strategy replicas, with lockstep groups of lanes,
// of which one that has all bits has a single lane.
int64_t units_of(const config::Job& job);
int lanes_per_unit(const config::Job& job);
// "replicas", "lanes", "groups of lanes"
std::string_view unit_name(const config::Job& job);
// The lanes of these units, in their order. Each unit has an equal part of all lanes.
std::vector<int> lanes_of(const config::Job& job, std::span<const int> units);

// Whether the inner optimizer's state is averaged at the end of a round; else it begins each round
// with zeros. sync.inner_state says so, or "auto": momentum of sgd is begun anew, which costs
// nothing on the network and, as far as we have measured, nothing in accuracy; the moments of all
// others are averaged, because without them the first steps of a round are too large.
bool averages_inner_state(const config::Job& job);

}  // namespace muster::sync
