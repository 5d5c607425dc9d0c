#include "muster/store/s3_settings.h"

#include <cstdlib>

#include "muster/base/file_system.h"
#include "muster/base/text.h"
#include "muster/store/url.h"

namespace muster::store {
namespace {

// An empty variable counts as one that is not set, as in the AWS tools.
std::optional<std::string> value_of(const Environment& environment, const std::string& name) {
  auto value = environment(name);
  if (value && value->empty()) return std::nullopt;
  return value;
}

// A file that is not there is empty.
Result<IniFile> read_ini(const Environment& environment, const std::string& variable,
                         const std::string& in_home) {
  auto path = value_of(environment, variable);
  if (!path) {
    const auto home = value_of(environment, "HOME");
    if (!home) return IniFile{};
    path = *home + in_home;
  }
  const auto fs = posix_file_system();
  if (!fs->exists(*path)) return IniFile{};
  MUSTER_TRY(const auto text, fs->read(*path));
  return parse_ini(text, *path);
}

struct Profile {
  std::string name;
  bool found = false;
  std::map<std::string, std::string> keys;

  std::optional<std::string> get(const std::string& key) const {
    const auto at = keys.find(key);
    if (at == keys.end() || at->second.empty()) return std::nullopt;
    return at->second;
  }
};

Result<Profile> read_profile(const Environment& environment) {
  const auto wanted = value_of(environment, "AWS_PROFILE");
  Profile profile{.name = wanted.value_or("default"), .found = false, .keys = {}};
  MUSTER_TRY(const auto secrets,
             read_ini(environment, "AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials"));
  MUSTER_TRY(const auto config, read_ini(environment, "AWS_CONFIG_FILE", "/.aws/config"));
  // What is in both is taken from the credentials.
  const auto add = [&](const IniFile& file, const std::string& section) {
    const auto at = file.find(section);
    if (at == file.end()) return;
    profile.found = true;
    profile.keys.insert(at->second.begin(), at->second.end());
  };
  add(secrets, profile.name);
  add(config, "profile " + profile.name);
  if (profile.name == "default") add(config, "default");
  if (wanted && !profile.found) {
    std::vector<std::string> names;
    for (const auto& [name, keys] : secrets) names.push_back(name);
    for (const auto& [name, keys] : config) {
      if (name.starts_with("profile ")) names.push_back(name.substr(8));
    }
    return Error(ErrorKind::kJob,
                 "AWS_PROFILE is '{}', but neither the credentials nor the config file has it{}",
                 *wanted, did_you_mean(*wanted, names));
  }
  return profile;
}

Result<std::optional<Credentials>> credentials_of(const Environment& environment,
                                                  const Profile& profile) {
  const auto id = value_of(environment, "AWS_ACCESS_KEY_ID");
  const auto secret = value_of(environment, "AWS_SECRET_ACCESS_KEY");
  if (id.has_value() != secret.has_value()) {
    return Error(ErrorKind::kJob, "{} is set, but {} is not: set both, or none",
                 id ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY",
                 id ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID");
  }
  if (id) {
    return std::optional(
        Credentials{.key_id = *id,
                    .secret = *secret,
                    .session_token = value_of(environment, "AWS_SESSION_TOKEN").value_or("")});
  }
  const auto file_id = profile.get("aws_access_key_id");
  const auto file_secret = profile.get("aws_secret_access_key");
  if (file_id && file_secret) {
    return std::optional(
        Credentials{.key_id = *file_id,
                    .secret = *file_secret,
                    .session_token = profile.get("aws_session_token").value_or("")});
  }
  if (file_id.has_value() != file_secret.has_value()) {
    return Error(ErrorKind::kJob,
                 "profile '{}' has only one of aws_access_key_id and "
                 "aws_secret_access_key",
                 profile.name);
  }
  for (const char* key : {"role_arn", "sso_session", "sso_start_url", "credential_process"}) {
    if (profile.get(key)) {
      return Error(ErrorKind::kJob,
                   "profile '{0}' has {1}, which is not supported: put the keys into the "
                   "environment with `aws configure export-credentials --profile {0} --format env`",
                   profile.name, key);
    }
  }
  return std::optional<Credentials>();
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe)
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

Result<S3Settings> s3_settings(const Environment& environment) {
  MUSTER_TRY(const auto profile, read_profile(environment));
  S3Settings settings;
  MUSTER_TRY(settings.credentials, credentials_of(environment, profile));
  settings.from_file = settings.credentials && !value_of(environment, "AWS_ACCESS_KEY_ID");
  auto region = value_of(environment, "AWS_REGION");
  if (!region) region = value_of(environment, "AWS_DEFAULT_REGION");
  if (!region) region = profile.get("region");
  if (region) settings.region = *region;

  std::string source = "AWS_ENDPOINT_URL_S3";
  auto endpoint = value_of(environment, source);
  if (!endpoint) endpoint = value_of(environment, source = "AWS_ENDPOINT_URL");
  if (!endpoint) {
    endpoint = profile.get("endpoint_url");
    source = "endpoint_url of profile '" + profile.name + "'";
  }
  if (endpoint) {
    while (endpoint->ends_with('/')) endpoint->pop_back();
    const auto parsed = parse_address(*endpoint);
    if (!parsed.ok()) return Error(parsed.error()).context("{}", source);
    if (parsed->scheme != Scheme::kHttp || parsed->path != "/") {
      return Error(ErrorKind::kJob, "{}: write http://HOST:PORT or https://HOST:PORT", source);
    }
    settings.endpoint = *endpoint;
  }
  return settings;
}

Result<IniFile> parse_ini(std::string_view text, std::string_view name) {
  IniFile file;
  std::map<std::string, std::string>* section = nullptr;
  int number = 0;
  for (const auto& line : split(text, '\n')) {
    ++number;
    const auto words = trim(line);
    if (words.empty() || words[0] == '#' || words[0] == ';') continue;
    if (words[0] == '[') {
      const size_t end = words.find(']');
      if (end == std::string_view::npos) {
        return Error(ErrorKind::kJob, "{}:{}: the '[' has no ']'", name, number);
      }
      section = &file[std::string(trim(words.substr(1, end - 1)))];
      continue;
    }
    if (line[0] == ' ' || line[0] == '\t') continue;  // nested
    const size_t equals = words.find('=');
    if (equals == std::string_view::npos || section == nullptr) {
      // Not the line itself: it may hold a secret.
      return Error(ErrorKind::kJob, "{}:{}: {}", name, number,
                   section == nullptr ? "a key stands before the first [section]"
                                      : "a line must be KEY = VALUE");
    }
    (*section)[std::string(trim(words.substr(0, equals)))] = trim(words.substr(equals + 1));
  }
  return file;
}

}  // namespace muster::store
