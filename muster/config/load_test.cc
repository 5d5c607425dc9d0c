#include "muster/config/load.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kLenet = R"(muster: 1
name: lenet-mnist
seed: 7
model: { zoo: lenet }
data:
  train: { format: idx, images: train.gz, labels: ../labels.gz }
  test: { format: idx, images: /abs/test.gz, labels: t10k.gz }
batch: 128
lanes: 8
passes: 3
optimizer: { kind: sgd, lr: 0.05, momentum: 0.9, schedule: { kind: cosine, warmup: 100 } }
checkpoint: { every: 500 steps, keep: 3 }
)";

Sources lenet() {
  Sources sources;
  sources.file_text = kLenet;
  sources.file_name = "job.yaml";
  sources.base_dir = "/jobs/mnist";
  sources.current_dir = "/home/me";
  return sources;
}

Job load(const Sources& sources) {
  auto loaded = load_job(sources);
  EXPECT_TRUE(loaded.ok()) << loaded.error().message();
  return loaded.ok() ? loaded->job : Job();
}

std::string said(const Sources& sources) {
  const auto loaded = load_job(sources);
  EXPECT_FALSE(loaded.ok());
  return loaded.ok() ? "" : loaded.error().message();
}

// What is said of the LeNet job with one more line at its end.
std::string said_with(const std::string& line) {
  Sources sources = lenet();
  sources.file_text += line + "\n";
  return said(sources);
}

std::string said_with_set(const std::string& set) {
  Sources sources = lenet();
  sources.sets = {set};
  return said(sources);
}

TEST(LoadJob, ReadsTheExample) {
  const Job job = load(lenet());
  EXPECT_EQ(job.name, "lenet-mnist");
  EXPECT_EQ(job.seed, 7U);
  EXPECT_EQ(job.model.zoo, "lenet");
  EXPECT_EQ(job.passes, 3);
  EXPECT_EQ(job.optimizer.lr, 0.05);
  EXPECT_EQ(job.optimizer.schedule.kind, "cosine");
  EXPECT_EQ(job.optimizer.schedule.warmup, 100);
  EXPECT_EQ(job.checkpoint.every, (Every{500, Every::Unit::kSteps}));
  EXPECT_EQ(job.track.every, Job().track.every);
}

TEST(LoadJob, LaterSourcesWin) {
  Sources sources = lenet();
  sources.environment = {{"MUSTER_OPTIMIZER_LR", "0.1"}, {"MUSTER_LANES", "4"}, {"HOME", "/x"}};
  sources.sets = {"optimizer.lr=0.2", "batch=64", "batch=32"};
  const Job job = load(sources);
  EXPECT_EQ(job.optimizer.lr, 0.2);
  EXPECT_EQ(job.lanes, 4);
  EXPECT_EQ(job.batch, 32);
  EXPECT_EQ(job.seed, 7U);
}

TEST(LoadJob, NeedsNoFile) {
  Sources sources;
  sources.sets = {"model.zoo=mlp", "data.train={format: csv, path: /t.csv}", "steps=1e3"};
  const Job job = load(sources);
  EXPECT_EQ(job.data.train.path, "/t.csv");
  EXPECT_EQ(job.steps, 1000);
}

TEST(LoadJob, ResolvedJobRunsFromAnywhereAndIsTheSame) {
  const Job job = load(lenet());
  Sources again;
  again.file_text = resolved_yaml(job);
  again.file_name = "/runs/x/job.yaml";
  again.base_dir = "/runs/x";
  again.current_dir = "/";
  EXPECT_EQ(load(again), job);
  EXPECT_EQ(resolved_yaml(load(again)), resolved_yaml(job));
}

TEST(Paths, AreRelativeToTheFileThatNamesThem) {
  Sources sources = lenet();
  sources.file_text += "runs: my-runs\n";
  sources.environment = {{"MUSTER_DATA_TEST_LABELS", "./here.gz"}};
  sources.sets = {"model.init_from=old/model.safetensors"};
  const Job job = load(sources);
  EXPECT_EQ(job.data.train.images, "/jobs/mnist/train.gz");
  EXPECT_EQ(job.data.train.labels, "/jobs/labels.gz");
  EXPECT_EQ(job.data.test.images, "/abs/test.gz");
  EXPECT_EQ(job.data.test.labels, "/home/me/here.gz");
  EXPECT_EQ(job.model.init_from, "/home/me/old/model.safetensors");
  EXPECT_EQ(job.runs, "my-runs");
}

TEST(Paths, ARunIsNamedWithoutSlash) {
  Sources sources = lenet();
  sources.sets = {"model.init_from=lenet-20260301"};
  EXPECT_EQ(load(sources).model.init_from, "lenet-20260301");
}

TEST(Mistakes, UnknownOption) {
  EXPECT_EQ(said_with("sync:\n  buckt: 1MB"),
            "job.yaml:14:3: unknown option 'sync.buckt' (did you mean 'sync.bucket'?)");
  EXPECT_EQ(said_with("thraeds: 2"),
            "job.yaml:13:1: unknown option 'thraeds' (did you mean 'threads'?)");
  EXPECT_EQ(said_with("momentum: 0.9"),
            "job.yaml:13:1: unknown option 'momentum' (did you mean 'optimizer.momentum'?)");
  EXPECT_EQ(said_with("epochs: 3"),
            "job.yaml:13:1: unknown option 'epochs' (did you mean 'passes'?)");
  EXPECT_EQ(said_with_set("optimizer.learning_rate=1"),
            "-s optimizer.learning_rate: unknown option 'optimizer.learning_rate' (did you mean "
            "'optimizer.lr'?)");
  EXPECT_EQ(said_with("xyzzy: 1"), "job.yaml:13:1: unknown option 'xyzzy'");
  EXPECT_EQ(said_with("sync.bucket: 1MB"),
            "job.yaml:13:1: 'sync.bucket' must be nested in a file: sync: { bucket: ... }");
  EXPECT_EQ(said_with_set("optimizer.lrate=1"),
            "-s optimizer.lrate: unknown option 'optimizer.lrate' (did you mean 'optimizer.lr'?)");
  EXPECT_EQ(said_with_set("optimzer.lr=1"),
            "-s optimzer.lr: unknown option 'optimzer.lr' (did you mean 'optimizer.lr'?)");
  EXPECT_EQ(said_with_set("optimizer={lrr: 1}"),
            "-s optimizer: unknown option 'optimizer.lrr' (did you mean 'optimizer.lr'?)");
}

TEST(Mistakes, WrongType) {
  EXPECT_EQ(said_with("threads: many"),
            "job.yaml:13:10: threads must be a whole number, not 'many'");
  EXPECT_EQ(said_with("threads: \"2\""),
            "job.yaml:13:10: threads must be a whole number, not '2' in quotes");
  EXPECT_EQ(said_with("track: { tensorboard: yes }"),
            "job.yaml:13:23: track.tensorboard must be true or false, not 'yes'");
  EXPECT_EQ(said_with("track: 5"), "job.yaml:13:8: track must be a map of options");
  EXPECT_EQ(said_with_set("optimizer=adam"),
            "-s optimizer: optimizer must be a map of options: optimizer: { kind: adam }");
  EXPECT_EQ(said_with_set("optimizer.schedule=cosine"),
            "-s optimizer.schedule: optimizer.schedule must be a map of options: schedule: { kind: "
            "cosine }");
  EXPECT_EQ(said_with_set("model=lenet"),
            "-s model: model must be a map of options: model: { zoo: lenet }");
  EXPECT_EQ(said_with("best_by: [loss]"), "job.yaml:13:10: best_by must be text, not a list");
  EXPECT_EQ(said_with("eval: { every: 100 }"),
            "job.yaml:13:16: eval.every must be like 500 steps, 1 pass, 90s or never, not '100'");
  EXPECT_EQ(said_with("time: soon"),
            "job.yaml:13:7: time must be a time like 90s, 5m or 2h, not 'soon'");
  EXPECT_EQ(
      said_with("sync: { bucket: big }"),
      "job.yaml:13:17: sync.bucket must be a number of bytes like 1048576, 1MB or 512KiB, not "
      "'big'");
  EXPECT_EQ(said_with_set("seed=-1"),
            "-s seed: seed must be a whole number from 0 to 18446744073709551615, not '-1'");
  EXPECT_EQ(said_with_set("data.train.part=0.5"),
            "-s data.train.part: data.train.part must be a list of numbers, not '0.5'");
  EXPECT_EQ(said_with_set("model.layers=lenet"),
            "-s model.layers: model.layers must be a list, not 'lenet'");
  EXPECT_EQ(said_with_set("optimizer.lr="),
            "-s optimizer.lr: optimizer.lr must be a number, not empty");
}

TEST(Mistakes, OutOfRange) {
  EXPECT_EQ(said_with("threads: -1"),
            "job.yaml:13:10: threads must be at least 0 and at most 4096, not -1");
  EXPECT_EQ(said_with_set("optimizer.momentum=1"),
            "-s optimizer.momentum: optimizer.momentum must be at least 0 and below 1, not 1");
  EXPECT_EQ(said_with_set("data.train.part=[0, 2]"),
            "-s data.train.part: data.train.part must be at least 0 and at most 1, not 2");
  EXPECT_EQ(said_with_set("data.train.deviation=[1, 0]"),
            "-s data.train.deviation: data.train.deviation must be above 0, not 0");
  EXPECT_EQ(
      said_with_set("data.train.mean=[]"),
      "-s data.train.mean: data.train.mean must be a number, or a list of numbers, not a list");
  EXPECT_EQ(said_with_set("data.train.deviation=0"),
            "-s data.train.deviation: data.train.deviation must be above 0, not 0");
  EXPECT_EQ(said_with_set("muster=2"), "-s muster: muster must be 1, not 2");
}

TEST(Mistakes, WrongChoice) {
  EXPECT_EQ(
      said_with_set("optimizer.kind=sdg"),
      "-s optimizer.kind: optimizer.kind must be one of sgd, adam, adamw, adagrad, rmsprop, lars, "
      "lamb or muon, not 'sdg' (did you mean 'sgd'?)");
  EXPECT_EQ(said_with("device: gpu"),
            "job.yaml:13:9: device must be cpu, not 'gpu' (did you mean 'cpu'?)");
}

TEST(Mistakes, UnknownModelOfTheZoo) {
  EXPECT_EQ(
      said_with_set("model.zoo=lenett"),
      "-s model.zoo: model.zoo must be one of deepfm, dlrm, gpt, lenet, mlp, resnet, two-tower or "
      "wide-deep, not 'lenett' (did you mean 'lenet'?)");
}

TEST(Mistakes, InTheEnvironmentNameTheVariable) {
  Sources sources = lenet();
  sources.environment = {{"MUSTER_OPTIMIZER_LR", "fast"}};
  EXPECT_EQ(said(sources),
            "environment MUSTER_OPTIMIZER_LR: optimizer.lr must be a number, not 'fast'");
}

TEST(Mistakes, UnknownVariablesOnlyWarn) {
  Sources sources = lenet();
  sources.environment = {{"MUSTER_OPTIMIZER_LRR", "1"}, {"MUSTER_SOURCE_DIR", "/src"}};
  const auto loaded = load_job(sources);
  ASSERT_TRUE(loaded.ok());
  EXPECT_THAT(loaded->warnings,
              ElementsAre("the environment variable MUSTER_OPTIMIZER_LRR is not an option and is "
                          "ignored (did you mean 'MUSTER_OPTIMIZER_LR'?)"));
}

TEST(Mistakes, SetWithoutValue) {
  Sources sources = lenet();
  sources.sets = {"steps"};
  const auto loaded = load_job(sources);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().kind(), ErrorKind::kUsage);
  EXPECT_EQ(loaded.error().message(), "-s steps: write it as key=value, for example -s steps=100");
}

TEST(Mistakes, WhatIsNotAJob) {
  Sources sources = lenet();
  sources.file_text = "just text\n";
  EXPECT_EQ(said(sources), "job.yaml:1:1: a job must be a map of options");
  sources.file_text = "";
  EXPECT_EQ(said(sources),
            "job.yaml: the job has no model; set model.zoo, model.use, model.layers or model.file");
}

TEST(Set, TakesTextAsItStands) {
  Sources sources = lenet();
  sources.sets = {"best_by=a: b #c", "data.train.images=/data/{x}.gz", "runs=\"quoted\\tx\""};
  const Job job = load(sources);
  EXPECT_EQ(job.best_by, "a: b #c");
  EXPECT_EQ(job.data.train.images, "/data/{x}.gz");
  EXPECT_EQ(job.runs, "quoted\tx");
  EXPECT_EQ(said_with_set("best_by=\xff"), "-s best_by: byte 0xff is not UTF-8 text");
}

TEST(Set, SectionsLeaveTheirOtherOptionsAlone) {
  Sources sources = lenet();
  sources.sets = {"optimizer={lr: 0.5, schedule: {warmup: 7}}"};
  const Job job = load(sources);
  EXPECT_EQ(job.optimizer.lr, 0.5);
  EXPECT_EQ(job.optimizer.momentum, 0.9);
  EXPECT_EQ(job.optimizer.schedule.kind, "cosine");
  EXPECT_EQ(job.optimizer.schedule.warmup, 7);
}

TEST(Set, ReachesInsideTrees) {
  Sources sources = lenet();
  sources.file_text.replace(sources.file_text.find("zoo: lenet"), 10,
                            "zoo: gpt, args: { width: 8, heads: 2 }");
  sources.sets = {"model.args.width=64", "model.args.block.dropout=0.1"};
  const Job job = load(sources);
  EXPECT_EQ(job.model.args.to_line(), "{ width: 64, heads: 2, block: { dropout: 0.1 } }");
  EXPECT_EQ(job.model.args.find("width")->mark().text(), "-s model.args.width");
  EXPECT_THAT(said_with_set("model.args.a..b=1"), HasSubstr("is not a name"));
  sources.sets = {"model.args.width.deep=1"};
  EXPECT_EQ(said(sources),
            "-s model.args.width.deep: there is no 'deep' to set: what holds it is not a map");
}

TEST(GatherSources, ReadsFileDirectoryAndEnvironment) {
  const auto dir =
      std::filesystem::temp_directory_path() / ("muster-load-test-" + std::to_string(::getpid()));
  std::filesystem::create_directories(dir);
  std::ofstream(dir / "job.yaml") << kLenet;
  const auto fs = posix_file_system();
  const auto sources = gather_sources(*fs, (dir / "job.yaml").string(), {"steps=5"});
  ASSERT_TRUE(sources.ok()) << sources.error().message();
  EXPECT_EQ(sources->base_dir, dir.string());
  EXPECT_EQ(sources->current_dir, std::filesystem::current_path().string());
  EXPECT_EQ(sources->file_text, kLenet);
  EXPECT_THAT(sources->sets, ElementsAre("steps=5"));
  const auto missing = gather_sources(*fs, (dir / "jbo.yaml").string(), {});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().message(),
            "cannot open '" + (dir / "jbo.yaml").string() + "': No such file or directory");
  std::filesystem::remove_all(dir);
}

TEST(BorrowPlaces, ErrorsNameTheLinesOfTheFileThatAPersonWrote) {
  Sources sources = lenet();
  sources.file_text = R"(muster: 1
model:

  layers:
    # a comment that the resolved job does not have
    - flatten
    - linear: { out: 10,
                bias: true }
data: { train: { format: faces, args: { fold: 3 } } }
steps: 1
)";
  sources.sets = {"data.train.args.size=5"};
  const Job job = load(sources);
  Sources resolved;
  resolved.file_text = resolved_yaml(job);
  resolved.file_name = "runs/1/job.yaml";
  Job again = load(resolved);
  const auto place = [](const Node& node) { return node.mark().text(); };
  EXPECT_THAT(place(again.model.layers.items()[1]), HasSubstr("runs/1/job.yaml:"));
  borrow_places(again, sources.file_text, sources.file_name);
  EXPECT_EQ(again.model.layers, job.model.layers);
  EXPECT_EQ(place(again.model.layers.items()[0]), "job.yaml:6:7");
  const Node& linear = *again.model.layers.items()[1].find("linear");
  EXPECT_EQ(place(*linear.find("bias")), "job.yaml:8:23");
  EXPECT_EQ(linear.find("bias")->key_mark().text(), "job.yaml:8:17");
  const Node& args = again.data.train.args;
  EXPECT_EQ(place(*args.find("fold")), "job.yaml:9:47");
  EXPECT_THAT(place(*args.find("size")), HasSubstr("runs/1/job.yaml:")) << "not in the file";
}

TEST(BorrowPlaces, WhatIsNotTheSameAnyMoreKeepsItsPlace) {
  Sources sources = lenet();
  sources.file_text =
      "model: { layers: [ flatten, linear: { out: 10 } ] }\n"
      "data: { train: { format: faces } }\n"
      "steps: 1\n";
  for (const std::string changed :
       {"model: { layers: [ flatten, relu, linear: { out: 11 } ] }", "model: 7", "{", ""}) {
    Job job = load(sources);
    borrow_places(job, changed, "changed.yaml");
    EXPECT_EQ(job.model.layers.items()[0].mark().source, "job.yaml") << changed;
  }
}

TEST(LoadWithData, TakesTheOptionsOfTheJobsOwnData) {
  Sources sources;
  sources.file_text = R"(muster: 1
model: { zoo: mlp }
data: { train: { format: csv, path: train.csv, label: species, classes: 3, limit: 10 } }
steps: 1
)";
  sources.file_name = "job.yaml";
  sources.base_dir = "/jobs";
  sources.current_dir = "/home/me";
  auto loaded = load_job_with_data(sources, "new/*.csv", "");
  ASSERT_TRUE(loaded.ok()) << loaded.error().message();
  EXPECT_EQ(loaded->job.data.train.path, "/jobs/train.csv");
  const auto& test = loaded->job.data.test;
  EXPECT_EQ(test.path, "/home/me/new/*.csv");
  EXPECT_EQ(test.format, "csv");
  EXPECT_EQ(test.label, "species");
  EXPECT_EQ(test.classes, 3);
  EXPECT_EQ(test.limit, 0);

  sources.sets = {"data.test.label=kind", "threads=2"};
  loaded = load_job_with_data(sources, "s3://bucket/a: #b.csv", "");
  ASSERT_TRUE(loaded.ok()) << loaded.error().message();
  EXPECT_EQ(loaded->job.data.test.path, "s3://bucket/a: #b.csv");
  EXPECT_EQ(loaded->job.data.test.label, "kind");
  EXPECT_EQ(loaded->job.threads, 2);

  sources.sets = {};
  loaded = load_job_with_data(sources, "x.jsonl", "jsonl");
  ASSERT_TRUE(loaded.ok()) << loaded.error().message();
  EXPECT_EQ(loaded->job.data.test.format, "jsonl");
  EXPECT_EQ(loaded->job.data.test.label, "");
}

TEST(LoadWithData, AFormatWithoutAPathIsRefused) {
  const auto loaded = load_job_with_data(lenet(), "some.csv", "");
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().kind(), ErrorKind::kUsage);
  EXPECT_THAT(loaded.error().message(), HasSubstr("-s data.test.images"));
  EXPECT_TRUE(load_job_with_data(lenet(), "some.csv", "csv").ok());
}

}  // namespace
}  // namespace muster::config
