#include "muster/config/source.h"

#include <gtest/gtest.h>

#include "muster/config/load.h"

namespace muster::config {
namespace {

SourceOptions source(const std::string& format, const std::string& path,
                     const std::string& read = "auto") {
  SourceOptions options;
  options.format = format;
  options.path = path;
  options.read = read;
  return options;
}

TEST(Source, KnowsUrlsAndWildcards) {
  for (const char* url : {"s3://bucket/key", "http://h/x", "webhdfs://h:1/x", "file:///x"}) {
    EXPECT_TRUE(is_url(url)) << url;
  }
  for (const char* path : {"", "a/b", "/a//b", "://x", "a b://x", "data/s3:/x"}) {
    EXPECT_FALSE(is_url(path)) << path;
  }
  EXPECT_TRUE(has_wildcard("a/*.csv"));
  EXPECT_TRUE(has_wildcard("s3://bucket/part-?"));
  EXPECT_FALSE(has_wildcard("a/b.csv"));
  EXPECT_FALSE(has_wildcard("https://host/x?token=1"));
}

TEST(Source, SaysWhatIsReadByBlocks) {
  EXPECT_TRUE(is_read_by_blocks(source("tfrecord", "/x")));
  EXPECT_FALSE(is_read_by_blocks(source("idx", "")));
  EXPECT_FALSE(is_read_by_blocks(source("images", "/x")));
  EXPECT_FALSE(is_read_by_blocks(source("csv", "/x.csv")));
  EXPECT_TRUE(is_read_by_blocks(source("csv", "/x.csv", "blocks")));
  EXPECT_TRUE(is_read_by_blocks(source("csv", "/x-*.csv")));
  EXPECT_TRUE(is_read_by_blocks(source("libsvm", "s3://bucket/x")));
  EXPECT_FALSE(is_read_by_blocks(source("csv", "/x-*.csv", "whole")));
  EXPECT_FALSE(is_read_by_blocks(source("mine", "s3://bucket/x")));
}

TEST(Source, UrlsStayAsTheyAreAndPathsBecomeAbsolute) {
  const auto path_of = [](const std::string& path) {
    Sources sources;
    sources.file_text =
        "muster: 1\nmodel: { zoo: mlp }\nsteps: 1\ndata: { train: { format: jsonl, path: '" + path +
        "' } }\n";
    sources.file_name = "job.yaml";
    sources.base_dir = "/jobs";
    auto loaded = load_job(sources);
    EXPECT_TRUE(loaded.ok()) << loaded.error().message();
    return loaded.ok() ? loaded->job.data.train.path : "";
  };
  EXPECT_EQ(path_of("s3://bucket/a//b-*.jsonl"), "s3://bucket/a//b-*.jsonl");
  EXPECT_EQ(path_of("data/*.jsonl"), "/jobs/data/*.jsonl");
}

}  // namespace
}  // namespace muster::config
