// The list of options. Adding one: a field with its default in job.h, a line here, and, if it only
// makes sense together with others, a rule in validate.cc. Then run the tests with
// MUSTER_UPDATE_DOCS=1 to regenerate the reference page and the schema.
#include "muster/config/table.h"

namespace muster::config {
namespace {

// A struct of Job under its key: add() takes pointers to its members.
template <typename S>
class Section {
 public:
  Section(Table& table, std::string key, std::string doc, Access<S> access)
      : table_(table), key_(std::move(key)), access_(std::move(access)) {
    table_.sections.push_back({key_, std::move(doc)});
  }

  template <typename T>
  Option& add(const std::string& name, T S::* member, std::string doc) {
    Option& option = table_.options.emplace_back();
    option.key = key_.empty() ? name : key_ + "." + name;
    option.field =
        Access<T>([access = access_, member](Job& job) -> T& { return access(job).*member; });
    option.doc = std::move(doc);
    return option;
  }

  template <typename T>
  Section<T> section(const std::string& name, T S::* member, std::string doc) const {
    return Section<T>(table_, key_.empty() ? name : key_ + "." + name, std::move(doc),
                      [access = access_, member](Job& job) -> T& { return access(job).*member; });
  }

  std::string key(const std::string& name) const { return key_ + "." + name; }

 private:
  Table& table_;
  std::string key_;
  Access<S> access_;
};

void add_model(Section<ModelOptions> s) {
  s.add("zoo", &ModelOptions::zoo,
        "A model that comes with Muster. Exactly one of zoo, use and layers is set.")
      .one_of({"gpt", "lenet", "mlp", "resnet"})
      .like("lenet");
  s.add("use", &ModelOptions::use, "A model registered in C++, by its name.").like("my_model");
  s.add("layers", &ModelOptions::layers, "The model as a list of layers.")
      .as(Form::kList)
      .like("[flatten, { linear: { out: 10 } }]");
  s.add("args", &ModelOptions::args,
        "Arguments of the model named by zoo or use; what they are, the model says.")
      .as(Form::kMap)
      .like("{ width: 64 }");
  s.add("loss", &ModelOptions::loss, "What is minimised.")
      .one_of({"cross_entropy", "mse"})
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

void add_source(Section<SourceOptions> s) {
  const std::string format = s.key("format");
  s.add("format", &SourceOptions::format, "How the data is stored. Empty: there is no such data.")
      .one_of({"idx", "csv", "text"})
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
  s.add("path", &SourceOptions::path, "The file.")
      .as(Form::kPath)
      .only_with(format, {"csv", "text"})
      .like("table.csv");
  s.add("label", &SourceOptions::label,
        "The column of the label, by name or by number from 0. Empty: the last one.")
      .only_with(format, {"csv"})
      .like("species");
  s.add("header", &SourceOptions::header, "Whether the first line holds the columns' names.")
      .only_with(format, {"csv"});
  s.add("separator", &SourceOptions::separator, "The character between two values.")
      .only_with(format, {"csv"})
      .like(";");
  s.add("target", &SourceOptions::target,
        "Whether the label is a class or a value to be approximated.")
      .one_of({"class", "value"})
      .only_with(format, {"csv"});
  s.add("unit", &SourceOptions::unit, "What a token is.")
      .one_of({"characters", "bytes"})
      .only_with(format, {"text"});
  s.add("context", &SourceOptions::context, "The length of a sample.")
      .at_least(1)
      .in("tokens")
      .only_with(format, {"text"});
  s.add("part", &SourceOptions::part,
        "Which part of the file is used: from and to, as fractions of it.")
      .at_least(0)
      .at_most(1)
      .like("[0, 0.9]");
  s.add("classes", &SourceOptions::classes,
        "How many classes there are. 0: as many as the labels say.")
      .at_least(0)
      .only_with(format, {"idx", "csv"});
  s.add("mean", &SourceOptions::mean, "Subtracted from each input.")
      .only_with(format, {"idx", "csv"});
  s.add("deviation", &SourceOptions::deviation, "What each input is then divided by.")
      .more_than(0)
      .only_with(format, {"idx", "csv"});
  s.add("limit", &SourceOptions::limit, "Use only so many samples, the first ones. 0: all.")
      .at_least(0)
      .in("samples");
  s.add("args", &SourceOptions::args, "Arguments of a format registered in C++.")
      .as(Form::kMap)
      .only_with(format, {})
      .like("{ fold: 3 }");
}

void add_data(const Section<DataOptions>& s) {
  add_source(s.section("train", &DataOptions::train, "The data to learn from."));
  add_source(s.section("test", &DataOptions::test,
                       "The data to evaluate on. Without it nothing is evaluated."));
  auto augment = s.section("augment", &DataOptions::augment,
                           "Random changes of the training images, drawn anew in each pass.");
  augment.add("shift", &AugmentOptions::shift, "Move the image by up to so much, each way.")
      .at_least(0)
      .in("pixels")
      .only_with("data.train.format", {"idx"});
  augment.add("flip", &AugmentOptions::flip, "Mirror every other image, left to right.")
      .only_with("data.train.format", {"idx"});
  augment
      .add("crop", &AugmentOptions::crop,
           "Put a border of so much around the image and cut out its old size at random.")
      .at_least(0)
      .in("pixels")
      .only_with("data.train.format", {"idx"});
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
        "to the next gradient. auto: `muster train` measures the job and the links between its "
        "hosts, and takes what `muster plan` recommends.")
      .one_of({"auto", "lockstep", "average", "bmuf", "diloco", "muloco", "streaming", "easgd",
               "gossip", "sparseloco", "desloc", "sparta", "local-then-lockstep", "topk",
               "threshold", "onebit", "powersgd"});
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
        "length, worse accuracy.")
      .in("steps")
      .at_least(1)
      .at_most(1e6)
      .only_with("sync.strategy", periodic);
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
           "rate is "
           "this divided "
           "by sync.replicas.")
      .at_least(-1)
      .only_with("sync.strategy", merging);
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
