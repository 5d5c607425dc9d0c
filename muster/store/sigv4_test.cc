// Against the examples that AWS publishes: its test suite for Signature Version 4, and those of the
// S3 manual ("Signature Calculations for the Authorization Header").
#include "muster/store/sigv4.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::store {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

const Credentials kSuite{.key_id = "AKIDEXAMPLE",
                         .secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
                         .session_token = ""};
const SigningScope kSuiteScope{
    .date = "20150830T123600Z", .region = "us-east-1", .service = "service"};

SignedRequest suite_request(std::string method, std::string path) {
  return {.method = std::move(method),
          .path = std::move(path),
          .query = {},
          .headers = {{"host", "example.amazonaws.com"}, {"x-amz-date", "20150830T123600Z"}},
          .payload_hash = sha256_hex("")};
}

std::string suite_signature(const SignedRequest& request) {
  const auto text = authorization(request, kSuiteScope, kSuite);
  return text.substr(text.find("Signature=") + 10);
}

TEST(SigV4Test, GetVanilla) {
  EXPECT_EQ(authorization(suite_request("GET", "/"), kSuiteScope, kSuite),
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
            "SignedHeaders=host;x-amz-date, "
            "Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
}

TEST(SigV4Test, PostVanilla) {
  EXPECT_EQ(suite_signature(suite_request("POST", "/")),
            "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b");
}

TEST(SigV4Test, QueriesAreSorted) {
  auto request = suite_request("GET", "/");
  request.query = {{"Param2", "value2"}, {"Param1", "value1"}};
  EXPECT_EQ(suite_signature(request),
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500");
}

const Credentials kManual{.key_id = "AKIAIOSFODNN7EXAMPLE",
                          .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                          .session_token = ""};
const SigningScope kManualScope{.date = "20130524T000000Z", .region = "us-east-1", .service = "s3"};

std::string manual(const SignedRequest& request) {
  return authorization(request, kManualScope, kManual);
}

TEST(SigV4Test, S3GetWithRange) {
  const SignedRequest request{.method = "GET",
                              .path = "/test.txt",
                              .query = {},
                              .headers = {{"range", "bytes=0-9"},
                                          {"host", "examplebucket.s3.amazonaws.com"},
                                          {"x-amz-date", "20130524T000000Z"},
                                          {"x-amz-content-sha256", sha256_hex("")}},
                              .payload_hash = sha256_hex("")};
  EXPECT_THAT(
      manual(request),
      EndsWith("SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
               "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"));
}

TEST(SigV4Test, S3Put) {
  const std::string hash = sha256_hex("Welcome to Amazon S3.");
  const SignedRequest request{.method = "PUT",
                              .path = "/test%24file.text",
                              .query = {},
                              .headers = {{"host", "examplebucket.s3.amazonaws.com"},
                                          {"date", "Fri, 24 May 2013 00:00:00 GMT"},
                                          {"x-amz-date", "20130524T000000Z"},
                                          {"x-amz-storage-class", "REDUCED_REDUNDANCY"},
                                          {"x-amz-content-sha256", hash}},
                              .payload_hash = hash};
  EXPECT_THAT(manual(request),
              EndsWith("98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"));
}

TEST(SigV4Test, S3ListAndLifecycle) {
  SignedRequest request{.method = "GET",
                        .path = "/",
                        .query = {{"max-keys", "2"}, {"prefix", "J"}},
                        .headers = {{"host", "examplebucket.s3.amazonaws.com"},
                                    {"x-amz-date", "20130524T000000Z"},
                                    {"x-amz-content-sha256", sha256_hex("")}},
                        .payload_hash = sha256_hex("")};
  EXPECT_THAT(manual(request),
              EndsWith("34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"));
  request.query = {{"lifecycle", ""}};
  EXPECT_THAT(manual(request),
              EndsWith("fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"));
}

TEST(SigV4Test, ValuesAreFoldedAndEncoded) {
  auto request = suite_request("GET", "/");
  request.headers.emplace_back("my-header", "  a   b  ");
  EXPECT_THAT(canonical_request(request), HasSubstr("\nmy-header:a b\n"));
  EXPECT_EQ(canonical_query({{"prefix", "dt=1/a b"}, {"a", "+"}}), "a=%2B&prefix=dt%3D1%2Fa%20b");
}

TEST(SigV4Test, DatesAndHashes) {
  EXPECT_EQ(amz_date(WallTime(std::chrono::seconds(1440938160))), "20150830T123600Z");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(std::span<const std::byte>()),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

}  // namespace
}  // namespace muster::store
