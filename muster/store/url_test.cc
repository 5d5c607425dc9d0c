#include "muster/store/url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::store {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Address parsed(std::string_view text) {
  auto address = parse_address(text);
  EXPECT_TRUE(address.ok()) << (address.ok() ? "" : address.error().message());
  return address.ok() ? *address : Address{};
}

std::string refusal(std::string_view text) {
  const auto address = parse_address(text);
  EXPECT_FALSE(address.ok()) << text;
  return address.ok() ? "" : address.error().message();
}

TEST(UrlTest, PathsAreFiles) {
  for (const std::string path : {"a.csv", "./x/y*.tar", "/data/**/b c.bin", "../x", "a:b", "a:/b",
                                 "1s3://x", "data/s3://odd"}) {
    const auto address = parsed(path);
    EXPECT_EQ(address.scheme, Scheme::kFile) << path;
    EXPECT_EQ(address.path, path);
    EXPECT_EQ(to_text(address), path);
    EXPECT_TRUE(is_local(path));
  }
  EXPECT_EQ(parsed("file:///data/x").path, "/data/x");
  EXPECT_THAT(refusal("file://x"), HasSubstr("file:///PATH"));
}

TEST(UrlTest, TakesHttpApart) {
  const auto address = parsed("https://example.org:8443/a%20b/c.tar?x=1&y=/?");
  EXPECT_EQ(address.scheme, Scheme::kHttp);
  EXPECT_TRUE(address.tls);
  EXPECT_EQ(address.host, "example.org:8443");
  EXPECT_EQ(address.path, "/a%20b/c.tar?x=1&y=/?");
  EXPECT_EQ(parsed("http://h").path, "/");
  EXPECT_EQ(parsed("http://h?q=1").path, "/?q=1");
  EXPECT_EQ(parsed("http://[::1]:80/x").host, "[::1]:80");
  EXPECT_FALSE(is_local("http://h/x"));
}

TEST(UrlTest, KeysOfS3AreNotEncoded) {
  const auto address = parsed("s3://my-bucket.x/dt=2024/a b%20+*?.tar");
  EXPECT_EQ(address.scheme, Scheme::kS3);
  EXPECT_EQ(address.host, "my-bucket.x");
  EXPECT_EQ(address.path, "dt=2024/a b%20+*?.tar");
  EXPECT_EQ(parsed("s3://b//x").path, "/x");
}

TEST(UrlTest, TakesWebHdfsApart) {
  const auto address = parsed("webhdfs://node:9870/user/x/part-*");
  EXPECT_EQ(address.scheme, Scheme::kWebHdfs);
  EXPECT_EQ(address.host, "node:9870");
  EXPECT_EQ(address.path, "/user/x/part-*");
  EXPECT_TRUE(parsed("swebhdfs://node:9871/x").tls);
}

TEST(UrlTest, RefusalsSayWhatAndWhereAndWhatToDo) {
  EXPECT_THAT(refusal(""), HasSubstr("empty"));
  EXPECT_THAT(refusal(std::string_view("a\0b", 3)), HasSubstr("byte 1 is a control character"));
  EXPECT_THAT(refusal("a\nb"), AllOf(HasSubstr("'a?b'"), HasSubstr("0x0a")));
  EXPECT_THAT(refusal("hdfs://x/y"), HasSubstr("webhdfs://NAMENODE:PORT/PATH"));
  EXPECT_THAT(refusal("s3a://x/y"), HasSubstr("write s3://"));
  EXPECT_THAT(refusal("htps://x/y"), HasSubstr("did you mean 'https'?"));
  EXPECT_THAT(refusal("gs://x/y"), HasSubstr("'gs://' is not supported"));
  EXPECT_THAT(refusal("http:///x"), HasSubstr("host is missing"));
  EXPECT_THAT(refusal("http://h:0/x"), HasSubstr("1 to 65535"));
  EXPECT_THAT(refusal("http://h:/x"), HasSubstr("'' is not a port"));
  EXPECT_THAT(refusal("http://h:80a/x"), HasSubstr("'80a' is not a port"));
  EXPECT_THAT(refusal("http://[::1/x"), HasSubstr("has no ']'"));
  EXPECT_THAT(refusal("http://[::1]x/x"), HasSubstr("[ADDRESS]:PORT"));
  EXPECT_THAT(refusal("http://h/a b"), HasSubstr("byte 2 of the path is a space: write it as %20"));
  EXPECT_THAT(refusal("http://h/\xc3\xa4"), HasSubstr("%C3"));
  EXPECT_THAT(refusal("http://h/a%2"), HasSubstr("write %25"));
  EXPECT_THAT(refusal("http://h/a#b"), HasSubstr("%23"));
  EXPECT_THAT(refusal("http://h!/x"), HasSubstr("contains '!'"));
  EXPECT_THAT(refusal("s3://"), HasSubstr("bucket is missing"));
  EXPECT_THAT(refusal("s3://b"), HasSubstr("s3://b/**"));
  EXPECT_THAT(refusal("s3://b*/x"), HasSubstr("contains '*'"));
  EXPECT_THAT(refusal("webhdfs://h:9870/"), HasSubstr("path is missing"));
  EXPECT_THAT(refusal("webhdfs://h:9870/a/../b"), HasSubstr("'..'"));
}

TEST(UrlTest, NeverPrintsPasswordsOrSignatures) {
  EXPECT_THAT(refusal("http://me:secret@h/x"), testing::Not(HasSubstr("secret")));
  for (const auto* address :
       {"http://me:sec/ret@h/x", "s3://AKIA:secret@bucket/x", "s3a://AKIA:sec/ret@bucket/x",
        "gs://me:secret@bucket/x", "webhdfs://me:secret@h:9870/x", "http://me:secret@h/\n"}) {
    EXPECT_THAT(refusal(address), AllOf(testing::Not(HasSubstr("ret")), HasSubstr("~/.netrc")));
  }
  EXPECT_EQ(parsed("s3://bucket/a@b").path, "a@b");
  EXPECT_THAT(refusal("http://h/a b?sig=secret"), testing::Not(HasSubstr("secret")));
  EXPECT_EQ(printable("https://h/x?sig=secret"), "https://h/x?...");
  for (const std::string address : {"HTTPS://h/x", "htps://h/x", "hxxp://h/x", "x+y://h/x"}) {
    EXPECT_EQ(printable(address + "?X-Amz-Signature=secret"), address + "?...");
    EXPECT_THAT(refusal(address + "?X-Amz-Signature=secret"), testing::Not(HasSubstr("secret")));
  }
  for (const char* address : {"data/a?.csv", "s3://b/a?.csv", "webhdfs://h:9870/a?.csv",
                              "swebhdfs://h:9870/a?.csv", "file:///a?.csv"}) {
    EXPECT_EQ(printable(address), address);
  }
}

TEST(UrlTest, PercentEncodingIsThatOfSignatures) {
  EXPECT_EQ(percent_encode("a/b=c d~-._+\xc3\xa4", true), "a/b%3Dc%20d~-._%2B%C3%A4");
  EXPECT_EQ(percent_encode("a/b", false), "a%2Fb");
  EXPECT_EQ(*percent_decode("a%2Fb%c3%A4+"), "a/b\xc3\xa4+");
  EXPECT_FALSE(percent_decode("%").ok());
  EXPECT_FALSE(percent_decode("a%2").ok());
  EXPECT_FALSE(percent_decode("%g0").ok());
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  EXPECT_EQ(*percent_decode(percent_encode(all, false)), all);
}

}  // namespace
}  // namespace muster::store
