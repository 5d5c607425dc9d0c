// The options of the section `sync`: how lanes and replicas work together. See table.cc.
#include <string>
#include <vector>

#include "muster/config/section.h"

namespace muster::config {

void add_sync(Section<SyncOptions> s) {
  s.add("strategy", &SyncOptions::strategy,
        "How lanes train together. lockstep: their gradients are added in every step. With the "
        "others, replicas of the model train by themselves for sync.period steps, then they are "
        "merged: average takes the mean of their weights, bmuf adds block momentum to it, diloco "
        "Nesterov momentum, muloco less of it, for optimizer.kind muon; streaming does what diloco "
        "does for one part of the weights after the other while they go on; with easgd they keep "
        "weights of their own and are drawn to a common "
        "centre; with gossip each is merged with one other; with sparseloco each sends the largest "
        "of its changes to all; with sparta a random part of their weights is averaged. desloc "
        "averages "
        "the optimizer's state less often than the weights. local-then-lockstep is average for "
        "most of the steps, and lockstep for the last ones. With topk, threshold, onebit and "
        "powersgd replicas have the same "
        "weights and send a small part of their gradients in every step; what is not sent is added "
        "to the next gradient. With server, all of the model is on parameter servers "
        "(docs/servers.md), and workers train asynchronously, each as fast as it can: a task, one "
        "lane of one step, changes the model as soon as it is computed; the result is not the same "
        "each time, but `muster replay` computes it again. (Or in steps: sync.mode sync.) auto: "
        "`muster train` measures the job and the links between its "
        "hosts, and takes what `muster plan` recommends.")
      .one_of({"auto", "lockstep", "average", "bmuf", "diloco", "muloco", "streaming", "easgd",
               "gossip", "sparseloco", "desloc", "sparta", "local-then-lockstep", "topk",
               "threshold", "onebit", "powersgd", "server"});
  s.add("reduction", &SyncOptions::reduction,
        "How gradients are added: exact gives the same bits in any order, native is plain floating "
        "point.")
      .one_of({"exact", "native"});
  s.add("rounding", &SyncOptions::rounding,
        "How exact rounds a lane's gradient to fixed point. stochastic keeps, on average, what is "
        "too small for a lane to round to anything but zero, which matters with hundreds of lanes.")
      .one_of({"nearest", "stochastic"});
  s.add("bits", &SyncOptions::bits,
        "How many bits a gradient, or what a replica has changed, has when it is added: 32, 16, 8, "
        "4 or 2. With fewer than 32 it is rounded stochastically and packed for the network, which "
        "is faster on slow links. Part of the result.")
      .at_least(2)
      .at_most(32);
  s.add(
       "rotation", &SyncOptions::rotation,
       "What is done to a lane's gradient before it is rounded to few bits: hadamard spreads large "
       "elements over many, so that small ones next to them keep some of their bits.")
      .one_of({"none", "hadamard"});
  s.add("lane_groups", &SyncOptions::lane_groups,
        "With lockstep and fewer than 32 bits: so many groups of lanes round their gradients, "
        "instead of each lane. Fewer groups are less traffic, memory and rounding noise; more "
        "workers than groups have nothing to do. Part of the result. 0: as many as lanes.")
      .at_least(0)
      .at_most(65536)
      .only_with("sync.strategy", {"lockstep"});
  s.add("bucket", &SyncOptions::bucket,
        "How much of the gradient is added in one piece, with sync.bits of 32; with fewer bits a "
        "piece has correspondingly more elements. With exact no effect on the result.")
      .as(Form::kBytes)
      .at_least(4096)
      .at_most(0x1p40);
  // Those with sync.outer and a choice of sync.inner_state.
  const std::vector<std::string> merging = {"average",   "bmuf",  "diloco", "muloco",
                                            "streaming", "easgd", "gossip", "sparseloco"};
  const std::vector<std::string> gradients = {"topk", "threshold", "onebit", "powersgd"};
  const auto with = [](std::vector<std::string> some, const std::vector<std::string>& more) {
    some.insert(some.end(), more.begin(), more.end());
    return some;
  };
  const auto periodic = with(merging, {"desloc", "sparta", "local-then-lockstep"});
  s.add("replicas", &SyncOptions::replicas,
        "How many replicas of the model train by themselves, or send gradients. Each has an equal "
        "part of the lanes. Part of the result; more workers than that have nothing to do.")
      .at_least(1)
      .at_most(65536)
      .only_with("sync.strategy", with(periodic, gradients));
  s.add("period", &SyncOptions::period,
        "After how many steps the replicas are merged. Longer is less traffic and, beyond some "
        "length, worse accuracy. With server: after how many steps all workers commit what they "
        "have done.")
      .in("steps")
      .at_least(1)
      .at_most(1e6)
      .only_with("sync.strategy", with(periodic, {"server"}));
  s.add("rounds", &SyncOptions::rounds,
        "How many rounds are committed together. Until then each replica keeps something of its "
        "own, and after the loss of a worker all begin again with the last commit. More rounds are "
        "less traffic, and more to compute again. With desloc the optimizer's first moments are "
        "averaged after half of them. With topk, threshold, onebit and powersgd a round is one "
        "step. Part of the result. 0: 64 with these four, 6 with desloc, else 8.")
      .at_least(0)
      .at_most(1e6)
      .only_with("sync.strategy",
                 with({"streaming", "gossip", "sparseloco", "desloc", "sparta"}, gradients));
  s.add("inner_state", &SyncOptions::inner_state,
        "What happens to the optimizer's state of the replicas when they are committed: reset "
        "begins "
        "with zeros, average takes the mean, which is as much traffic again for each of its "
        "buffers. auto: reset with optimizer.kind sgd, else average.")
      .one_of({"auto", "reset", "average"})
      .only_with("sync.strategy", with(merging, {"sparta"}));
  s.add("merge", &SyncOptions::merge,
        "How the mean of what the replicas have changed is taken. radial: for each tensor the mean "
        "direction, with the mean length, so that many replicas that disagree do not make the step "
        "shorter.")
      .one_of({"mean", "radial"})
      .only_with("sync.strategy", {"average", "bmuf", "diloco", "muloco"});
  s.add("local", &SyncOptions::local,
        "Which part of the job's steps is trained in rounds. The rest is lockstep.")
      .at_least(0)
      .at_most(1)
      .only_with("sync.strategy", {"local-then-lockstep"});
  auto outer = s.section("outer", &SyncOptions::outer,
                         "The optimizer step that merges replicas, with what they changed in place "
                         "of a gradient.");
  outer
      .add("lr", &OuterOptions::lr,
           "Its learning rate. -1: that of the strategy, which is 1 for average, bmuf and "
           "sparseloco, 0.7 for diloco, muloco, streaming and gossip, 0.9 for easgd, whose moving "
           "rate is this divided by sync.replicas, or with server by lanes.")
      .at_least(-1)
      .only_with("sync.strategy", with(merging, {"server"}));
  outer
      .add("momentum", &OuterOptions::momentum,
           "Its momentum. -1: that of the strategy, which is 0 for average, 1 - 1/replicas for "
           "bmuf, 0.9 for diloco and streaming, 0.6 for muloco, 0.5 for gossip.")
      .at_least(-1)
      .less_than(1)
      .only_with("sync.strategy", {"average", "bmuf", "diloco", "muloco", "streaming", "gossip"});
  s.add("fragments", &SyncOptions::fragments,
        "Into how many parts the weights are cut, each of which is sent while the replicas go on. "
        "Divides sync.period; the quotient is how many steps there are to send a part.")
      .at_least(2)
      .at_most(64)
      .only_with("sync.strategy", {"streaming"});
  s.add("blend", &SyncOptions::blend,
        "What a replica keeps of its own weights when a part has arrived; it takes the rest from "
        "the common ones.")
      .at_least(0)
      .at_most(1)
      .only_with("sync.strategy", {"streaming"});
  s.add("keep", &SyncOptions::keep,
        "Of each 4,096 elements of a tensor, how many a replica sends: the largest of what it has "
        "not sent yet, or with sparta some that are drawn anew for each round.")
      .at_least(1)
      .at_most(4096)
      .only_with("sync.strategy", {"sparseloco", "topk", "sparta"});
  s.add("decay", &SyncOptions::decay,
        "What is left, after each round, of what a replica has not sent yet.")
      .at_least(0)
      .at_most(1)
      .only_with("sync.strategy", {"sparseloco"});
  s.add("threshold", &SyncOptions::threshold,
        "What a replica sends of 4,096 elements of its gradient, with what it has not sent yet: "
        "those larger than this many times their root mean square, or the largest.")
      .at_least(0)
      .only_with("sync.strategy", {"threshold"});
  s.add("rank", &SyncOptions::rank,
        "How many columns the two narrow matrices have that powersgd sends for each matrix of the "
        "gradient.")
      .at_least(1)
      .at_most(64)
      .only_with("sync.strategy", {"powersgd"});
  s.add("mode", &SyncOptions::mode,
        "Of server. async: each push changes the model at once. ssp: the same, but nobody takes a "
        "task that is more than sync.staleness ahead of the oldest one that is not done. softsync: "
        "the model changes after every sync.pushes of them. easgd: each lane trains weights of its "
        "own; after every sync.fetch steps they are drawn to a common center, and it to them. "
        "sync: the model changes after each step, by the gradients of all its lanes; the same bits "
        "with any number of workers and servers, and the optimizer's state is on servers alone.")
      .one_of({"async", "ssp", "softsync", "easgd", "sync"})
      .only_with("sync.strategy", {"server"});
  s.add("staleness", &SyncOptions::staleness,
        "How many tasks the fastest worker may be ahead. 0: one task at a time.")
      .at_least(0)
      .at_most(1e6)
      .only_with("sync.mode", {"ssp"});
  s.add("pushes", &SyncOptions::pushes, "How many pushes make one update, with their mean.")
      .at_least(1)
      .at_most(65536)
      .only_with("sync.mode", {"softsync"});
  s.add(
       "late", &SyncOptions::late,
       "How a push counts that was computed from old weights: full, or scale, which divides it by "
       "how many updates there were since; or compensate, which adds what the gradient has changed "
       "by since, estimated from its square (DC-ASGD).")
      .one_of({"full", "scale", "compensate"})
      .only_with("sync.strategy", {"server"});
  s.add("compensation", &SyncOptions::compensation,
        "How much of the squared gradient is taken for its derivative.")
      .at_least(0)
      .at_most(1e6)
      .only_with("sync.late", {"compensate"});
  s.add("fetch", &SyncOptions::fetch,
        "After how many tasks a worker reads the model's parameters anew. More are less traffic, "
        "and older weights. Rows of tables are read for each task. With easgd: how many steps a "
        "task has.")
      .at_least(1)
      .at_most(1e6)
      .only_with("sync.strategy", {"server"});
  s.add("push_every", &SyncOptions::push_every,
        "How many steps of its lane a task has. The sum of their gradients is pushed; with sgd a "
        "worker changes its own copy of the weights after each of them meanwhile. More are less "
        "traffic, and later gradients.")
      .at_least(1)
      .at_most(1e6)
      .in("steps")
      .only_with("sync.mode", {"async", "ssp", "softsync"});
}

}  // namespace muster::config
