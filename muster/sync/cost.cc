#include "muster/sync/cost.h"

#include <algorithm>
#include <cmath>

#include "muster/sync/recipe.h"

namespace muster::sync {
namespace {

// Ethernet, IP and TCP headers, and acknowledgements. Measured: docs/strategies.md.
constexpr double kFraming = 1.06;
// What Rice codes (exact/packed_ints.h) save of each value of few bits, and seconds of a core for
// each, as far as they do not pass while others are sent.
constexpr double kRiceSaves = 1.0;
constexpr double kRiceSeconds = 10e-9;
// The part of a step in which gradients are exchanged while others are computed.
constexpr double kOverlap = 0.5;
// Of a value that sparseloco sends: two bits, and its place.
constexpr double kSparseBits = 9.5;
// Seconds of a core for a value of few bits: rounding, packing, adding; and rotating it twice.
constexpr double kFewSeconds = 10e-9;
constexpr double kRotationSeconds = 10e-9;
// For each element: selecting, rounding, and reading what others have sent.
constexpr double kSparseSeconds = 6e-9;
constexpr double kBlock = 4096;
// Bytes that topk, threshold and onebit need for a block besides what they need for each value.
constexpr double kCodedBlock = 10;

// How much longer an exchange takes than its bytes: phases of an allreduce wait for each other.
// Measured with 2 and 4 hosts.
double waiting(double hosts) { return std::min(1.3, 0.9 + 0.085 * hosts); }

struct Exchange {
  double bytes = 0;  // that a host sends
  double phases = 0;
  double computing = 0;  // seconds, of codes
  Exchange& operator+=(const Exchange& other) {
    bytes += other.bytes;
    phases += other.phases;
    computing += other.computing;
    return *this;
  }
  Exchange operator*(double times) const {
    return {bytes * times, phases * times, computing * times};
  }
};

struct Hosts {
  double count;
  bool rotated = false;  // values of few bits
  bool rice = false;     // they are sent as Rice codes
  // Seconds of a core for such a value.
  double coding() const {
    return kFewSeconds + (rotated ? kRotationSeconds : 0) + (rice ? kRiceSeconds : 0);
  }
  // The part that goes to others.
  double others() const { return (count - 1) / count; }
  double sending(const Exchange& exchange, const Network& network) const {
    return exchange.bytes * kFraming * waiting(count) / network.rate +
           exchange.phases * network.delay;
  }
};

// Mean bits of an integer on the wire, which is packed with as many bits as the largest of 512
// neighbours needs, or as a Rice code. `added`: how many values of `bits` bits are in it.
double packed_bits(double bits, double added, bool rice) {
  if (bits >= 32) return 32;
  return bits + 0.5 * std::log2(std::max(added, 1.0)) - 0.2 - (rice ? kRiceSaves : 0);
}

// Of `elements` values of `bits` bits: all `units` are added up, of which a host has units / hosts.
Exchange sum(double elements, double bits, double units, const Hosts& hosts, double bucket) {
  const double up = packed_bits(bits, units / hosts.count, hosts.rice);
  const double down = packed_bits(bits, units, hosts.rice);
  const double buckets = std::ceil(elements * bits / 8 / bucket);
  Exchange exchange = {.bytes = elements / 8 * hosts.others() * (up + down), .phases = 2 * buckets};
  if (bits < 32) {  // the exponents of the blocks come first
    exchange += {.bytes = 2 * hosts.others() * elements / kBlock,
                 .phases = 2 * buckets,
                 .computing = hosts.coding() * elements};
  }
  return exchange;
}

// Each of `replicas` gets to all hosts, a bucket of all of them at a time.
Exchange copies(double elements, double bits, double replicas, const Hosts& hosts, double bucket) {
  return {.bytes = elements * bits / 8 * hosts.others() * replicas,
          .phases = 4 * std::ceil(elements * bits / 8 / bucket),
          .computing = bits < 32 ? hosts.coding() * elements * replicas : 0};
}

// Bytes of what a replica sends in a step.
double coded_gradient(const config::SyncOptions& sync, const ModelSize& model) {
  if (sync.strategy == "powersgd") {  // as if that paid for every matrix
    return 4 * (static_cast<double>(sync.rank) * model.sides + model.vectors);
  }
  const double blocks = kCodedBlock * model.parameters / kBlock;
  if (sync.strategy == "onebit") return blocks + model.parameters / 8;
  // That of a threshold depends on the gradients: a guess, as if they had a Laplace distribution.
  const bool topk = sync.strategy == "topk";
  const double part =
      topk ? static_cast<double>(sync.keep) / kBlock : std::exp(-std::sqrt(2.0) * sync.threshold);
  const double bits = (topk ? 2 : 1) + 1.5 - std::log2(part);
  return blocks + model.parameters * part * bits / 8;
}

// At the end of a step or of a round, without what is committed with it.
Exchange exchange_of(const config::Job& job, const ModelSize& model, const Hosts& hosts) {
  const double elements = model.parameters;
  const auto& sync = job.sync;
  const auto bucket = static_cast<double>(sync.bucket);
  const auto replicas = static_cast<double>(sync.replicas);
  const auto bits = static_cast<double>(sync.bits);
  if (sync.strategy == "sparseloco") {
    const double sent = elements * static_cast<double>(sync.keep) / kBlock * kSparseBits / 8;
    return {.bytes = sent * replicas * hosts.others(),
            .phases = 2,
            .computing = kSparseSeconds * elements};
  }
  if (sends_gradients(sync.strategy)) {
    const double exchanges = sync.strategy == "powersgd" ? 2 : 1;
    return {.bytes = coded_gradient(sync, model) * replicas * hosts.others(),
            .phases = 2 * exchanges};
  }
  if (sync.strategy == "gossip") {
    // The other one is on another host, mostly.
    const double away = replicas > 1 ? (replicas - replicas / hosts.count) / (replicas - 1) : 0;
    return {.bytes = 4 * elements * away * replicas / hosts.count, .phases = 4};
  }
  if (sync.strategy == "easgd") return copies(elements, bits, replicas, hosts, bucket);
  if (sync.strategy == "sparta") {
    const double sent = elements * static_cast<double>(sync.keep) / kBlock;
    return sum(sent, bits, replicas, hosts, bucket);
  }
  const double parts = sync.strategy == "streaming" ? static_cast<double>(sync.fragments) : 1;
  return sum(elements / parts, bits, static_cast<double>(units_of(job)), hosts, bucket);
}

// What is sent with a commit besides.
Exchange commit_of(const config::Job& job, const ModelSize& model, Hosts hosts) {
  hosts.rotated = false;  // states, and what replicas keep
  const auto& sync = job.sync;
  const auto bucket = static_cast<double>(sync.bucket);
  // Losses and samples of each lane and step, and an exponent for each block.
  const double message =
      32 * static_cast<double>(job.lanes * steps_per_commit(sync)) + model.parameters / kBlock;
  Exchange all = {.bytes = 2 * hosts.others() * message, .phases = 2};
  if (is_periodic(sync.strategy) && averages_inner_state(job)) {
    const auto bits = static_cast<double>(state_bits(sync));
    // desloc: the first moments once more, half way.
    const bool twice = sync.strategy == "desloc" && rounds_of(sync) > 1;
    const int times = model.states + (twice ? model.first_moments : 0);
    all += sum(model.parameters, bits, static_cast<double>(sync.replicas), hosts, bucket) * times;
  }
  const auto bits = static_cast<double>(kept_bits(sync));
  all += copies(model.parameters, bits, static_cast<double>(sync.replicas), hosts, bucket) *
         static_cast<double>(kept_by_replicas(sync.strategy).size());
  return all;
}

double memory_of(const config::Job& job, const ModelSize& model, const Hosts& hosts) {
  const auto units = static_cast<double>(units_of(job));
  const double own = std::ceil(units / hosts.count);
  // Of an update: muon's directions; not what it needs for the largest matrix.
  const double update = job.optimizer.kind == "muon" ? 1 : 0;
  if (!is_periodic(job.sync.strategy)) {
    const double sums = job.sync.bits < 32 ? 1 + own : 1;
    return 4 * model.parameters * (1 + model.states + sums + update);
  }
  const auto recipe = recipe_of(job.sync);
  const auto kept = static_cast<double>(kept_by_replicas(job.sync.strategy).size());
  if (sends_gradients(job.sync.strategy)) {
    const double common = static_cast<double>(kept_by_all(job.sync.strategy).size());
    // Both arenas; the gradient in fixed point, as floats, and of all replicas; sums and errors.
    return 4 * model.parameters *
           (2 * (1 + model.states + common) + 3 + 2 * kept * units + kept * own + update);
  }
  const bool averages = averages_inner_state(job);
  double buffers = 2 * (1 + model.states) - (averages ? 0 : model.states);  // both arenas
  buffers += update;
  buffers += (recipe.elastic ? 1 : kept) * units;  // in the state
  if (kept == 0 && recipe.momentum != 0) buffers += 1;
  buffers += 2 * static_cast<double>(kept_by_all(job.sync.strategy).size());
  buffers += 1 + (kept > 0 ? kept * units : recipe.elastic ? units : 1);  // sums
  if (averages) buffers += model.states;
  buffers += own * (1 + kept + (averages || kept > 0 ? model.states : 0));
  // Weights between rounds; first moments, and what a replica has changed of one.
  if (job.sync.strategy == "desloc") {
    buffers += 1 + (model.first_moments > 0 ? model.first_moments + 1 : 0);
  }
  return 4 * model.parameters * buffers;
}

// On average for a step.
struct Traffic {
  double bytes = 0;
  double commit_bytes = 0;
  double waits = 0;  // seconds
};

Traffic traffic_of(const config::Job& job, const ModelSize& model, const Hosts& hosts,
                   const Network& network, double compute) {
  const bool periodic = is_periodic(job.sync.strategy);
  const auto steps = static_cast<double>(periodic ? steps_per_commit(job.sync) : 1);
  const double rounds = periodic ? static_cast<double>(rounds_of(job.sync)) : 1;
  const Exchange exchange = exchange_of(job, model, hosts) * rounds;
  const Exchange commit = commit_of(job, model, hosts);
  const double sending = hosts.sending(exchange, network);
  // The last one is waited for. Streaming: of a commit.
  const bool streaming = job.sync.strategy == "streaming";
  const double hidden = streaming  ? compute * steps * (rounds - 1) / rounds
                        : periodic ? 0
                                   : kOverlap * compute;
  // In lockstep it is the last bucket, which is complete when the computation ends.
  const double last = streaming  ? sending / rounds
                      : periodic ? 0
                                 : sending / std::max(1.0, exchange.phases / 2);
  const double waits = std::max(sending - hidden, last);
  return {
      .bytes = (exchange.bytes + commit.bytes) * kFraming / steps,
      .commit_bytes = commit.bytes * kFraming / steps,
      .waits =
          (waits + exchange.computing + hosts.sending(commit, network) + commit.computing) / steps};
}

// Of rounds, then lockstep.
Cost cost_of_both(const config::Job& job, const ModelSize& model, int hosts, const Network& network,
                  double compute) {
  auto rounds = job;
  rounds.sync.strategy = "average";
  rounds.sync.inner_state = "average";
  auto lockstep = job;
  lockstep.sync = lockstep_of(job.sync);
  Cost cost = cost_of(rounds, model, hosts, network, compute);
  const Cost rest = cost_of(lockstep, model, hosts, network, compute);
  const double local = job.sync.local;
  cost.bytes = local * cost.bytes + (1 - local) * rest.bytes;
  cost.step_seconds = local * cost.step_seconds + (1 - local) * rest.step_seconds;
  return cost;
}

}  // namespace

Network network_of(double measured_rate, double delay, int hosts) {
  return {.rate = measured_rate * kFraming * waiting(hosts), .delay = delay};
}

Cost cost_of(const config::Job& job, const ModelSize& model, int hosts, const Network& network,
             double compute) {
  if (job.sync.strategy == "local-then-lockstep") {
    return cost_of_both(job, model, hosts, network, compute);
  }
  const bool periodic = is_periodic(job.sync.strategy);
  Cost cost;
  cost.at_stake = periodic ? steps_per_commit(job.sync) : 1;
  cost.memory = memory_of(job, model, {static_cast<double>(hosts)});
  cost.step_seconds = compute;
  if (hosts < 2) return cost;
  // Workers choose by trying, too (comm/packing_choice.h).
  const auto traffic = [&](bool rice) {
    const Hosts all = {static_cast<double>(hosts), job.sync.rotation == "hadamard", rice};
    return traffic_of(job, model, all, network, compute);
  };
  const Traffic plain = traffic(false);
  const Traffic rice = traffic(true);
  const Traffic& best = rice.waits < plain.waits ? rice : plain;
  cost.bytes = best.bytes;
  if (!kept_by_replicas(job.sync.strategy).empty()) cost.commit_bytes = best.commit_bytes;
  cost.step_seconds += best.waits;
  return cost;
}

}  // namespace muster::sync
