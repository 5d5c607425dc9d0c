// Objects of S3, and of servers that speak its protocol (MinIO, Ceph, R2). s3_settings.h says where
// the server and the credentials come from.
//
// A version is the ETag. Reads ask for it with If-Match.
//
// Credentials of a session expire after hours. Then they are read again, and requests fail with
// kIo until they were renewed there, so that a job waits (retry.h). Credentials without a session
// are read again too when they are refused, and others that are found are tried.
#pragma once

#include <functional>
#include <mutex>
#include <optional>

#include "muster/base/clock.h"
#include "muster/store/http_client.h"
#include "muster/store/s3_settings.h"
#include "muster/store/s3_xml.h"
#include "muster/store/store.h"
#include "muster/store/url.h"

namespace muster::store {

class S3Store final : public Store {
 public:
  using Renew = std::function<Result<S3Settings>()>;

  // `clock` outlives the store: a signature contains the time. `renew`: reads the credentials
  // again; empty: those that expire end the job.
  S3Store(S3Settings settings, const Clock& clock, HttpOptions options = {}, Renew renew = {})
      : settings_(std::move(settings)),
        clock_(clock),
        client_(std::move(options)),
        renew_(std::move(renew)),
        credentials_(settings_.credentials) {}

  Result<std::vector<Object>> list(std::string_view address) override;
  Result<std::vector<Object>> list_stoppable(std::string_view address,
                                             const std::stop_token& stop) override;
  Result<std::vector<Object>> list_in_requests(std::string_view address, const MakeRequest& make,
                                               const std::stop_token& stop) override;
  Status read(const Object& object, uint64_t offset, std::span<std::byte> into) override;
  Status read_stoppable(const Object& object, uint64_t offset, std::span<std::byte> into,
                        const std::stop_token& stop) override;
  // One PUT, of at most 5 GiB. A server that ignores conditions (older ones do) would overwrite.
  Result<std::optional<std::string>> write(std::string_view address,
                                           std::span<const std::byte> bytes,
                                           const WriteCondition& condition) override;
  Result<std::optional<std::string>> write_stoppable(std::string_view address,
                                                     std::span<const std::byte> bytes,
                                                     const WriteCondition& condition,
                                                     const std::stop_token& stop) override;
  Status remove(std::string_view address) override;
  Status remove_stoppable(std::string_view address, const std::stop_token& stop) override;

 private:
  using Query = std::vector<std::pair<std::string, std::string>>;
  // A request with everything but its own headers and buffers.
  HttpRequest signed_request(const std::string& method, const std::string& bucket,
                             const std::string& key, const Query& query, std::string_view name,
                             std::span<const std::byte> body = {}) const;
  Result<Object> look_up(const Address& address, std::string_view text,
                         const std::stop_token& stop);
  // Why a HEAD was refused.
  Error refusal(const Address& address, std::string_view text, const std::stop_token& stop);
  Result<std::vector<Object>> list_glob(const Address& address, std::string_view text,
                                        const MakeRequest& make, const std::stop_token& stop);
  Result<ListPage> list_page(const std::string& bucket, const Query& query, std::string_view text,
                             const std::stop_token& stop);
  Error error_of(const HttpResponse& response, std::string_view name);
  std::optional<Credentials> credentials() const;
  // Whether they have changed, now or a short time ago.
  bool renew_credentials();

  const S3Settings settings_;
  const Clock& clock_;
  HttpClient client_;
  const Renew renew_;
  mutable std::mutex mutex_;  // of what follows
  std::optional<Credentials> credentials_;
  std::optional<Moment> renewed_;  // when they were last read again
  std::optional<Moment> changed_;  // when others were found then
};

// Where a bucket is, for requests. `root`: scheme and host. `base`: the path before the key,
// ending with '/'.
struct BucketPlace {
  std::string root;
  std::string base;
  bool operator==(const BucketPlace&) const = default;
};
BucketPlace place_of(const S3Settings& settings, const std::string& bucket);

}  // namespace muster::store
