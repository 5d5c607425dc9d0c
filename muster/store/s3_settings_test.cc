#include "muster/store/s3_settings.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/scratch_directory.h"

namespace muster::store {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class S3SettingsTest : public testing::Test {
 protected:
  std::string put(const std::string& name, std::string_view text) {
    std::ofstream(home_.path() + "/" + name) << text;
    return home_.path() + "/" + name;
  }
  Result<S3Settings> settings() {
    return s3_settings([this](const std::string& name) -> std::optional<std::string> {
      const auto at = variables_.find(name);
      if (at == variables_.end()) return std::nullopt;
      return at->second;
    });
  }
  ScratchDirectory home_ = *ScratchDirectory::make("s3-settings");
  std::map<std::string, std::string> variables_;
};

TEST_F(S3SettingsTest, WithoutAnythingItIsAwsAndNobody) {
  variables_["HOME"] = home_.path();
  const auto found = settings();
  ASSERT_TRUE(found.ok());
  EXPECT_FALSE(found->endpoint);
  EXPECT_FALSE(found->credentials);
  EXPECT_EQ(found->region, "us-east-1");
}

TEST_F(S3SettingsTest, TheEnvironmentComesFirst) {
  variables_ = {{"AWS_ACCESS_KEY_ID", "id"},
                {"AWS_SECRET_ACCESS_KEY", "secret"},
                {"AWS_SESSION_TOKEN", "token"},
                {"AWS_REGION", ""},
                {"AWS_DEFAULT_REGION", "eu-west-1"},
                {"AWS_ENDPOINT_URL", "http://other"},
                {"AWS_ENDPOINT_URL_S3", "http://localhost:9000/"},
                {"AWS_SHARED_CREDENTIALS_FILE",
                 put("c", "[default]\naws_access_key_id = f\naws_secret_access_key = g\n")}};
  const auto found = settings();
  ASSERT_TRUE(found.ok()) << found.error().message();
  EXPECT_EQ(found->credentials->key_id, "id");
  EXPECT_EQ(found->credentials->secret, "secret");
  EXPECT_EQ(found->credentials->session_token, "token");
  EXPECT_EQ(found->region, "eu-west-1");
  EXPECT_EQ(found->endpoint, "http://localhost:9000");
  EXPECT_FALSE(found->from_file);
  variables_.erase("AWS_ACCESS_KEY_ID");
  variables_.erase("AWS_SECRET_ACCESS_KEY");
  EXPECT_EQ(settings()->credentials->key_id, "f");
  EXPECT_TRUE(settings()->from_file);
}

TEST_F(S3SettingsTest, TakesAProfileFromBothFiles) {
  variables_ = {
      {"AWS_PROFILE", "work"},
      {"AWS_SHARED_CREDENTIALS_FILE",
       put("credentials",
           "# mine\n[default]\naws_access_key_id=no\naws_secret_access_key=no\n"
           "[work]\r\naws_access_key_id = id\r\naws_secret_access_key = a=b/c\r\n")},
      {"AWS_CONFIG_FILE", put("config",
                              "[default]\nregion = x\n[profile work]\nregion = eu-central-1\n"
                              "s3 =\n  addressing_style = path\nendpoint_url = https://h:9000\n")}};
  const auto found = settings();
  ASSERT_TRUE(found.ok()) << found.error().message();
  EXPECT_EQ(found->credentials->key_id, "id");
  EXPECT_EQ(found->credentials->secret, "a=b/c");
  EXPECT_EQ(found->region, "eu-central-1");
  EXPECT_EQ(found->endpoint, "https://h:9000");
}

TEST_F(S3SettingsTest, MistakesAreNamedAndSecretsAreNot) {
  variables_ = {{"AWS_ACCESS_KEY_ID", "id"}};
  EXPECT_THAT(settings().error().message(), HasSubstr("AWS_SECRET_ACCESS_KEY is not"));

  variables_ = {{"AWS_PROFILE", "wrok"},
                {"AWS_CONFIG_FILE", put("config", "[profile work]\nregion = x\n")}};
  EXPECT_THAT(settings().error().message(), HasSubstr("did you mean 'work'?"));

  variables_ = {{"AWS_SHARED_CREDENTIALS_FILE", put("c", "[default]\nTOPSECRET\n")}};
  EXPECT_THAT(settings().error().message(), AllOf(HasSubstr("/c:2"), Not(HasSubstr("TOPSECRET"))));

  variables_ = {{"AWS_CONFIG_FILE", put("config", "[default]\nsso_session = x\n")}};
  EXPECT_THAT(settings().error().message(), HasSubstr("export-credentials"));

  variables_ = {{"AWS_ENDPOINT_URL", "localhost:9000"}};
  EXPECT_THAT(settings().error().message(), HasSubstr("AWS_ENDPOINT_URL: write http://HOST:PORT"));
}

}  // namespace
}  // namespace muster::store
