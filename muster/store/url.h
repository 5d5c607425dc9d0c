// Addresses of data, as a job file names them:
//
//   data/train-*.csv, /data/**/part-?.tar, file:///data/x.bin    files
//   https://host[:port]/path?query                               percent-encoded, as it is sent
//   s3://bucket/key                                              the key as it is, not encoded
//   webhdfs://host:port/path                                     host of the name node, HTTP port
//   swebhdfs://host:port/path                                    the same over TLS
//
// All but HTTP may contain wildcards (glob.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "muster/base/result.h"

namespace muster::store {

enum class Scheme { kFile, kHttp, kS3, kWebHdfs };

struct Address {
  Scheme scheme = Scheme::kFile;
  bool tls = false;  // https, swebhdfs
  // HTTP and WebHDFS: HOST or HOST:PORT. S3: the bucket. Empty for files.
  std::string host;
  // Files: the path. HTTP: path and query, beginning with '/'. S3: the key. WebHDFS: the path,
  // beginning with '/'.
  std::string path;
  bool operator==(const Address&) const = default;
};

// The parts of an address. The path is not checked for wildcards: the name of an object may contain
// * and ? as they are.
Result<Address> parse_address(std::string_view text);
// Inverse of parse_address, except that file:// is dropped.
std::string to_text(const Address& address);
// The scheme alone, for an address that may be wrong otherwise: kFile if it names none.
bool is_local(std::string_view text);

// The address without what follows '?', unless its scheme has no queries: the query of an HTTP
// address may hold a signature, which must not be printed, nor if "http" is misspelled.
std::string printable(std::string_view address);

// Every byte but A-Z a-z 0-9 - . _ ~ as %XX; '/' too, unless `keep_slash`. What RFC 3986 calls
// unreserved, and what S3 signatures are computed over.
std::string percent_encode(std::string_view bytes, bool keep_slash);
// Errors: a '%' that two hexadecimal digits do not follow.
Result<std::string> percent_decode(std::string_view text);

}  // namespace muster::store
