#include "muster/config/table.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/text.h"
#include "muster/config/foreign_names.h"
#include "muster/config/load.h"

namespace muster::config {
namespace {

// How many fields an aggregate has: the most values it can be made from.
struct Anything {
  template <typename T>
  operator T() const;  // NOLINT: implicit on purpose
};

template <typename T, typename... Values>
constexpr size_t field_count() {
  if constexpr (requires { T{Values{}..., Anything{}}; }) {
    return field_count<T, Values..., Anything>();
  } else {
    return sizeof...(Values);
  }
}

size_t names_in(const char* section) { return option_table().names_in(section).size(); }

// A field that is added to job.h but not to the table makes one of these fail.
TEST(Table, HasEveryFieldOfJob) {
  EXPECT_EQ(names_in(""), field_count<Job>());
  EXPECT_EQ(names_in("model"), field_count<ModelOptions>());
  EXPECT_EQ(names_in("data"), field_count<DataOptions>());
  EXPECT_EQ(names_in("data.train"), field_count<SourceOptions>());
  EXPECT_EQ(names_in("data.test"), field_count<SourceOptions>());
  EXPECT_EQ(names_in("data.augment"), field_count<AugmentOptions>());
  EXPECT_EQ(names_in("data.loader"), field_count<LoaderOptions>());
  EXPECT_EQ(names_in("optimizer"), field_count<OptimizerOptions>());
  EXPECT_EQ(names_in("optimizer.schedule"), field_count<ScheduleOptions>());
  EXPECT_EQ(names_in("optimizer.clip"), field_count<ClipOptions>());
  EXPECT_EQ(names_in("sync"), field_count<SyncOptions>());
  EXPECT_EQ(names_in("sync.outer"), field_count<OuterOptions>());
  EXPECT_EQ(names_in("workers"), field_count<WorkersOptions>());
  EXPECT_EQ(names_in("audit"), field_count<AuditOptions>());
  EXPECT_EQ(names_in("checkpoint"), field_count<CheckpointOptions>());
  EXPECT_EQ(names_in("eval"), field_count<EvalOptions>());
  EXPECT_EQ(names_in("early_stop"), field_count<EarlyStopOptions>());
  EXPECT_EQ(names_in("track"), field_count<TrackOptions>());
  EXPECT_EQ(names_in("tables"), field_count<TablesOptions>());
  EXPECT_EQ(option_table().sections.size(), 19U);  // no section that is not in this list
}

TEST(Table, EveryEntryIsWellFormed) {
  std::set<std::string> keys, variables;
  std::set<const void*> fields;
  Job job;
  for (const auto& option : option_table().options) {
    EXPECT_TRUE(keys.insert(option.key).second) << option.key << " is there twice";
    EXPECT_TRUE(variables.insert(option.environment_name()).second) << option.environment_name();
    const void* field =
        std::visit([&](const auto& a) -> const void* { return &a(job); }, option.field);
    EXPECT_TRUE(fields.insert(field).second) << option.key << " shares its field with another";
    EXPECT_TRUE(option.doc.ends_with('.')) << option.key << ": " << option.doc;
    EXPECT_EQ(option_table().find_section(option.key), nullptr) << option.key;
    if (option.only) {
      const Option* other = option_table().find(option.only->key);
      ASSERT_NE(other, nullptr) << option.key << " depends on " << option.only->key;
      for (const auto& value : option.only->values) {
        EXPECT_THAT(other->choices, ::testing::Contains(value)) << option.key;
      }
    }
  }
}

TEST(Table, DefaultsAndExamplesAreValid) {
  for (const auto& option : option_table().options) {
    Job job;
    const bool may_be_unset = option.get(job).text().empty();
    if (!may_be_unset) {
      EXPECT_TRUE(option.set(job, option.get(job), "").ok()) << option.key;
    }
    EXPECT_EQ(job, Job()) << option.key;
    if (option.example.empty()) continue;
    const auto value = option.is_text() ? Result<Node>(Node::scalar(option.example))
                                        : parse_value(option.example, "example");
    ASSERT_TRUE(value.ok()) << option.key << ": " << value.error().message();
    const Status status = option.set(job, *value, "");
    EXPECT_TRUE(status.ok()) << status.error().message();
  }
}

// A valid value other than the default, as one would write it after -s.
std::string another_value(const Option& option) {
  const Node initial = option.get(Job());
  if (option.key == "muster") return "1";  // there is only one version
  if (option.choices.size() == 1) return option.choices[0];
  if (!option.choices.empty())
    return option.choices[0] == initial.text() ? option.choices[1] : option.choices[0];
  struct Other {
    const Option& option;
    const Node& initial;
    std::string operator()(const Access<int64_t>&) const {
      if (option.form == Form::kBytes) return "8KiB";
      const int64_t now = *initial.as_int("");
      const bool at_most = option.most && static_cast<double>(now) >= *option.most;
      return std::to_string(at_most ? now - 1 : now + 1);
    }
    std::string operator()(const Access<uint64_t>&) const { return "18446744073709551615"; }
    std::string operator()(const Access<double>&) const {
      return option.form == Form::kDuration ? "90s" : "0.123";
    }
    std::string operator()(const Access<bool>&) const {
      return initial.text() == "true" ? "false" : "true";
    }
    std::string operator()(const Access<std::string>&) const {
      return option.form == Form::kPath || option.form == Form::kAddress ? "/some/where" : "x";
    }
    std::string operator()(const Access<std::vector<std::string>>&) const { return "[a, b.*]"; }
    std::string operator()(const Access<std::vector<double>>&) const { return "[0.25, 0.75]"; }
    std::string operator()(const Access<Every>&) const { return "7 steps"; }
    std::string operator()(const Access<Node>&) const {
      return option.form == Form::kList ? "[relu, { linear: { out: 3 } }]" : "{ width: 3 }";
    }
  };
  return std::visit(Other{option, initial}, option.field);
}

// A file that sets one option.
std::string file_with(const Option& option, const std::string& value) {
  std::string text;
  std::string pad;
  for (const auto& part : split(option.key, '.')) {
    text += fmt::format("{}{}{}:", text.empty() ? "" : "\n", pad, part);
    pad += "  ";
  }
  return fmt::format("{} {}\n", text, option.is_text() ? "\"" + value + "\"" : value);
}

TEST(Table, EveryOptionIsSettableByFileEnvironmentAndCommandLine) {
  for (const auto& option : option_table().options) {
    const std::string value = another_value(option);
    Sources file, environment, set;
    file.file_name = "job.yaml";
    file.file_text = file_with(option, value);
    environment.environment = {{option.environment_name(), value}};
    set.sets = {option.key + "=" + value};
    const bool can_differ = option.key != "muster" && option.choices.size() != 1;
    for (const Sources& sources : {file, environment, set}) {
      const auto read = read_job(sources);
      ASSERT_TRUE(read.ok()) << read.error().message();
      EXPECT_THAT(read->warnings, ::testing::IsEmpty());
      EXPECT_EQ(read->places.count(option.key), 1U);
      const auto differences = diff(Job(), read->job);
      ASSERT_EQ(differences.size(), can_differ ? 1U : 0U) << option.key;
      if (can_differ) {
        EXPECT_EQ(differences[0].key, option.key);
      }
      EXPECT_EQ(read->job, read_job(file)->job) << option.key;
    }
  }
}

// The value under a dotted key, or nullptr.
const Node* find_at(const Node& root, const std::string& key) {
  const Node* at = &root;
  for (const auto& part : split(key, '.')) {
    if (at != nullptr) at = at->find(part);
  }
  return at;
}

TEST(ResolvedYaml, HoldsEveryOptionAndReadsBackEqual) {
  Job job;
  for (const auto& option : option_table().options) {
    const std::string text = another_value(option);
    const auto value = option.is_text() ? Node::scalar(text) : *parse_value(text, "");
    ASSERT_TRUE(option.set(job, value, "").ok()) << option.key;
  }
  for (const Job& each : {Job(), job}) {
    const std::string text = resolved_yaml(each);
    const auto tree = parse_yaml(text, "resolved.yaml");
    ASSERT_TRUE(tree.ok()) << tree.error().message();
    for (const auto& option : option_table().options) {
      const Node* there = find_at(*tree, option.key);
      ASSERT_NE(there, nullptr) << option.key;
      EXPECT_EQ(*there, option.get(each)) << option.key;
    }
    Job again;
    Places places;
    const Status status = read_options(*tree, "", "/elsewhere", again, places);
    // Paths that are not set stay unset, whatever the directory.
    ASSERT_TRUE(status.ok()) << status.error().message();
    EXPECT_EQ(again, each);
    EXPECT_EQ(resolved_yaml(again), text);
  }
}

TEST(ResolvedYaml, WritesOneNumberWithoutBrackets) {
  Job job;
  job.data.train.mean = {0.5};
  job.data.train.deviation = {0.1, 0.2};
  const std::string text = resolved_yaml(job);
  EXPECT_THAT(text, ::testing::HasSubstr("mean: 0.5\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("deviation: [0.1, 0.2]\n"));
}

TEST(Suggestion, FindsTheNearestName) {
  const Table& table = option_table();
  EXPECT_EQ(table.suggestion("optimizer.lrr"), " (did you mean 'optimizer.lr'?)");
  EXPECT_EQ(table.suggestion("optimiser.lr"), " (did you mean 'optimizer.lr'?)");
  EXPECT_EQ(table.suggestion("optimizer.schedule.warmpu"),
            " (did you mean 'optimizer.schedule.warmup'?)");
  EXPECT_EQ(table.suggestion("btach"), " (did you mean 'batch'?)");
  EXPECT_EQ(table.suggestion("momentum"), " (did you mean 'optimizer.momentum'?)");
  EXPECT_EQ(table.suggestion("xyzzy"), "");
  EXPECT_EQ(table.suggestion(""), "");
  EXPECT_EQ(table.suggestion("..."), "");
}

TEST(Suggestion, KnowsTheNamesOfOtherFrameworks) {
  const Table& table = option_table();
  const auto ours = [&](std::string_view theirs) { return table.suggestion(theirs); };
  EXPECT_EQ(ours("optimizer.learning_rate"), " (did you mean 'optimizer.lr'?)");
  EXPECT_EQ(ours("learning_rate"), " (did you mean 'optimizer.lr'?)");
  EXPECT_EQ(ours("learningRate"), " (did you mean 'optimizer.lr'?)");
  EXPECT_EQ(ours("tables.learning_rate"), " (did you mean 'tables.lr'?)");
  EXPECT_EQ(ours("sync.outer.learning-rate"), " (did you mean 'sync.outer.lr'?)");
  EXPECT_EQ(ours("epochs"), " (did you mean 'passes'?)");
  EXPECT_EQ(ours("trainer.max_epochs"), " (did you mean 'passes'?)");
  EXPECT_EQ(ours("batch_size"), " (did you mean 'batch'?)");
  EXPECT_EQ(ours("eval.batch_size"), " (did you mean 'eval.batch'?)");
  EXPECT_EQ(ours("data.loader.num_workers"), " (did you mean 'data.loader.threads'?)");
  EXPECT_EQ(ours("num_workers"), " (did you mean 'data.loader.threads'?)");
  EXPECT_EQ(ours("momentum"), " (did you mean 'optimizer.momentum'?)");
  EXPECT_EQ(ours("weight_decay"), " (did you mean 'optimizer.weight_decay'?)");
  EXPECT_EQ(ours("max_grad_norm"), " (did you mean 'optimizer.clip.norm'?)");
  EXPECT_EQ(ours("lr_scheduler"), " (did you mean 'optimizer.schedule'?)");
  EXPECT_EQ(ours("optimizer.schedule.warmup_steps"),
            " (did you mean 'optimizer.schedule.warmup'?)");
  EXPECT_EQ(ours("optimizer.type"), " (did you mean 'optimizer.kind'?)");
  EXPECT_EQ(ours("model.name"), " (did you mean 'model.zoo'?)");
  EXPECT_THAT(ours("world_size"), testing::HasSubstr("--workers N"));
  EXPECT_THAT(ours("gradient_accumulation_steps"), testing::HasSubstr("global batch"));
  EXPECT_THAT(ours("trainer"), testing::HasSubstr("top level"));
  EXPECT_EQ(ours("validation_data"), " (did you mean 'data.test'?)");
  EXPECT_EQ(ours("warmup_ratio"), " (did you mean 'optimizer.schedule.warmup'?)");
  EXPECT_EQ(ours("report_to"), " (did you mean 'track.tensorboard'?)");
  EXPECT_EQ(ours("patience"), " (did you mean 'early_stop.patience'?)");
  EXPECT_EQ(ours("lr"), " (did you mean 'optimizer.lr'?)");
  EXPECT_EQ(ours("strategy"), " (did you mean 'sync.strategy'?)");
  EXPECT_THAT(ours("backward_passes_per_step"), testing::HasSubstr("global batch"));
  EXPECT_THAT(ours("per_device_train_batch_size"), testing::HasSubstr("of all workers together"));
  EXPECT_THAT(ours("resume_from_checkpoint"), testing::HasSubstr("muster resume RUN"));
  EXPECT_THAT(ours("ckpt_path"), testing::HasSubstr("muster resume RUN"));
  EXPECT_THAT(ours("deterministic"), testing::HasSubstr("same bits"));
  EXPECT_THAT(ours("steps_per_epoch"), testing::HasSubstr("all of data.train"));
  EXPECT_THAT(ours("hosts"), testing::HasSubstr("--hosts FILE"));
}

// A name that leads to an option which is gone, or that hides one of ours, is worse than none.
TEST(Suggestion, ForeignNamesLeadToOptionsThatExist) {
  const Table& table = option_table();
  EXPECT_TRUE(foreign_name("lr").key.empty());
  for (const auto name : foreign_names()) {
    const auto [key, hint] = foreign_name(name);
    EXPECT_NE(key.empty(), hint.empty()) << name;
    if (!key.empty()) {
      EXPECT_TRUE(table.find(key) != nullptr || table.find_section(key) != nullptr) << key;
    }
  }
}

TEST(Diff, ListsWhatDiffersInTheTablesOrder) {
  Job a, b;
  b.optimizer.lr = 0.5;
  b.seed = 9;
  b.checkpoint.every = {500, Every::Unit::kSteps};
  const auto differences = diff(a, b);
  ASSERT_EQ(differences.size(), 3U);
  EXPECT_EQ(differences[0].key, "seed");
  EXPECT_EQ(differences[1].key, "optimizer.lr");
  EXPECT_EQ(differences[1].a, "0.01");
  EXPECT_EQ(differences[1].b, "0.5");
  EXPECT_EQ(differences[2].a, "1 pass");
  EXPECT_EQ(differences[2].b, "500 steps");
}

}  // namespace
}  // namespace muster::config
