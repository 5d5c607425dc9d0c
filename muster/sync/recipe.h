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
// The next round begins with these weights in all replicas, except with easgd, gossip, streaming
// and sparta. The rows:
//
//   average   lr 1, momentum 0: the mean of the weights. McDonald, Hall, Mann 2010; local SGD,
//             Stich, arXiv 1805.09767
//   bmuf      lr 1, momentum 1 - 1/R: blockwise model update filtering. Chen, Huo, ICASSP 2016
//   diloco    lr 0.7, momentum 0.9, nesterov. Douillard et al., arXiv 2311.08105
//   muloco    lr 0.7, momentum 0.6, nesterov, with muon as inner optimizer. Therien et al., arXiv
//             2505.23725
//   easgd     elastic averaging: each replica keeps weights of its own, and is drawn to the common
//             ones and these to it. With a = lr / R, lr 0.9:
//                 d_r = a * (w_r - w);  w_r = w_r - d_r;  w = w + sum of d_r
//             Zhang, Choromanska, LeCun, arXiv 1412.6651
//   sparseloco each replica sends the largest of what it has not sent yet (e_r), in few bits
//             (sparse_code.h), and an element changes by the mean of those who sent it:
//                 e_r = decay * e_r + (w - w_r);  s_r = largest of e_r;  e_r = e_r - s_r
//                 w = w - lr * mean of s_r
//             lr 1, decay 0.95. Sarfi et al., arXiv 2508.15706. There the mean is over all
//             replicas; their code has it over those who sent, which is far better.
//   gossip    each replica has weights w_r of its own. After a round, in which they became t_r, it
//             is merged with one other replica, drawn anew for each round:
//                 m_r = momentum * m_r + lr * (mean of the two t - w_r);  w_r = w_r + m_r
//             which is the paper's formula with its two rates equal, as its code has them.
//             lr 0.7, momentum 0.5. With an odd number one replica stays alone. The weights of the
//             job are the mean of all w_r. NoLoCo, Kolehmainen et al., arXiv 2506.10911
//   streaming diloco for one part of the weights after the other (sync.fragments), each of which is
//             sent while the replicas go on; so they keep weights of their own:
//                 w_r = blend * w_r + (1 - blend) * w
//             for the part that has arrived. lr, momentum as diloco, blend 0.5. Douillard et al.,
//             arXiv 2501.18512
//
//   desloc    average for the weights. The inner optimizer's state is averaged less often: the
//             first moments twice in a commit (sync.rounds, 6), the second ones once. Iacob et al.,
//             arXiv 2505.22549
//   sparta    each replica has weights of its own. After a round a random part of them
//             (sync.keep of each 4,096, another one each time) becomes the mean of all replicas'.
//             The weights of the job are the mean of all w_r. As in Exo's gym; there after each
//             step
//   local-then-lockstep
//             average for a part of the job's steps (sync.local, 0.9), then lockstep, which takes
//             over the mean of the optimizer's state
//
// and, with rounds of one step, in which no replica has weights of its own:
//
//   topk, threshold, onebit, powersgd
//             each sends a part of its gradient; what it has not sent, its error, is added to its
//             next gradient (block_code.h, low_rank.h). The job's optimizer takes the mean of what
//             all have sent. Gradients are clipped after that
//
// With sync.merge: radial, average, bmuf, diloco and muloco use another mean: D of a tensor has the
// mean direction of what the replicas changed, and their mean length (train/step/radial_mean.h).
// Decoupled DiLoCo, arXiv 2604.21428.
//
// So that a lost worker takes nothing with it, what replicas keep from one round to the next is
// part of the state of the job, of which every worker has all: the weights of easgd's replicas, and
// what kept_by_replicas() names. With easgd each round is committed, so what each replica has
// changed is sent to all, R times as much as for the others; where commits_several_rounds(),
// several are committed together (sync.rounds).
//
// Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/config/job.h"
#include "muster/config/rounds.h"

namespace muster::sync {

// The outer optimizer.
struct Recipe {
  double lr = 1;
  double momentum = 0;
  bool nesterov = false;
  bool elastic = false;  // easgd
  bool operator==(const Recipe&) const = default;
};
// The outer step, with D in place of a gradient. `momentum` is empty if the recipe has none.
void outer_step(const Recipe& recipe, std::span<const float> mean, std::span<float> momentum,
                std::span<float> weights);

// Whether the strategy has replicas: all but lockstep and server.
bool is_periodic(std::string_view strategy);
// Whether several steps are committed together: all but lockstep, and server with sync.mode sync,
// which counts as one that has rounds of one step.
bool has_rounds(std::string_view strategy);
using config::commits_several_rounds;
using config::is_asynchronous;
using config::is_on_servers;
using config::period_of;
using config::rounds_of;
using config::sends_gradients;
using config::steps_per_commit;
// Lockstep with all bits, for the same job.
config::SyncOptions lockstep_of(const config::SyncOptions& sync);
// How many of the job's `total` steps have rounds: all, but for local-then-lockstep.
int64_t periodic_steps(const config::SyncOptions& sync, int64_t total);
// What each replica keeps from one round to the next, until it is committed: names of buffers.
std::vector<std::string> kept_by_replicas(std::string_view strategy);
// What all workers have in common besides weights and the inner optimizer's state.
std::vector<std::string> kept_by_all(std::string_view strategy);
// How many bits what a replica keeps has in a sum; and the inner optimizer's state, if it is
// averaged.
int64_t kept_bits(const config::SyncOptions& sync);
int64_t state_bits(const config::SyncOptions& sync);
// Of the periodic strategy that the job names, or of server with sync.mode: easgd, with the job's
// own sync.outer where it is set.
Recipe recipe_of(const config::SyncOptions& sync);

// What is dealt out to workers: with a periodic strategy replicas, with lockstep groups of lanes,
// of which one that has all bits has a single lane.
int64_t units_of(const config::Job& job);
int lanes_per_unit(const config::Job& job);
// "replicas", "lanes", "groups of lanes"
std::string_view unit_name(const config::Job& job);
// The lanes of these units, in their order. Each unit has an equal part of all lanes.
std::vector<int> lanes_of(const config::Job& job, std::span<const int> units);

// Two replicas that gossip in a round; one that has no other is a pair with itself.
struct Pair {
  int first = 0;
  int second = 0;
  bool operator==(const Pair&) const = default;
};
// All pairs of a round of the job.
std::vector<Pair> pairs_of(uint64_t seed, int64_t round, int replicas);

// Whether the inner optimizer's state is averaged at the end of what is committed together; else it
// begins with zeros. sync.inner_state says so, or "auto": momentum of sgd is begun anew, which
// costs nothing on the network and, as far as we have measured, nothing in accuracy; the moments of
// all others are averaged, because without them the first steps of a round are too large.
bool averages_inner_state(const config::Job& job);

}  // namespace muster::sync
