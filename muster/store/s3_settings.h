// Where S3 is and who asks: from the environment and the files of the AWS tools.
//
//   endpoint      AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, or endpoint_url of the profile; else AWS
//   region        AWS_REGION, AWS_DEFAULT_REGION, or region of the profile; else us-east-1
//   credentials   AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, or the profile; else
//                 requests are not signed, which public buckets accept
//   profile       AWS_PROFILE, else "default", in ~/.aws/credentials and ~/.aws/config
//                 (AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE)
//
// Not supported: roles, single sign-on, credential_process, credentials of the machine (EC2, EKS).
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "muster/base/result.h"
#include "muster/store/sigv4.h"

namespace muster::store {

// The value of a variable, or nothing if it is not set; tests have their own.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

struct S3Settings {
  // A server of its own: buckets are folders of its path. Otherwise AWS, where a bucket is a host.
  std::optional<std::string> endpoint;  // "http://host:port", without a slash at the end
  std::string region = "us-east-1";
  std::optional<Credentials> credentials;
  bool from_file = false;  // the credentials, which may be renewed there while a job runs
};

// Errors (kJob) name the variable, or file and line, and never a value of a secret.
Result<S3Settings> s3_settings(const Environment& environment);

// Sections of a file of the AWS tools, by name, with their keys. Nested keys (indented lines) are
// left out. `name`: for errors.
using IniFile = std::map<std::string, std::map<std::string, std::string>>;
Result<IniFile> parse_ini(std::string_view text, std::string_view name);

}  // namespace muster::store
