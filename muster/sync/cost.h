// What a strategy costs: an estimate, before anything is trained, of what each host sends and how
// long it waits for the network. `muster plan` prints it; docs/strategies.md compares it with
// measurements.
//
// The model. All hosts have the same link, which sends and receives at `rate` at the same time and
// needs `delay` in one direction. What is sent takes kFraming times its own size on the wire. An
// allreduce of n bytes among W hosts has each send 2 (W - 1) / W n bytes in two phases, with a
// delay each, and takes longer than its bytes the more hosts there are, as phases wait for each
// other. In lockstep the exchange runs while the lanes compute; in rounds it does not. Integers of
// few bits are sent as Rice codes where that is faster.
//
// Pure.
#pragma once

#include <cstdint>

#include "muster/config/job.h"

namespace muster::sync {

struct Network {
  double rate = 125e6;  // bytes per second
  double delay = 0;     // seconds, one way
};

// Of links on which an allreduce was seen to send so many bytes per second (comm/measure_links.h):
// without headers, and with what its phases wait for each other.
Network network_of(double measured_rate, double delay, int hosts);

struct ModelSize {
  double parameters = 0;
  int states = 0;         // buffers of the optimizer, each as large as the weights
  int first_moments = 0;  // of these
  double sides = 0;       // rows and columns of all matrices, added up
  double vectors = 0;     // parameters that are in no matrix
};

struct Cost {
  double bytes = 0;         // that a host sends, on average for a step
  double step_seconds = 0;  // of a step, on average
  double commit_bytes = 0;  // of `bytes`: so that what replicas keep is not lost with a worker
  double memory = 0;        // bytes of a worker for weights, states and sums; not for activations
  int64_t at_stake = 1;     // steps that are computed again, at most, after the loss of a worker
};

// On `hosts` hosts with a worker each. `compute`: seconds of a step of such a worker if it is
// alone, with its share of the batch. The job's sync options are those of the strategy in question.
Cost cost_of(const config::Job& job, const ModelSize& model, int hosts, const Network& network,
             double compute);

}  // namespace muster::sync
