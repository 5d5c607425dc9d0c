// A job, typed: everything that one training run is.
//
// This is the meeting point of the modules: the option table (table.h) fills it from the job file,
// the environment and -s, and each later module takes its own part of it. Fields here have no
// comments of their own: the table describes each option once, for `muster config explain`, the
// schema and docs/job-file.md alike. Defaults live here and nowhere else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "muster/config/node.h"

namespace muster::config {

// "500 steps", "1 pass", "90s". Zero: never.
struct Every {
  enum class Unit { kSteps, kPasses, kSeconds };
  double value = 0;
  Unit unit = Unit::kSteps;
  bool operator==(const Every&) const = default;
};

struct ModelOptions {
  std::string zoo;  // exactly one of zoo, use, layers and file
  std::string use;  // a model registered in C++
  Node layers;
  std::string file;                    // a .pt2 of torch.export
  Node args;                           // for zoo, use and file
  std::string loss = "cross_entropy";  // cross_entropy, mse, click, file, or a registered one
  std::vector<std::string> freeze;
  std::string init_from;
  bool operator==(const ModelOptions&) const = default;
};

struct SourceOptions {
  // One of those in source.h, or a registered one; empty: there is no such data
  std::string format;
  std::string images;                 // idx
  std::string labels;                 // idx
  std::string path;                   // all others but ctr; may be an address (source.h)
  std::string read = "auto";          // auto, whole, blocks (source.h)
  std::string label;                  // csv, records: name or number of the column or field
  bool header = true;                 // csv
  std::string separator = ",";        // csv
  std::string target = "class";       // csv, records: class or value
  std::string unit = "characters";    // text: characters or bytes
  int64_t context = 64;               // text, tokens: length of a sample
  std::vector<double> part = {0, 1};  // which part of the file, as fractions
  int64_t classes = 0;                // 0: from the labels
  // Inputs become (x - mean) / deviation; one for all, or one for each channel or column.
  std::vector<double> mean = {0};
  std::vector<double> deviation = {1};
  int64_t limit = 0;  // 0: all samples
  Node args;          // what the format says
  bool operator==(const SourceOptions&) const = default;
};

struct AugmentOptions {
  int64_t shift = 0;  // pixels, each way
  bool flip = false;  // left to right
  int64_t crop = 0;   // padding around the image before a crop of the old size
  bool operator==(const AugmentOptions&) const = default;
};

struct LoaderOptions {
  int64_t threads = 1;  // 0: the lanes read for themselves
  int64_t ahead = 2;    // steps
  bool operator==(const LoaderOptions&) const = default;
};

struct DataOptions {
  SourceOptions train;
  SourceOptions test;
  std::string order = "auto";          // auto, full, strata
  int64_t window = int64_t{64} << 20;  // strata: bytes
  std::string homes = "moving";        // strata: moving, fixed
  int64_t block = int64_t{4} << 20;    // bytes
  std::string on_damage = "stop";      // stop, replace
  AugmentOptions augment;
  // No effect on the result.
  LoaderOptions loader;
  int64_t memory = int64_t{1} << 30;  // bytes
  int64_t requests = 8;
  std::string cache;       // a directory; empty: none
  int64_t cache_size = 0;  // bytes; 0: no limit
  std::string index;       // a directory; empty: in the run directory
  bool operator==(const DataOptions&) const = default;
};

struct ScheduleOptions {
  std::string kind = "constant";  // constant, step, linear, cosine
  int64_t warmup = 0;             // steps, linear from 0 to lr
  int64_t every = 0;              // step: steps between drops
  double factor = 0.1;            // step: what a drop multiplies by
  double final = 0;               // linear, cosine: lr at the end, as a fraction of lr
  int64_t steps = 0;              // linear, cosine: length; 0: the job's
  bool operator==(const ScheduleOptions&) const = default;
};

struct ClipOptions {
  double value = 0;  // 0: off
  double norm = 0;   // 0: off
  bool operator==(const ClipOptions&) const = default;
};

struct OptimizerOptions {
  std::string kind = "sgd";  // sgd, adam, adamw, adagrad, rmsprop, lars, lamb, muon
  double lr = 0.01;
  double momentum = 0;  // sgd, rmsprop, lars, muon
  bool nesterov = false;
  double dampening = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double alpha = 0.99;  // rmsprop
  double eps = 1e-8;
  double weight_decay = 0;
  std::string decay_on = "all";       // all, or matrices: only tensors of two or more dimensions
  double trust = 0.001;               // lars
  std::vector<std::string> adamw_on;  // muon: names of matrices that are updated by adamw
  ScheduleOptions schedule;
  ClipOptions clip;
  bool operator==(const OptimizerOptions&) const = default;
};

// Of periodic strategies: the optimizer that merges replicas. -1: as the strategy has it.
struct OuterOptions {
  double lr = -1;
  double momentum = -1;
  bool operator==(const OuterOptions&) const = default;
};

struct SyncOptions {
  // auto, lockstep, average, bmuf, diloco, muloco, streaming, easgd, gossip, sparseloco, desloc,
  // sparta, local-then-lockstep, topk, threshold, onebit, powersgd, server
  std::string strategy = "lockstep";
  std::string reduction = "exact";   // exact, native
  std::string rounding = "nearest";  // nearest, stochastic
  int64_t bits = 32;                 // 32, 16, 8, 4, 2
  std::string rotation = "none";     // none, hadamard
  int64_t lane_groups = 0;           // 0: as many as lanes
  int64_t bucket = 1 << 20;          // bytes
  // Of periodic strategies (sync/recipe.h).
  int64_t replicas = 4;
  int64_t period = 16;               // steps
  int64_t rounds = 0;                // that are committed together; 0: rounds_of (rounds.h)
  std::string inner_state = "auto";  // auto, reset, average
  OuterOptions outer;
  std::string merge = "mean";  // mean, radial
  double local = 0.9;          // of local-then-lockstep: part of the steps
  // Of streaming.
  int64_t fragments = 4;
  double blend = 0.5;
  int64_t keep = 64;     // of sparseloco, topk and sparta: of 4,096 elements
  double decay = 0.95;   // of sparseloco
  double threshold = 3;  // of threshold
  int64_t rank = 2;      // of powersgd (sync/low_rank.h)
  // Of server (train/step/server_rounds.h, server_steps.h).
  std::string mode = "async";  // async, ssp, softsync, easgd, sync
  int64_t staleness = 8;       // of ssp: tasks
  int64_t pushes = 4;          // of softsync, that make one update
  std::string late = "full";   // full, scale, compensate
  double compensation = 0.04;  // of late: compensate
  int64_t fetch = 1;           // tasks
  int64_t push_every = 1;      // steps of a task; with easgd, that is fetch
  bool operator==(const SyncOptions&) const = default;
};

// Rows that are looked up by a key, apart from the model's own parameters (muster/ps).
struct TablesOptions {
  int64_t width = 0;                      // floats of a row; 0: the job has no table
  std::string optimizer = "row_adagrad";  // sgd, adagrad, row_adagrad, adam, ftrl
  double lr = 0.05;
  double eps = 1e-8;
  double beta1 = 0.9;  // adam
  double beta2 = 0.999;
  double beta = 1;  // ftrl
  double l1 = 0;
  double l2 = 0;
  double scale = 0.05;    // of the first weights
  int64_t staleness = 0;  // steps
  // Which keys have rows (ps/table.h).
  int64_t admit_after = 1;       // updates
  double admit_probability = 1;  // of each update
  int64_t evict_after = 0;       // steps without an update; 0: never
  int64_t most_rows = 0;         // of all shards; 0: any number
  // No effect on the result.
  int64_t servers = 0;  // 0: in the worker's own memory
  int64_t copies = 2;
  int64_t shards = 64;
  int64_t memory = 0;  // bytes, of a server; 0: any number
  std::string disk;    // where rows go that do not fit; empty: nowhere
  bool operator==(const TablesOptions&) const = default;
};

struct CheckpointOptions {
  Every every = {1, Every::Unit::kPasses};
  int64_t keep = 3;
  bool best = true;
  std::string to;  // where a copy is sent: a URL or a directory; empty: nowhere
  bool operator==(const CheckpointOptions&) const = default;
};

struct EvalOptions {
  Every every = {1, Every::Unit::kPasses};
  int64_t batch = 256;
  int64_t samples = 0;  // 0: the whole test set
  bool operator==(const EvalOptions&) const = default;
};

struct EarlyStopOptions {
  int64_t patience = 0;  // evaluations without progress; 0: off
  double least = 0;      // what counts as progress
  bool operator==(const EarlyStopOptions&) const = default;
};

struct TrackOptions {
  Every every = {10, Every::Unit::kSteps};
  bool tensorboard = true;
  bool links = false;
  bool operator==(const TrackOptions&) const = default;
};

struct AuditOptions {
  int64_t every = 200;  // steps; 0: off
  int64_t lanes = 500;  // 0: off
  bool operator==(const AuditOptions&) const = default;
};

struct WorkersOptions {
  int64_t min = 1;
  int64_t max = 0;   // 0: as many as there are lanes
  double lease = 2;  // seconds, like all times here
  double heartbeat = 0.4;
  double hang_timeout = 60;  // 0: never
  int64_t restarts = 20;     // of one slot within 10 minutes
  double gather = 5;
  bool move_lanes = true;
  bool operator==(const WorkersOptions&) const = default;
};

struct Job {
  int64_t format = 1;  // the key is `muster`
  std::string name = "job";
  uint64_t seed = 1;
  ModelOptions model;
  DataOptions data;
  int64_t batch = 128;
  int64_t lanes = 8;
  double passes = 0;  // at least one of passes, steps, time; the first reached ends the job
  int64_t steps = 0;
  double time = 0;  // seconds
  OptimizerOptions optimizer;
  SyncOptions sync;
  TablesOptions tables;
  WorkersOptions workers;
  AuditOptions audit;
  CheckpointOptions checkpoint;
  EvalOptions eval;
  EarlyStopOptions early_stop;
  TrackOptions track;
  std::string best_by;  // the metric that decides what is best: "loss", "accuracy"; empty: the
                        // model's first
  std::string precision = "fp32";  // fp32, bf16
  std::string device = "cpu";
  std::string not_finite = "stop";  // stop, skip
  std::string numerics = "exact";   // exact, tolerant
  int64_t threads = 0;              // 0: one per core. No effect on bits
  int64_t threads_per_lane = 1;     // bits depend on it
  std::string runs = "runs";        // where run directories go
  bool operator==(const Job&) const = default;
};

}  // namespace muster::config
