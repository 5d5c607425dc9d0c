#include "muster/config/validate.h"

#include <gtest/gtest.h>

#include "muster/config/rounds.h"

namespace muster::config {
namespace {

SourceOptions source(const std::string& format, const std::string& path) {
  SourceOptions options;
  options.format = format;
  options.path = path;
  return options;
}

// A job that is fine.
Job good() {
  Job job;
  job.model.zoo = "lenet";
  job.data.train.format = "idx";
  job.data.train.images = "/i";
  job.data.train.labels = "/l";
  job.data.test = job.data.train;
  job.passes = 1;
  return job;
}

std::string said(const Job& job, const Places& places = {}) {
  const Status status = validate(job, places);
  EXPECT_FALSE(status.ok()) << "nothing was found wrong";
  return status.ok() ? "" : status.error().message();
}

TEST(Validate, AcceptsAGoodJob) {
  EXPECT_TRUE(validate(good()).ok());
  Job text = good();
  text.data.train = source("text", "/t");
  text.data.train.part = {0, 0.9};
  text.data.test = source("text", "/t");
  text.data.test.part = {0.9, 1};
  EXPECT_TRUE(validate(text).ok());
  Job mine = good();  // what is registered in C++ may use any option
  mine.data.train = source("mine", "/t");
  mine.data.train.args = Node::map({});
  EXPECT_TRUE(validate(mine).ok());
  Job clicks = good();
  clicks.data.train = source("ctr", "");
  clicks.data.train.args = Node::map({{"stream", Node::scalar("1")}});
  clicks.data.test = source("libsvm", "/t");
  clicks.data.test.args = Node::map({{"features", Node::scalar("26")}});
  EXPECT_TRUE(validate(clicks).ok());
}

TEST(Validate, NamesThePlaceOrTheNearestSectionOrTheFile) {
  Job job = good();
  job.data.train.labels = "";
  EXPECT_EQ(said(job), "data.train.labels is missing; format idx needs it");
  Places places = {{"", {"job.yaml", 0, 0}}};
  EXPECT_EQ(said(job, places), "job.yaml: data.train.labels is missing; format idx needs it");
  places["data"] = {"job.yaml", 3, 1};
  places["data.train"] = {"job.yaml", 4, 3};
  EXPECT_EQ(said(job, places), "job.yaml:4:3: data.train.labels is missing; format idx needs it");
}

TEST(Validate, OptionWithoutEffect) {
  Job job = good();
  job.optimizer.kind = "adam";
  job.optimizer.momentum = 0.9;
  EXPECT_EQ(said(job),
            "optimizer.momentum has no effect with optimizer.kind adam; it is for sgd, "
            "rmsprop, lars and muon; remove it");
  job = good();
  job.data.train.args = Node::map({});
  EXPECT_EQ(said(job),
            "data.train.args has no effect with data.train.format idx; it is for libsvm, ctr, "
            "images, lmdb, tokens, jsonl, tfrecord, webdataset, mds, parquet and arrow; remove it");
  job = good();
  job.data.train = source("csv", "/t");
  job.data.augment.flip = true;
  EXPECT_EQ(said(job),
            "data.augment.flip has no effect with data.train.format csv; it is for idx, images, "
            "lmdb, jsonl, tfrecord, webdataset, mds, parquet and arrow; remove it");
  job = good();
  job.data.loader = {.threads = 0, .ahead = 3};
  EXPECT_EQ(said(job), "data.loader.ahead has no effect with data.loader.threads 0; remove it");
  job = good();
  job.optimizer.decay_on = "matrices";
  EXPECT_EQ(said(job),
            "optimizer.decay_on has no effect without optimizer.weight_decay; remove it");
  job.optimizer.kind = "lars";
  EXPECT_TRUE(validate(job).ok());
}

TEST(Validate, Model) {
  Job job = good();
  job.model.zoo = "";
  EXPECT_EQ(said(job),
            "the job has no model; set model.zoo, model.use, model.layers or model.file");
  job = good();
  job.model.layers = Node::list({Node::scalar("relu")});
  EXPECT_EQ(said(job), "model.zoo and model.layers are both set; keep one");
  job.model.zoo = "";
  job.model.args = Node::map({});
  EXPECT_EQ(said(job), "model.args has no effect with model.layers; each layer has its own");
  job.model = ModelOptions{};
  job.model.layers = Node::list({});
  EXPECT_EQ(said(job), "model.layers is empty; list at least one layer");
  job = good();
  job.data.train = source("csv", "/t");
  job.data.train.target = "value";
  EXPECT_EQ(said(job),
            "model.loss cross_entropy needs classes, but data.train.target is value; set "
            "model.loss to mse");
}

TEST(Validate, Data) {
  Job job = good();
  job.data.train = {};
  EXPECT_EQ(said(job),
            "data.train.format is missing; set it to idx, csv, text, libsvm, ctr, jsonl, tfrecord, "
            "webdataset, mds, parquet, arrow, images, lmdb or tokens, or a format of yours");
  job = good();
  job.data.test.format = "";
  EXPECT_EQ(said(job),
            "data.test.format is missing; set it to idx, csv, text, libsvm, ctr, jsonl, tfrecord, "
            "webdataset, mds, parquet, arrow, images, lmdb or tokens, or a format of yours");
  job = good();
  job.data.test = source("csv", "");
  EXPECT_EQ(said(job), "data.test.path is missing; format csv needs it");
  job.data.test = source("libsvm", "");
  EXPECT_EQ(said(job), "data.test.path is missing; format libsvm needs it");
  job.data.test = source("ctr", "/t");
  EXPECT_EQ(said(job),
            "data.test.path has no effect with data.test.format ctr; it is for csv, text, libsvm, "
            "jsonl, tfrecord, webdataset, mds, parquet, arrow, images, lmdb and tokens; remove it");
  job.data.test = source("csv", "/t");
  job.data.test.separator = "::";
  EXPECT_EQ(said(job), "data.test.separator must be one character, not '::'");
  job = good();
  job.data.train.part = {0.9, 0.1};
  EXPECT_EQ(said(job),
            "data.train.part must be two increasing fractions like [0, 0.9], not [0.9, 0.1]");
  job.data.train.part = {0.5};
  EXPECT_EQ(said(job), "data.train.part must be two increasing fractions like [0, 0.9], not [0.5]");
}

TEST(Validate, LengthAndSize) {
  Job job = good();
  job.batch = 4;
  EXPECT_EQ(said(job),
            "batch 4 is smaller than lanes 8; each lane needs a sample: raise batch or "
            "lower lanes");
  job = good();
  job.passes = 0;
  EXPECT_EQ(said(job), "the job has no end; set passes, steps or time");
  job.time = 5;
  EXPECT_TRUE(validate(job).ok());
  job = good();
  job.name = "../x";
  EXPECT_EQ(said(job),
            "name '../x' cannot begin a directory's name; use letters, digits, '-', '_' and '.'");
  job = good();
  job.runs = "";
  EXPECT_EQ(said(job), "runs is empty; name a directory");
}

TEST(Validate, Optimizer) {
  Job job = good();
  job.optimizer.nesterov = true;
  EXPECT_EQ(said(job),
            "optimizer.nesterov needs momentum; set optimizer.momentum, for example to 0.9");
  job.optimizer.momentum = 0.9;
  EXPECT_TRUE(validate(job).ok());
  job.optimizer.dampening = 0.1;
  EXPECT_EQ(said(job), "optimizer.dampening must be 0 with optimizer.nesterov; remove one");
  job.optimizer.nesterov = false;
  EXPECT_TRUE(validate(job).ok());
  job.optimizer.momentum = 0;
  EXPECT_EQ(said(job), "optimizer.dampening has no effect without optimizer.momentum; remove it");
}

TEST(Validate, Schedule) {
  Job job = good();
  job.optimizer.schedule.kind = "step";
  EXPECT_EQ(said(job), "optimizer.schedule.every is missing; schedule step needs it");
  job.optimizer.schedule.kind = "cosine";
  EXPECT_TRUE(validate(job).ok());
  job.passes = 0;
  job.time = 60;
  EXPECT_EQ(said(job),
            "optimizer.schedule.steps is missing; schedule cosine needs it when only time "
            "ends the job");
  job.optimizer.schedule.steps = 100;
  job.optimizer.schedule.warmup = 100;
  EXPECT_EQ(said(job),
            "optimizer.schedule.warmup 100 must be less than optimizer.schedule.steps 100");
}

TEST(Validate, Sync) {
  Job job = good();
  for (const int bits : {32, 16, 8, 4, 2}) {
    job.sync.bits = bits;
    EXPECT_TRUE(validate(job).ok());
  }
  job.sync.rotation = "hadamard";
  EXPECT_TRUE(validate(job).ok());
  job.sync.reduction = "native";
  EXPECT_EQ(said(job), "sync.bits 2 needs sync.reduction exact, not native");
  job.sync = {};
  job.sync.bits = 5;
  EXPECT_EQ(said(job), "sync.bits must be 32, 16, 8, 4 or 2, not 5");
  job.sync = {};
  job.sync.rotation = "hadamard";
  EXPECT_EQ(
      said(job),
      "sync.rotation has no effect with sync.bits 32; remove it, or set sync.bits to 16, 8, 4 "
      "or 2");
}

TEST(Validate, RowsOnDiskNeedALimitOfMemory) {
  Job job = good();
  job.tables.width = 4;
  job.tables.disk = "/scratch";
  EXPECT_NE(said(job).find("set that, to 4 MiB at least"), std::string::npos);
  job.tables.memory = 1 << 20;
  EXPECT_NE(said(job).find("set that, to 4 MiB at least"), std::string::npos);
  job.tables.memory = 4 << 20;
  EXPECT_TRUE(validate(job).ok());
}

TEST(Validate, RowsThatComeAndGo) {
  Job job = good();
  job.tables.width = 8;
  job.tables.admit_after = 2;
  EXPECT_NE(said(job).find("tables.admit_after 2 needs tables.evict_after"), std::string::npos);
  job.tables.evict_after = 100;
  EXPECT_TRUE(validate(job).ok());
  job.tables.most_rows = job.tables.shards - 1;
  EXPECT_NE(said(job).find("set it to 64 or more"), std::string::npos);
  job.tables.most_rows = job.tables.shards;
  EXPECT_TRUE(validate(job).ok());
  job.tables.width = 0;
  job.sync.strategy = "server";
  EXPECT_NE(said(job).find("tables.width is missing"), std::string::npos)
      << "the model's own parameters do not come and go";
}

TEST(Validate, AsynchronousTraining) {
  Job job = good();
  job.lanes = 8;
  job.sync.strategy = "server";
  EXPECT_TRUE(validate(job).ok());
  job.tables.servers = 2;
  EXPECT_TRUE(validate(job).ok()) << "weights alone need no tables.width";
  job.sync.staleness = 3;
  EXPECT_NE(said(job).find("sync.staleness has no effect with sync.mode async"), std::string::npos);
  job.sync.mode = "ssp";
  EXPECT_TRUE(validate(job).ok());
  job.sync.staleness = 8;
  job.sync.mode = "softsync";
  job.sync.pushes = 3;
  EXPECT_EQ(said(job),
            "an update has 3 pushes, and a step 8; set sync.pushes to a divisor of lanes");
  job.sync.pushes = 2;
  job.optimizer.kind = "lamb";
  EXPECT_EQ(said(job), "sync.strategy server needs optimizer.kind sgd, adagrad or adam, not lamb");
  job.optimizer.kind = "sgd";
  job.optimizer.momentum = 0.9;
  EXPECT_NE(said(job).find("sync.strategy server has no momentum"), std::string::npos);
  job.optimizer.momentum = 0;
  job.workers.min = 9;
  EXPECT_NE(said(job).find("only 8 lanes to share"), std::string::npos);
}

TEST(Validate, ElasticAveragingThroughServers) {
  Job job = good();
  job.lanes = 8;
  job.sync.strategy = "server";
  job.sync.outer.lr = 0.5;
  EXPECT_EQ(said(job), "sync.outer.lr has no effect with sync.mode async; remove it");
  job.sync.mode = "easgd";
  EXPECT_TRUE(validate(job).ok());
  job.sync.outer.lr = -0.5;
  EXPECT_EQ(said(job),
            "sync.outer.lr must be at least 0, or -1 for that of the strategy, not -0.5");
  job.sync.outer.lr = -1;
  job.sync.period = 16;
  job.sync.fetch = 5;
  EXPECT_EQ(said(job),
            "sync.period is 16, and a task has 5 steps; set sync.period to a multiple of "
            "sync.fetch");
  job.sync.fetch = 8;
  EXPECT_TRUE(validate(job).ok());
  job.sync.late = "scale";
  EXPECT_EQ(said(job), "sync.late has no effect with sync.mode easgd; remove it");
  job.sync.late = "full";
  job.tables.width = 4;
  EXPECT_NE(said(job).find("sync.mode easgd cannot train rows of tables"), std::string::npos);
  job.tables.width = 0;
  job.optimizer.momentum = 0.9;
  EXPECT_NE(said(job).find("set optimizer.nesterov, or remove optimizer.momentum"),
            std::string::npos);
  job.optimizer.nesterov = true;
  EXPECT_TRUE(validate(job).ok());
  job.optimizer = {};
  job.optimizer.kind = "adam";
  EXPECT_EQ(said(job), "sync.mode easgd needs optimizer.kind sgd, not adam");
}

// A task of easgd has sync.fetch steps, so a round may have more of them.
TEST(Validate, ARoundHasNotTooManyTasks) {
  Job job = good();
  job.lanes = 1024;
  job.batch = 1024;
  job.sync.strategy = "server";
  job.sync.period = 2048;
  EXPECT_NE(said(job).find("are more than 1048576 tasks"), std::string::npos);
  job.sync.mode = "easgd";
  job.sync.fetch = 2;
  EXPECT_TRUE(validate(job).ok());
}

TEST(Validate, PushesOfSeveralSteps) {
  Job job = good();
  job.lanes = 8;
  job.sync.strategy = "server";
  job.sync.push_every = 5;
  EXPECT_EQ(said(job),
            "sync.period is 16, and a task has 5 steps; set sync.period to a multiple of "
            "sync.push_every");
  job.sync.push_every = 4;
  EXPECT_TRUE(validate(job).ok());
  EXPECT_EQ(steps_of_task(job.sync), 4);
  EXPECT_EQ(tasks_of(job.sync, 8, 9), 24);
  job.sync.late = "compensate";
  EXPECT_NE(said(job).find("sync.late compensate needs sync.push_every 1"), std::string::npos);
  job.sync.late = "full";
  job.tables.width = 4;
  EXPECT_NE(said(job).find("sync.push_every must be 1 in a job with rows"), std::string::npos);
  job.tables.width = 0;
  job.sync.mode = "easgd";
  for (const char* mode : {"easgd", "sync"}) {
    job.sync.mode = mode;
    EXPECT_NE(said(job).find("sync.push_every has no effect with sync.mode"), std::string::npos);
  }
  // Nor has it with a strategy that has no modes, whose default it is for.
  job.sync.mode = "async";
  job.sync.strategy = "lockstep";
  EXPECT_NE(said(job).find("sync.push_every has no effect with sync.strategy lockstep; it is for "
                           "server"),
            std::string::npos);
}

TEST(Validate, DelayCompensation) {
  Job job = good();
  job.lanes = 8;
  job.sync.strategy = "server";
  job.sync.compensation = 1;
  EXPECT_NE(said(job).find("sync.compensation has no effect with sync.late full"),
            std::string::npos);
  job.sync.late = "compensate";
  EXPECT_TRUE(validate(job).ok());
  job.sync.mode = "ssp";
  EXPECT_TRUE(validate(job).ok());
  job.sync.mode = "softsync";
  EXPECT_EQ(said(job),
            "sync.late compensate needs sync.mode async or ssp, in which each push is an update of "
            "its own, not softsync");
}

TEST(Validate, StepsOnServers) {
  const auto steps = [] {
    Job job = good();
    job.lanes = 8;
    job.batch = 2048;
    job.sync.strategy = "server";
    job.sync.mode = "sync";
    return job;
  };
  EXPECT_TRUE(validate(steps()).ok());
  EXPECT_FALSE(is_asynchronous(steps().sync));
  EXPECT_EQ(steps_per_commit(steps().sync), 1);
  EXPECT_TRUE(has_tables(steps()));
  auto job = steps();
  job.optimizer.clip.norm = 1;
  EXPECT_EQ(said(job),
            "optimizer.clip.norm is for the whole gradient of a step, and with sync.mode sync that "
            "is added up in parts, on servers; remove it, or use sync.strategy lockstep");
  job = steps();
  job.sync.fetch = 3;
  EXPECT_EQ(said(job), "sync.fetch has no effect with sync.mode sync; remove it");
  job = steps();
  job.optimizer.momentum = 0.9;
  EXPECT_EQ(said(job), "sync.strategy server has no momentum; remove it");
  job = steps();
  job.lanes = 1024;
  EXPECT_EQ(said(job), "with sync.mode sync there can be 1023 lanes at most, not 1024");
}

TEST(Validate, GroupsAndReplicas) {
  Job job = good();
  job.sync.lane_groups = 4;
  EXPECT_EQ(said(job), "sync.lane_groups has no effect with sync.bits 32; remove it");
  job.sync.bits = 4;
  EXPECT_TRUE(validate(job).ok());
  job.sync.lane_groups = 3;
  EXPECT_EQ(said(job),
            "8 lanes cannot be dealt out evenly to 3 groups; set sync.lane_groups to a divisor of "
            "lanes");
  job.sync = {};
  job.sync.strategy = "diloco";
  EXPECT_TRUE(validate(job).ok());
  job.sync.replicas = 3;
  EXPECT_EQ(said(job),
            "8 lanes cannot be dealt out evenly to 3 replicas; set sync.replicas to a divisor of "
            "lanes");
  job.sync.replicas = 2;
  job.sync.outer.lr = -0.5;
  EXPECT_EQ(said(job),
            "sync.outer.lr must be at least 0, or -1 for that of the strategy, not -0.5");
  job.sync.outer.lr = 0.5;
  job.sync.period = 1000000;
  EXPECT_NE(said(job).find("lower one of them"), std::string::npos);
  job.sync.period = 10;
  job.sync.reduction = "native";
  EXPECT_EQ(said(job), "sync.strategy diloco needs sync.reduction exact, not native");
  job.sync = {};
  job.sync.period = 3;
  EXPECT_EQ(said(job),
            "sync.period has no effect with sync.strategy lockstep; it is for average, bmuf, "
            "diloco, muloco, streaming, easgd, gossip, sparseloco, desloc, sparta, "
            "local-then-lockstep and server; remove it");
  job.sync = {};
  job.sync.rounds = 3;
  EXPECT_EQ(said(job),
            "sync.rounds has no effect with sync.strategy lockstep; it is for streaming, gossip, "
            "sparseloco, desloc, sparta, topk, threshold, onebit and powersgd; remove it");
  job.sync.strategy = "sparseloco";
  EXPECT_TRUE(validate(job).ok());
  job.sync.bits = 4;
  EXPECT_EQ(said(job), "sync.bits has no effect with sync.strategy sparseloco; remove it");
  job.sync.strategy = "gossip";
  EXPECT_EQ(said(job), "sync.bits must be 32, 16 or 8 with sync.strategy gossip, not 4");
  job.sync.bits = 8;
  job.sync.rotation = "hadamard";
  EXPECT_EQ(said(job), "sync.rotation has no effect with sync.strategy gossip; remove it");
  job.sync.rotation = "none";
  EXPECT_TRUE(validate(job).ok());
  job.sync.rounds = 100000;
  EXPECT_NE(said(job).find("1600000 steps in a commit with 8 lanes"), std::string::npos);
  job.sync = {};
  job.sync.strategy = "muloco";
  EXPECT_EQ(said(job),
            "sync.strategy muloco needs optimizer.kind muon, not sgd; with others take diloco");
  job.optimizer.kind = "muon";
  EXPECT_EQ(said(job),
            "optimizer.kind muon needs momentum; set optimizer.momentum, for example to 0.95");
  job.optimizer.momentum = 0.95;
  EXPECT_TRUE(validate(job).ok());
  job.optimizer = {};
  job.sync = {};
  job.sync.strategy = "streaming";
  EXPECT_TRUE(validate(job).ok());
  job.sync.fragments = 3;
  EXPECT_NE(said(job).find("16 steps cannot be divided into 3 equal parts"), std::string::npos);
  job.sync = {};
  job.sync.strategy = "sparta";
  EXPECT_TRUE(validate(job).ok());
  job.sync.bits = 4;
  EXPECT_EQ(said(job), "sync.bits must be 32, 16 or 8 with sync.strategy sparta, not 4");
  job.sync = {};
  job.sync.strategy = "local-then-lockstep";
  EXPECT_TRUE(validate(job).ok());
  job.sync.bits = 8;
  EXPECT_EQ(said(job), "sync.bits must be 32 with sync.strategy local-then-lockstep, not 8");
  job.sync.bits = 32;
  job.sync.merge = "radial";
  EXPECT_NE(said(job).find("it is for average, bmuf, diloco and muloco"), std::string::npos);
  job.sync.merge = "mean";
  auto endless = job;
  endless.passes = 0;
  endless.time = 60;
  EXPECT_NE(said(endless).find("how many steps the job has"), std::string::npos);
  job.sync = {};
  job.sync.local = 0.5;
  EXPECT_NE(said(job).find("it is for local-then-lockstep"), std::string::npos);
  job.sync = {};
  job.sync.strategy = "topk";
  job.sync.keep = 10;
  EXPECT_TRUE(validate(job).ok());
  job.sync.rounds = 200000;
  EXPECT_NE(said(job).find("200000 steps in a commit with 8 lanes"), std::string::npos);
  job.sync.rounds = 0;
  job.sync.bits = 4;
  EXPECT_EQ(said(job), "sync.bits has no effect with sync.strategy topk; remove it");
  job.sync.bits = 32;
  job.sync.rank = 3;
  EXPECT_EQ(said(job),
            "sync.rank has no effect with sync.strategy topk; it is for powersgd; remove it");
  job.sync.rank = 2;
  job.not_finite = "skip";
  EXPECT_NE(said(job).find("sync.strategy topk needs not_finite: stop"), std::string::npos);
}

TEST(Validate, Workers) {
  Job job = good();
  job.workers.min = 4;
  job.workers.max = 4;
  job.workers.lease = 0.8;
  EXPECT_TRUE(validate(job).ok());
  job.workers.max = 3;
  EXPECT_EQ(said(job), "workers.max 3 is below workers.min 4; raise it, or set it to 0");
  job.workers.min = 9;
  EXPECT_EQ(said(job),
            "workers.min is 9, but there are only 8 lanes to share; lower it or raise lanes");
  job.workers.min = 5;
  job.sync.strategy = "average";
  EXPECT_EQ(said(job),
            "workers.min is 5, but there are only 4 replicas to share; lower it or raise "
            "sync.replicas");
  job.sync = {};
  job.sync.bits = 4;
  job.sync.lane_groups = 2;
  EXPECT_EQ(said(job),
            "workers.min is 5, but there are only 2 groups of lanes to share; lower it or raise "
            "sync.lane_groups");
  job.sync = {};
  job.workers = {};
  job.workers.heartbeat = 1.5;
  EXPECT_EQ(said(job),
            "workers.heartbeat 1.5s is more than half of workers.lease 2s: one heartbeat that "
            "comes late would end the lease; lower it or raise the lease");
}

TEST(Validate, Evaluation) {
  Job job = good();
  job.early_stop.least = 0.1;
  EXPECT_EQ(said(job), "early_stop.least has no effect without early_stop.patience; remove it");
  job.early_stop.patience = 3;
  EXPECT_TRUE(validate(job).ok());
  job.eval.every = {};
  EXPECT_EQ(said(job), "early_stop.patience needs evaluations, but eval.every is never");
  job.data.test = {};
  EXPECT_EQ(said(job),
            "early_stop.patience has no effect without data.test; remove it or name test data");
}

TEST(Validate, DataThatIsReadByBlocks) {
  Job job = good();
  job.data.train = source("tfrecord", "s3://bucket/x-*");
  job.data.train.classes = 10;
  job.data.order = "strata";
  job.data.window = 1 << 20;
  job.data.homes = "fixed";
  job.data.cache = "/cache";
  job.data.cache_size = 1 << 20;
  EXPECT_TRUE(validate(job).ok());
  Job full = job;
  full.data.order = "full";
  EXPECT_EQ(said(full), "data.window has no effect without data.order strata; remove it");
  Job part = job;
  part.data.train.part = {0, 0.5};
  EXPECT_EQ(said(part),
            "data.train.part is not possible for data that is read by blocks; remove it");
  Job missing = job;
  missing.data.train.path = "";
  EXPECT_EQ(said(missing), "data.train.path is missing; format tfrecord needs it");
  for (const auto* path : {"https://me:secret@host/x", "s3://KEY:sec/ret@bucket/x-*"}) {
    Job secret = job;
    secret.data.train.path = path;
    EXPECT_EQ(said(secret),
              "data.train.path may not contain a user name, a password or a key; put them into "
              "~/.netrc, or into ~/.aws/credentials for S3");
  }
  Job uncached = job;
  uncached.data.cache = "";
  EXPECT_EQ(said(uncached), "data.cache_size has no effect without data.cache; remove it");
}

TEST(Validate, DamageCanBeReplacedInBlocksAndInLockstep) {
  Job job = good();
  job.data.on_damage = "replace";
  EXPECT_EQ(said(job),
            "data.on_damage replace is for data that is read by blocks, and data.train is not; "
            "remove it");
  job.data.train = source("csv", "/x.csv");
  EXPECT_EQ(said(job),
            "data.on_damage replace is for data that is read by blocks, and data.train is not; set "
            "data.train.read: blocks, or remove it");
  job.data.train.read = "blocks";
  EXPECT_TRUE(validate(job).ok());
  job.data.order = "full";
  EXPECT_TRUE(validate(job).ok());
  job.sync.bits = 8;
  EXPECT_TRUE(validate(job).ok());
  for (const char* strategy : {"diloco", "topk", "local-then-lockstep", "server", "auto"}) {
    Job other = job;
    other.sync.bits = 32;
    other.sync.strategy = strategy;
    EXPECT_EQ(said(other), fmt::format("data.on_damage replace needs sync.strategy lockstep, not "
                                       "{}: only there is a step in which damage is found computed "
                                       "again; remove it",
                                       strategy));
  }
  Job tables = job;
  tables.tables.width = 8;
  EXPECT_EQ(said(tables),
            "data.on_damage replace is not possible with tables: what lanes have told the rows in "
            "a step cannot be taken back; remove it");
  Job mine = good();  // a format of one's own may be read by blocks
  mine.data.train = source("mine", "/x");
  mine.data.on_damage = "replace";
  EXPECT_TRUE(validate(mine).ok());
}

TEST(Validate, WhereTheCopyIs) {
  Job copied = good();
  for (const char* to : {"s3://bucket", "s3://bucket/run/1", "/mnt/copies/1", "file:///mnt/x"}) {
    copied.checkpoint.to = to;
    EXPECT_TRUE(validate(copied).ok()) << to;
  }
  copied.checkpoint.to = "s3://bucket/*";
  EXPECT_EQ(said(copied), "checkpoint.to 's3://bucket/*' must not contain * or ?");
  for (const char* to : {"https://host/x", "https://host/x?X-Amz-Signature=abc"}) {
    copied.checkpoint.to = to;
    EXPECT_EQ(said(copied),
              "checkpoint.to 'https://host/x': checkpoints can be sent to s3://BUCKET/PREFIX or a "
              "directory");
  }
  for (const char* to : {"s3://KEY:sec/ret@bucket/x", "s3://KEY:secret@bucket/*"}) {
    copied.checkpoint.to = to;
    EXPECT_EQ(said(copied),
              "checkpoint.to may not contain a user name, a password or a key; put them into "
              "~/.aws/credentials");
  }
}

TEST(Validate, DataThatIsReadAsAWhole) {
  Job job = good();
  job.data.order = "strata";
  EXPECT_EQ(said(job),
            "data.order strata is for data that is read by blocks, and data.train is read as a "
            "whole; remove it");
  job.data.train = source("csv", "/x.csv");
  EXPECT_EQ(said(job),
            "data.order strata is for data that is read by blocks, and data.train is read as a "
            "whole; set data.train.read: blocks, or remove it");
  job.data.train.read = "blocks";
  EXPECT_TRUE(validate(job).ok());
  Job cached = good();
  cached.data.cache = "/cache";
  EXPECT_EQ(said(cached), "data.cache is for data that is read by blocks, and none is; remove it");
  cached.data.test = source("jsonl", "/x");
  EXPECT_TRUE(validate(cached).ok());
  Job elsewhere = good();
  elsewhere.data.train = source("text", "s3://bucket/x");
  EXPECT_EQ(said(elsewhere),
            "data.train.path is a URL, and format text is read from files of this machine");
  Job mine = good();  // a format of one's own may be read by blocks
  mine.data.train = source("mine", "s3://bucket/x");
  mine.data.order = "strata";
  EXPECT_TRUE(validate(mine).ok());
}

}  // namespace
}  // namespace muster::config
