// Files of HDFS, through the HTTP interface of its name node (WebHDFS, or HttpFS).
//
// A version is time of change and length. The bytes come from a data node, which does not name the
// version, so each read also asks the name node for it, after the bytes: a file that was replaced
// meanwhile is noticed. The user is HADOOP_USER_NAME; Kerberos is not supported.
#pragma once

#include "muster/store/http_client.h"
#include "muster/store/s3_settings.h"
#include "muster/store/store.h"
#include "muster/store/url.h"

namespace muster::store {

class HdfsStore final : public Store {
 public:
  explicit HdfsStore(const Environment& environment = process_environment(),
                     HttpOptions options = {});

  Result<std::vector<Object>> list(std::string_view address) override;
  Result<std::vector<Object>> list_stoppable(std::string_view address,
                                             const std::stop_token& stop) override;
  Result<std::vector<Object>> list_in_requests(std::string_view address, const MakeRequest& make,
                                               const std::stop_token& stop) override;
  Status read(const Object& object, uint64_t offset, std::span<std::byte> into) override;
  Status read_stoppable(const Object& object, uint64_t offset, std::span<std::byte> into,
                        const std::stop_token& stop) override;

 private:
  HttpRequest request(const Address& address, const std::string& operation) const;

  std::string user_;  // empty: the server's default
  HttpClient client_;
};

// Answers of a name node; `name` is for errors.
struct HdfsStatus {
  std::string suffix;  // the name within its folder; empty for the path itself
  bool is_folder = false;
  uint64_t length = 0;
  std::string version;
  bool operator==(const HdfsStatus&) const = default;
};
Result<HdfsStatus> parse_file_status(std::string_view json, std::string_view name);
Result<std::vector<HdfsStatus>> parse_list_status(std::string_view json, std::string_view name);

}  // namespace muster::store
