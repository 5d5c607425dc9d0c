#include "muster/store/s3_xml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::store {
namespace {

using testing::ElementsAre;

constexpr const char* kPage = R"(<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><Prefix>a</Prefix>
<NextContinuationToken>to&amp;ken==</NextContinuationToken><KeyCount>2</KeyCount>
<MaxKeys>2</MaxKeys><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>
<Contents><Key>a/dt%3D1/x+y%2B.tar</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>
<ETag>&quot;0123abcd-2&quot;</ETag><Size>5368709121</Size><StorageClass>STANDARD</StorageClass>
</Contents><Contents><Key>a/%C3%A4</Key><ETag>&#34;e&#x22;</ETag><Size>0</Size></Contents>
<CommonPrefixes><Prefix>a/b/</Prefix></CommonPrefixes></ListBucketResult>)";

TEST(S3XmlTest, ReadsAPage) {
  const auto page = parse_list_page(kPage);
  ASSERT_TRUE(page.ok()) << page.error().message();
  EXPECT_THAT(
      page->keys,
      ElementsAre(ListedKey{.key = "a/dt=1/x y+.tar", .size = 5368709121, .etag = "\"0123abcd-2\""},
                  ListedKey{.key = "a/\xc3\xa4", .size = 0, .etag = "\"e\""}));
  EXPECT_TRUE(page->truncated);
  EXPECT_EQ(page->continuation, "to&ken==");
}

TEST(S3XmlTest, DecodesKeysOnlyIfTheServerHasEncodedThem) {
  for (const char* encoding : {"", "<EncodingType></EncodingType>"}) {
    const auto page = parse_list_page(
        fmt::format("<ListBucketResult>{}<Contents><Key>a+b%20&amp;%</Key><Size>1</Size></Contents>"
                    "</ListBucketResult>",
                    encoding));
    ASSERT_TRUE(page.ok()) << page.error().message();
    EXPECT_THAT(page->keys, ElementsAre(ListedKey{.key = "a+b%20&%", .size = 1, .etag = ""}));
  }
}

TEST(S3XmlTest, RefusesWhatIsNotAPage) {
  const char* const badly_encoded =
      "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>%</Key><Size>1</Size>"
      "</Contents></ListBucketResult>";
  for (const char* text :
       {"", "<html></html>", "<ListBucketResult><Contents></Contents>",
        "<ListBucketResult><Contents><Key>x</Key></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Key>x</Key><Size>-1</Size></Contents></ListBucketResult>",
        badly_encoded, "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"}) {
    const auto page = parse_list_page(text);
    ASSERT_FALSE(page.ok()) << text;
    EXPECT_EQ(page.error().kind(), ErrorKind::kData);
  }
}

TEST(S3XmlTest, ReadsErrors) {
  const auto error = parse_s3_error(
      "<?xml?><Error><Code>AccessDenied</Code><Message>Access\nDenied &lt;x&gt;</Message></Error>");
  EXPECT_EQ(error.code, "AccessDenied");
  EXPECT_EQ(error.message, "Access Denied <x>");
  EXPECT_EQ(parse_s3_error("<html>").code, "");
}

}  // namespace
}  // namespace muster::store
