// The list of options (those of `sync` are in table_sync.cc). Adding one: a field with its default
// in job.h, a line here, and, if it only makes sense together with others, a rule in validate.cc.
// Then run the tests with MUSTER_UPDATE_DOCS=1 to regenerate the reference page and the schema.
#include "muster/config/table.h"

#include "muster/config/section.h"
#include "muster/config/source.h"

namespace muster::config {
namespace {

void add_model(Section<ModelOptions> s) {
  s.add("zoo", &ModelOptions::zoo,
        "A model that comes with Muster. Exactly one of zoo, use, layers and file is "
        "set.")
      .one_of({"deepfm", "dlrm", "gpt", "lenet", "mlp", "resnet", "two-tower", "wide-deep"})
      .like("lenet");
  s.add("use", &ModelOptions::use, "A model registered in C++, by its name.").like("my_model");
  s.add("layers", &ModelOptions::layers, "The model as a list of layers.")
      .as(Form::kList)
      .like("[flatten, { linear: { out: 10 } }]");
  s.add("file", &ModelOptions::file,
        "A model that was exported from PyTorch, with its initial weights: a .pt2 file that "
        "torch.export.save wrote (docs/pytorch.md).")
      .as(Form::kPath)
      .like("net.pt2");
  s.add("args", &ModelOptions::args,
        "Arguments of the model named by zoo or use; what they are, the model says. With file: "
        "evaluation_mode.")
      .as(Form::kMap)
      .like("{ width: 64 }");
  s.add(
       "loss", &ModelOptions::loss,
       "What is minimised. file: what the model of model.file returns, which then takes inputs and "
       "targets.")
      .one_of({"click", "cross_entropy", "file", "mse"})
      .or_registered();
  s.add("freeze", &ModelOptions::freeze,
        "Parameters that are not trained, by name; * stands for any part of a name.")
      .like("[conv1.*]");
  s.add("init_from", &ModelOptions::init_from,
        "Start from the weights of another run: its name, or a path to its directory or to a "
        "safetensors file.")
      .as(Form::kPathOrRun)
      .like("lenet-mnist-20260301-123005");
}

// Formats whose records have fields with names.
std::vector<std::string> records_and(std::vector<std::string> others) {
  others.insert(others.end(), {"jsonl", "tfrecord", "webdataset", "mds", "parquet", "arrow"});
  return others;
}

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const auto& format : source_formats()) names.emplace_back(format.name);
  return names;
}

void add_source(Section<SourceOptions> s) {
  const std::string format = s.key("format");
  s.add("format", &SourceOptions::format,
        "How the data is stored (docs/data.md lists the formats); ctr is not stored but computed, "
        "synthetic clicks. Empty: there is no such data.")
      .one_of(format_names())
      .or_registered()
      .like("idx");
  s.add("images", &SourceOptions::images, "The file of images, as it is or gzipped.")
      .as(Form::kPath)
      .only_with(format, {"idx"})
      .like("train-images-idx3-ubyte.gz");
  s.add("labels", &SourceOptions::labels, "The file of labels, as it is or gzipped.")
      .as(Form::kPath)
      .only_with(format, {"idx"})
      .like("train-labels-idx1-ubyte.gz");
  s.add("path", &SourceOptions::path,
        "The file; for lmdb and images, the directory. Data that is read by blocks may be several "
        "files (* and ? within a name, ** across directories), and may be elsewhere: http://, "
        "https://, s3://, webhdfs://, swebhdfs://.")
      .as(Form::kAddress)
      .only_with(format, formats_with_path())
      .like("s3://bucket/train-*.tfrecord");
  s.add("read", &SourceOptions::read,
        "Whether csv and libsvm are read as a whole, into memory, or by blocks, while they are "
        "used. auto: by blocks if path is a URL or has wildcards. Other formats can be read in one "
        "way only.")
      .one_of({"auto", "whole", "blocks"})
      .only_with(format, {"csv", "libsvm"});
  s.add("label", &SourceOptions::label,
        "The column of the label, by name or by number from 0, or the field. Empty: the last "
        "column; the field label (of webdataset, cls).")
      .only_with(format, records_and({"csv"}))
      .like("species");
  s.add("header", &SourceOptions::header, "Whether the first line holds the columns' names.")
      .only_with(format, {"csv"});
  s.add("separator", &SourceOptions::separator, "The character between two values.")
      .only_with(format, {"csv"})
      .like(";");
  s.add("target", &SourceOptions::target,
        "Whether the label is a class or a value to be approximated.")
      .one_of({"class", "value"})
      .only_with(format, records_and({"csv"}));
  s.add("unit", &SourceOptions::unit, "What a token is.")
      .one_of({"characters", "bytes"})
      .only_with(format, {"text"});
  s.add("context", &SourceOptions::context,
        "The length of a sample. Of formats of records, where `args` has `tokens`.")
      .at_least(1)
      .in("tokens")
      .only_with(format, records_and({"text", "tokens"}));
  s.add("part", &SourceOptions::part,
        "Which part of the file is used: from and to, as fractions of it. Not for data that is "
        "read by blocks.")
      .at_least(0)
      .at_most(1)
      .like("[0, 0.9]");
  s.add("classes", &SourceOptions::classes,
        "How many classes there are. 0: as many as the labels say, or directories of images. It "
        "must be set for data that is read by blocks, and for tokens, where it is the size of the "
        "vocabulary.")
      .at_least(0)
      .only_with(format, records_and({"idx", "csv", "images", "lmdb", "tokens"}));
  s.add("mean", &SourceOptions::mean,
        "Subtracted from each input; pixels are from 0 to 1. A list has one for each channel of "
        "an image, or for each column of numbers.")
      .as(Form::kOneOrMany)
      .like("[0.485, 0.456, 0.406]")
      .only_with(format, records_and({"idx", "csv", "images", "lmdb"}));
  s.add("deviation", &SourceOptions::deviation,
        "What each input is then divided by. A list as with mean.")
      .as(Form::kOneOrMany)
      .more_than(0)
      .like("[0.229, 0.224, 0.225]")
      .only_with(format, records_and({"idx", "csv", "images", "lmdb"}));
  s.add("limit", &SourceOptions::limit,
        "Use only so many samples, the first ones. 0: all. Not for data that is read by blocks.")
      .at_least(0)
      .in("samples");
  s.add("args", &SourceOptions::args,
        "Arguments of the format (muster/data/README.md lists them), or of one registered in C++.")
      .as(Form::kMap)
      .only_with(format, records_and({"libsvm", "ctr", "images", "lmdb", "tokens"}))
      .like("{ features: 26 }");
}

// Part of the result, with the contents of the index.
void add_order(Section<DataOptions> s) {
  s.add("order", &DataOptions::order,
        "The order of the training samples in a pass. full: every sample may come at any place. "
        "strata: each lane reads a few blocks at a time and mixes their samples, so that each "
        "block is read once in a pass. auto: strata for data that is read by blocks, else full. "
        "Part of the result.")
      .one_of({"auto", "full", "strata"});
  s.add("window", &DataOptions::window,
        "With order strata: how many bytes of blocks a lane mixes samples from. More mixes better "
        "and needs more memory. Part of the result.")
      .as(Form::kBytes)
      .at_least(4096)
      .at_most(0x1p40);
  s.add("homes", &DataOptions::homes,
        "With order strata: whether a lane reads another part of the data in each pass (moving), "
        "or always the same (fixed), so that the cache of its worker serves it. Part of the "
        "result.")
      .one_of({"moving", "fixed"});
  s.add("block", &DataOptions::block,
        "How large blocks are when data is cut into them; formats may have longer ones. Part of "
        "the result.")
      .as(Form::kBytes)
      .at_least(4096)
      .at_most(0x1p32);
  s.add("on_damage", &DataOptions::on_damage,
        "What happens when a block of data.train is damaged: its bytes do not have the hash of the "
        "index, or cannot be decoded. stop: the job ends with an error that names it. replace: its "
        "samples are replaced by those of another block, by all workers from the same step on, and "
        "in resumed runs too; for data that is read by blocks, with sync.strategy lockstep. Part "
        "of the result if something is damaged.")
      .one_of({"stop", "replace"});
}

// For data that is read by blocks.
void add_streaming(Section<DataOptions> s) {
  s.add("memory", &DataOptions::memory,
        "How many bytes of blocks a worker holds in memory, of training and of test data each. "
        "What the next steps need is held even if it is more. No effect on the result.")
      .as(Form::kBytes)
      .at_least(4096)
      .at_most(0x1p50);
  s.add("requests", &DataOptions::requests,
        "How many blocks a worker fetches at a time. No effect on the result.")
      .at_least(1)
      .at_most(1024);
  s.add("cache", &DataOptions::cache,
        "A directory of this machine for blocks that were fetched, for later passes and runs. It "
        "may be shared by workers and jobs, and be deleted at any time. Empty: none. No effect on "
        "the result.")
      .as(Form::kPath)
      .like("/var/tmp/muster-cache");
  s.add("cache_size", &DataOptions::cache_size,
        "How large the cache may become. 0: until the disk is full. No effect on the result.")
      .as(Form::kBytes)
      .at_least(0)
      .at_most(0x1p60);
  s.add("index", &DataOptions::index,
        "A directory for indexes: which bytes of which file hold which samples. Those that "
        "`muster data index` made are used, others are made when a job starts. Empty: in the run "
        "directory.")
      .as(Form::kPath)
      .like("indexes");
}

void add_data(const Section<DataOptions>& s) {
  add_source(s.section("train", &DataOptions::train, "The data to learn from."));
  add_source(s.section("test", &DataOptions::test,
                       "The data to evaluate on. Without it nothing is evaluated."));
  add_order(s);
  const auto images = records_and({"idx", "images", "lmdb"});
  auto augment = s.section("augment", &DataOptions::augment,
                           "Random changes of the training images, drawn anew in each pass.");
  augment.add("shift", &AugmentOptions::shift, "Move the image by up to so much, each way.")
      .at_least(0)
      .in("pixels")
      .only_with("data.train.format", images);
  augment.add("flip", &AugmentOptions::flip, "Mirror every other image, left to right.")
      .only_with("data.train.format", images);
  augment
      .add("crop", &AugmentOptions::crop,
           "Put a border of so much around the image and cut out its old size at random.")
      .at_least(0)
      .in("pixels")
      .only_with("data.train.format", images);
  auto loader = s.section("loader", &DataOptions::loader,
                          "How batches are prepared. No effect on the result.");
  loader
      .add("threads", &LoaderOptions::threads,
           "Threads that prepare batches. 0: each lane prepares its own.")
      .at_least(0)
      .at_most(1024);
  loader.add("ahead", &LoaderOptions::ahead, "How far the threads work ahead.")
      .at_least(1)
      .at_most(1024)
      .in("steps");
  add_streaming(s);
}

void add_schedule(Section<ScheduleOptions> s) {
  const std::string kind = s.key("kind");
  s.add("kind", &ScheduleOptions::kind, "How the learning rate changes after the warm-up.")
      .one_of({"constant", "step", "linear", "cosine"});
  s.add("warmup", &ScheduleOptions::warmup,
        "Over so many steps the learning rate first rises from 0 to optimizer.lr.")
      .at_least(0)
      .in("steps");
  s.add("every", &ScheduleOptions::every, "How often the learning rate drops.")
      .at_least(0)
      .in("steps")
      .only_with(kind, {"step"})
      .like("1000");
  s.add("factor", &ScheduleOptions::factor, "What a drop multiplies the learning rate by.")
      .more_than(0)
      .only_with(kind, {"step"});
  s.add("final", &ScheduleOptions::final,
        "The learning rate at the end, as a fraction of optimizer.lr.")
      .at_least(0)
      .only_with(kind, {"linear", "cosine"})
      .like("0.1");
  s.add("steps", &ScheduleOptions::steps, "When the end is reached. 0: at the end of the job.")
      .at_least(0)
      .in("steps")
      .only_with(kind, {"linear", "cosine"});
}

void add_optimizer(Section<OptimizerOptions> s) {
  const std::string kind = s.key("kind");
  s.add("kind", &OptimizerOptions::kind, "How gradients become updates.")
      .one_of({"sgd", "adam", "adamw", "adagrad", "rmsprop", "lars", "lamb", "muon"});
  s.add("lr", &OptimizerOptions::lr, "The learning rate.").at_least(0);
  s.add("momentum", &OptimizerOptions::momentum, "How much of the last update goes into this one.")
      .at_least(0)
      .less_than(1)
      .only_with(kind, {"sgd", "rmsprop", "lars", "muon"})
      .like("0.9");
  s.add("nesterov", &OptimizerOptions::nesterov,
        "Take the gradient where the momentum leads (Nesterov).")
      .only_with(kind, {"sgd", "muon"});
  s.add("dampening", &OptimizerOptions::dampening,
        "How much less of the gradient goes into the momentum.")
      .at_least(0)
      .less_than(1)
      .only_with(kind, {"sgd"});
  s.add("beta1", &OptimizerOptions::beta1, "Decay of the mean of gradients.")
      .at_least(0)
      .less_than(1)
      .only_with(kind, {"adam", "adamw", "lamb", "muon"});
  s.add("beta2", &OptimizerOptions::beta2, "Decay of the mean of squared gradients.")
      .at_least(0)
      .less_than(1)
      .only_with(kind, {"adam", "adamw", "lamb", "muon"});
  s.add("alpha", &OptimizerOptions::alpha, "Decay of the mean of squared gradients.")
      .at_least(0)
      .less_than(1)
      .only_with(kind, {"rmsprop"});
  s.add("eps", &OptimizerOptions::eps, "Added to a divisor so that it is never 0.")
      .at_least(0)
      .only_with(kind, {"adam", "adamw", "adagrad", "rmsprop", "lamb", "muon"});
  s.add("weight_decay", &OptimizerOptions::weight_decay,
        "How strongly weights are pulled towards 0: as part of the gradient, with adamw, lamb and "
        "muon apart from it.")
      .at_least(0)
      .like("0.0005");
  s.add("decay_on", &OptimizerOptions::decay_on,
        "Which weights decay: all, or only those of matrices and kernels (two or more dimensions), "
        "which leaves out biases and norms. lars and lamb adapt the rate of just these.")
      .one_of({"all", "matrices"});
  s.add("trust", &OptimizerOptions::trust, "The trust coefficient.")
      .more_than(0)
      .only_with(kind, {"lars"});
  s.add("adamw_on", &OptimizerOptions::adamw_on,
        "Matrices that adamw updates, by name; * stands for any part of a name. Muon is for the "
        "hidden layers: vectors and embeddings are always updated by adamw, and the last layer "
        "often is.")
      .only_with(kind, {"muon"})
      .like("[head.*]");
  add_schedule(s.section("schedule", &OptimizerOptions::schedule, "The learning rate over time."));
  auto clip = s.section("clip", &OptimizerOptions::clip, "Limits on the gradient.");
  clip.add("value", &ClipOptions::value, "The most that each element may be. 0: no limit.")
      .at_least(0);
  clip.add("norm", &ClipOptions::norm,
           "The most that the norm of the whole gradient may be. 0: no limit.")
      .at_least(0)
      .like("1");
}

void add_workers(Section<WorkersOptions> s) {
  s.add("min", &WorkersOptions::min, "With fewer the job waits, and keeps its state.")
      .at_least(1)
      .at_most(65536);
  s.add("max", &WorkersOptions::max,
        "More than that are kept as spares. 0: as many as there are lanes.")
      .at_least(0)
      .at_most(65536);
  s.add("lease", &WorkersOptions::lease,
        "A worker from which no heartbeat arrived for this long is removed: its machine or its "
        "link is down.")
      .as(Form::kDuration)
      .at_least(0.01)
      .at_most(86400);
  s.add("heartbeat", &WorkersOptions::heartbeat,
        "How often a worker shows that it is there. At most half of the lease.")
      .as(Form::kDuration)
      .at_least(0.001)
      .at_most(86400);
  s.add(
       "hang_timeout", &WorkersOptions::hang_timeout,
       "A worker whose heartbeats arrive, but whose own work makes no progress for this long while "
       "others wait for it, is removed and killed. 0: never.")
      .as(Form::kDuration)
      .at_most(86400);
  s.add("restarts", &WorkersOptions::restarts,
        "How often a worker that ended may be started again within 10 minutes. 0: never.")
      .at_least(0)
      .at_most(1000000);
  s.add("gather", &WorkersOptions::gather,
        "How long the first step waits until all workers that were started are there.")
      .as(Form::kDuration)
      .at_most(86400);
  s.add("move_lanes", &WorkersOptions::move_lanes,
        "Whether lanes move from slow workers to fast ones. No effect on the result.");
}

void add_audit(Section<AuditOptions> s) {
  s.add("every", &AuditOptions::every,
        "In how many steps all of the state is compared, a part in each step. 0: never.")
      .at_least(0)
      .at_most(1000000);
  s.add("lanes", &AuditOptions::lanes,
        "Of how many lanes one is computed by a second worker, to compare the gradients. 0: none.")
      .at_least(0)
      .at_most(1000000);
}

void add_around_training(const Section<Job>& job) {
  auto checkpoint = job.section("checkpoint", &Job::checkpoint, "What is saved while training.");
  checkpoint.add("every", &CheckpointOptions::every, "How often.").like("500 steps");
  checkpoint.add("keep", &CheckpointOptions::keep, "How many are kept, the newest ones.")
      .at_least(1);
  checkpoint.add("best", &CheckpointOptions::best, "Also keep the best one, as best_by says.");
  checkpoint
      .add("to", &CheckpointOptions::to,
           "Also send each checkpoint there, and what a resume needs besides: s3://bucket/prefix, "
           "or a directory. A place for this run alone; `muster resume` of that address continues "
           "the run on another machine. Empty: nowhere. No effect on the result.")
      .as(Form::kAddress)
      .like("s3://bucket/lenet-1");
  auto eval = job.section("eval", &Job::eval, "Evaluation on data.test while training.");
  eval.add("every", &EvalOptions::every, "How often; always at the end too.").like("500 steps");
  eval.add("batch", &EvalOptions::batch, "Samples at a time.").at_least(1);
  eval.add("samples", &EvalOptions::samples,
           "How many samples, the first ones. 0: all of data.test.")
      .at_least(0);
  auto early = job.section("early_stop", &Job::early_stop, "Ending when nothing gets better.");
  early
      .add("patience", &EarlyStopOptions::patience,
           "End after so many evaluations without progress in best_by. 0: never.")
      .at_least(0)
      .in("evaluations");
  early.add("least", &EarlyStopOptions::least, "How much better counts as progress.").at_least(0);
  auto track = job.section("track", &Job::track, "What is recorded in the run directory.");
  track.add("every", &TrackOptions::every, "How often loss and speed are recorded.")
      .like("10 steps");
  track.add("tensorboard", &TrackOptions::tensorboard, "Also write TensorBoard event files.");
  track.add("links", &TrackOptions::links,
            "Measure the links between the workers before the first step, which takes about a "
            "second, and write their rate and delay to the metrics. `muster plan --hosts` does "
            "that.");
}

Table make_table() {
  Table table;
  Section<Job> job(table, "", "", [](Job& j) -> Job& { return j; });
  job.add("muster", &Job::format, "The version of this format.").at_least(1).at_most(1);
  job.add("name", &Job::name, "What the run directory's name starts with.").like("lenet-mnist");
  job.add("seed", &Job::seed,
          "All random numbers come from it: first weights, order of samples, dropout.");
  add_model(job.section("model", &Job::model, "What is trained."));
  add_data(job.section("data", &Job::data, "What it is trained and evaluated on."));
  job.add("batch", &Job::batch, "Samples in each step, all lanes together.")
      .at_least(1)
      .at_most(0x1p30);
  job.add("lanes", &Job::lanes,
          "Into how many slices each batch is cut. Part of the result: the bits depend on it, not "
          "on how many threads or machines compute the lanes.")
      .at_least(1)
      .at_most(65536);
  job.add("passes", &Job::passes,
          "How often to go through the training data. Of passes, steps and time the first reached "
          "ends the job; one must be set.")
      .at_least(0)
      .like("3");
  job.add("steps", &Job::steps, "How many updates to make. 0: no limit.").at_least(0).like("2000");
  job.add("time", &Job::time, "How long to train. 0: no limit.").as(Form::kDuration).like("30m");
  add_optimizer(job.section("optimizer", &Job::optimizer, "How weights are updated."));
  add_sync(job.section("sync", &Job::sync, "How lanes work together."));
  add_tables(job.section("tables", &Job::tables,
                         "Rows that are looked up by an id, apart from the model's parameters."));
  add_workers(job.section("workers", &Job::workers,
                          "Who computes, where several do. No effect on the result."));
  add_audit(job.section("audit", &Job::audit,
                        "Comparing workers, to find one whose memory or processor is faulty. No "
                        "effect on the result."));
  add_around_training(job);
  job.add("best_by", &Job::best_by,
          "The metric that says which weights are best: loss, accuracy. Empty: the model's first.")
      .like("accuracy");
  job.add("precision", &Job::precision,
          "The arithmetic of the model: bf16 is faster where the machine has it. Weights and sums "
          "stay fp32.")
      .one_of({"fp32", "bf16"});
  job.add("device", &Job::device, "What computes.").one_of({"cpu"});
  job.add("not_finite", &Job::not_finite,
          "What to do when a loss or gradient is not finite: stop, or skip the step.")
      .one_of({"stop", "skip"});
  job.add("numerics", &Job::numerics,
          "Whether workers, and the machine that resumes a run, must round like the first worker. "
          "tolerant accepts others with a warning, and gives up the promise of equal bits.")
      .one_of({"exact", "tolerant"});
  job.add("threads", &Job::threads,
          "Threads that compute lanes. 0: one for each core. No effect on the result.")
      .at_least(0)
      .at_most(4096);
  job.add(
         "threads_per_lane", &Job::threads_per_lane,
         "How many of the threads work together on each lane, inside its operations. Part of the "
         "result. More than 1 helps where there are fewer lanes than cores and the model is large, "
         "on a machine that does nothing else.")
      .at_least(1)
      .at_most(256);
  job.add("runs", &Job::runs, "Where run directories are made; relative to the current directory.");
  return table;
}

}  // namespace

const Table& option_table() {
  static const Table table = make_table();
  return table;
}

}  // namespace muster::config
