// Words to requests. The sentences for mistakes are tested on the real program
// (tests/cli/command_line_test.py).
#include "tools/muster/command_line.h"

#include <functional>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/muster/completion.h"

namespace muster::cli {
namespace {

using testing::Contains;
using testing::ElementsAre;

template <typename Arguments>
Arguments parsed(const std::vector<std::string>& words) {
  const auto request = parse_command_line(words);
  if (!request.ok()) {
    ADD_FAILURE() << request.error().message();
    return {};
  }
  EXPECT_TRUE(std::holds_alternative<Arguments>(*request));
  return std::get<Arguments>(*request);
}

TEST(CommandLine, Train) {
  const auto train = parsed<TrainArguments>(
      {"train", "-s", "a=1", "job.yaml", "-s", "b=[1, 2]", "--json", "--run-dir=out"});
  EXPECT_EQ(train.job, "job.yaml");
  EXPECT_THAT(train.set, ElementsAre("a=1", "b=[1, 2]")) << "each -s takes one word, no more";
  EXPECT_TRUE(train.json);
  EXPECT_FALSE(train.quiet);
  EXPECT_EQ(train.run_directory, "out");
}

TEST(CommandLine, AValueMayLookLikeAnything) {
  const auto predict = parsed<PredictArguments>(
      {"predict", "gpt", "--prompt=-h", "--temperature", "0", "--length", "3"});
  EXPECT_EQ(predict.prompt, "-h");
  EXPECT_EQ(predict.temperature, "0");
  EXPECT_EQ(parsed<PredictArguments>({"predict", "gpt", "--prompt", ""}).prompt, "");
  EXPECT_EQ(parsed<PredictArguments>({"predict", "gpt"}).prompt, std::nullopt);
  EXPECT_EQ(parsed<ConfigExplainArguments>({"config", "explain", "--", "-x"}).key, "-x");
}

TEST(CommandLine, TheLatestRunIsTheDefaultWhereThatIsHarmless) {
  EXPECT_EQ(parsed<ResumeArguments>({"resume"}).run.name, "");
  EXPECT_EQ(parsed<RunsShowArguments>({"runs", "show"}).run.name, "");
  EXPECT_FALSE(parse_command_line({"export", "--out", "x"}).ok());
}

TEST(CommandLine, WantsJsonAlsoWhenTheLineIsWrong) {
  EXPECT_TRUE(wants_json({"rnus", "list", "-o", "json"}));
  EXPECT_TRUE(wants_json({"train", "--json"}));
  EXPECT_TRUE(wants_json({"x", "--output=json"}));
  EXPECT_FALSE(wants_json({"runs", "list", "-o", "table"}));
  EXPECT_FALSE(wants_json({"runs", "list", "-o"}));
}

TEST(CommandTree, KnowsEveryCommandAndTellsWhatEachOptionIsFor) {
  std::set<std::string> names;
  std::function<void(const CommandSpec&)> visit = [&](const CommandSpec& command) {
    names.insert(command.name);
    EXPECT_FALSE(command.description.empty()) << command.name;
    for (const auto& option : command.options) {
      EXPECT_FALSE(option.description.empty()) << command.name;
    }
    for (const auto& sub : command.commands) visit(sub);
  };
  visit(command_tree());
  EXPECT_THAT(names, testing::IsSupersetOf({"train", "resume", "check", "compare", "doctor"}));
}

TEST(Completion, OffersTheKeysOfTheOptionTable) {
  const auto words = completion_words();
  EXPECT_THAT(words.keys, Contains("optimizer.schedule.warmup"));
  EXPECT_THAT(words.sections, Contains("optimizer.schedule"));
  for (const auto& script :
       {bash_completion(words), zsh_completion(words), fish_completion(words)}) {
    EXPECT_THAT(script, testing::HasSubstr("optimizer.schedule.warmup"));
    EXPECT_THAT(script, testing::HasSubstr("run-dir"));
  }
}

}  // namespace
}  // namespace muster::cli
