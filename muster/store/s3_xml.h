// What is read of S3's XML: a page of ListObjectsV2, and the code and message of an error. Not a
// parser of XML: elements are found by name, and S3 neither nests those names nor gives them
// attributes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/result.h"

namespace muster::store {

struct ListedKey {
  std::string key;
  uint64_t size = 0;
  std::string etag;  // with its quotes
  bool operator==(const ListedKey&) const = default;
};

struct ListPage {
  std::vector<ListedKey> keys;
  bool truncated = false;    // there is another page
  std::string continuation;  // what to ask for it with
};

// An answer to a request with encoding-type=url, which a server may ignore: keys are decoded only
// if it says that it has encoded them. Errors (kData) say what is missing.
Result<ListPage> parse_list_page(std::string_view xml);

struct S3Error {
  std::string code;
  std::string message;
};
// Empty strings if the text is no error of S3. Control characters become spaces.
S3Error parse_s3_error(std::string_view xml);

}  // namespace muster::store
