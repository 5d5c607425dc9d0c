#include "muster/store/open.h"

#include <mutex>
#include <optional>

#include "muster/base/clock.h"
#include "muster/store/hdfs_store.h"
#include "muster/store/http_store.h"
#include "muster/store/local_store.h"
#include "muster/store/s3_store.h"
#include "muster/store/url.h"

namespace muster::store {
namespace {

class AnyStore final : public Store {
 public:
  explicit AnyStore(OpenOptions options) : options_(std::move(options)) {
    for (const char* variable : {"AWS_CA_BUNDLE", "SSL_CERT_FILE"}) {
      if (options_.http.ca_file.empty()) {
        options_.http.ca_file = options_.environment(variable).value_or("");
      }
    }
  }

  Result<std::vector<Object>> list(std::string_view address) override {
    return list_stoppable(address, {});
  }
  Result<std::vector<Object>> list_stoppable(std::string_view address,
                                             const std::stop_token& stop) override {
    MUSTER_TRY(Store * store, of(address));
    return store->list_stoppable(address, stop);
  }
  Result<std::vector<Object>> list_in_requests(std::string_view address, const MakeRequest& make,
                                               const std::stop_token& stop) override {
    MUSTER_TRY(Store * store, of(address));
    return store->list_in_requests(address, make, stop);
  }
  Status read(const Object& object, uint64_t offset, std::span<std::byte> into) override {
    return read_stoppable(object, offset, into, {});
  }
  Status read_stoppable(const Object& object, uint64_t offset, std::span<std::byte> into,
                        const std::stop_token& stop) override {
    MUSTER_TRY(Store * store, of(object.name));
    return store->read_stoppable(object, offset, into, stop);
  }
  Result<std::optional<std::string>> write(std::string_view address,
                                           std::span<const std::byte> bytes,
                                           const WriteCondition& condition) override {
    return write_stoppable(address, bytes, condition, {});
  }
  Result<std::optional<std::string>> write_stoppable(std::string_view address,
                                                     std::span<const std::byte> bytes,
                                                     const WriteCondition& condition,
                                                     const std::stop_token& stop) override {
    MUSTER_TRY(Store * store, of(address));
    return store->write_stoppable(address, bytes, condition, stop);
  }
  Status remove(std::string_view address) override { return remove_stoppable(address, {}); }
  Status remove_stoppable(std::string_view address, const std::stop_token& stop) override {
    MUSTER_TRY(Store * store, of(address));
    return store->remove_stoppable(address, stop);
  }

 private:
  Result<Store*> of(std::string_view address) {
    MUSTER_TRY(const auto parsed, parse_address(address));
    if (parsed.scheme == Scheme::kFile) return &local_;
    const std::scoped_lock lock(mutex_);
    switch (parsed.scheme) {
      case Scheme::kHttp:
        if (!http_) http_.emplace(options_.http);
        return &*http_;
      case Scheme::kWebHdfs:
        if (!hdfs_) hdfs_.emplace(options_.environment, options_.http);
        return &*hdfs_;
      default:
        if (!s3_) {
          MUSTER_TRY(auto settings, s3_settings(options_.environment));
          S3Store::Renew renew;
          if (settings.from_file) {
            renew = [environment = options_.environment] { return s3_settings(environment); };
          }
          s3_.emplace(std::move(settings), clock_, options_.http, std::move(renew));
        }
        return &*s3_;
    }
  }

  OpenOptions options_;
  SystemClock clock_;
  LocalStore local_;
  std::mutex mutex_;  // of what follows; once made, a store stays
  std::optional<HttpStore> http_;
  std::optional<HdfsStore> hdfs_;
  std::optional<S3Store> s3_;
};

}  // namespace

std::unique_ptr<Store> open_store(OpenOptions options) {
  return std::make_unique<AnyStore>(std::move(options));
}

}  // namespace muster::store
