#include "muster/config/document.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "muster/config/table.h"

namespace muster::config {
namespace {

using ::testing::HasSubstr;

TEST(Explain, AnOption) {
  EXPECT_EQ(*explain("optimizer.momentum"),
            "optimizer.momentum: number, at least 0 and below 1\n\n"
            "  How much of the last update goes into this one.\n\n"
            "  default      0\n"
            "  only with    optimizer.kind sgd, rmsprop, lars or muon\n"
            "  command line -s optimizer.momentum=0.9\n"
            "  environment  MUSTER_OPTIMIZER_MOMENTUM=0.9\n");
  EXPECT_THAT(*explain("checkpoint.every"), HasSubstr("-s checkpoint.every='500 steps'"));
  EXPECT_THAT(*explain("model.args.width"), HasSubstr("model.args: a map"));
}

TEST(Explain, ASectionListsItsOptions) {
  EXPECT_EQ(*explain("early_stop"),
            "early_stop: Ending when nothing gets better.\n\n"
            "  patience  End after so many evaluations without progress in best_by. [0]\n"
            "  least     How much better counts as progress. [0]\n");
  EXPECT_THAT(*explain("optimizer"),
              HasSubstr("schedule      The learning rate over time. (section)"));
  EXPECT_THAT(*explain(""), HasSubstr("batch"));
}

TEST(Explain, AnUnknownKeyGetsASuggestion) {
  const auto text = explain("optimizer.momentm");
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().message(),
            "unknown option 'optimizer.momentm' (did you mean 'optimizer.momentum'?)");
}

TEST(Schema, IsJsonWithEveryOption) {
  const auto schema = nlohmann::json::parse(json_schema());
  EXPECT_EQ(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
  for (const auto& option : option_table().options) {
    std::string pointer = "/properties/";
    for (const char c : option.key) pointer += c == '.' ? "/properties/" : std::string(1, c);
    const nlohmann::json::json_pointer at(pointer);
    ASSERT_TRUE(schema.contains(at)) << option.key;
    EXPECT_EQ(schema[at]["description"], option.doc);
    EXPECT_TRUE(schema[at].contains("default")) << option.key;
  }
  EXPECT_EQ(schema["/properties/optimizer/properties/beta1"_json_pointer],
            nlohmann::json::parse(R"({"description": "Decay of the mean of gradients.",
              "type": "number", "minimum": 0, "exclusiveMaximum": 1, "default": 0.9})"));
  EXPECT_EQ(schema["/properties/optimizer/additionalProperties"_json_pointer], false);
  EXPECT_EQ(schema["/properties/sync/properties/bucket/default"_json_pointer], "1MiB");
}

// With MUSTER_UPDATE_DOCS=1 the file is written instead of compared.
void expect_up_to_date(const std::string& name, const std::string& wanted) {
  const char* root = std::getenv("MUSTER_SOURCE_DIR");  // NOLINT(concurrency-mt-unsafe)
  if (root == nullptr) GTEST_SKIP() << "MUSTER_SOURCE_DIR is not set; ctest sets it";
  const std::string path = std::string(root) + "/docs/" + name;
  if (std::getenv("MUSTER_UPDATE_DOCS") != nullptr) {  // NOLINT(concurrency-mt-unsafe)
    std::ofstream(path) << wanted;
  }
  std::ifstream file(path);
  std::stringstream there;
  there << file.rdbuf();
  EXPECT_TRUE(there.str() == wanted)
      << path << " is not what muster/config/table.cc says; run\n"
      << "  MUSTER_UPDATE_DOCS=1 ctest --preset release -R config.Docs";
}

TEST(Docs, ReferencePageIsUpToDate) { expect_up_to_date("job-file.md", reference_page()); }
TEST(Docs, SchemaIsUpToDate) { expect_up_to_date("job.schema.json", json_schema()); }

}  // namespace
}  // namespace muster::config
