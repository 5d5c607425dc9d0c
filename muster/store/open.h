// One Store for all addresses: the scheme of each decides which of the stores handles it.
#pragma once

#include <memory>

#include "muster/store/http_client.h"
#include "muster/store/s3_settings.h"
#include "muster/store/store.h"

namespace muster::store {

struct OpenOptions {
  Environment environment = process_environment();
  // ca_file, if empty, comes from AWS_CA_BUNDLE or SSL_CERT_FILE.
  HttpOptions http;
};

// Nothing is read or connected before the first address that needs it. It does not try again:
// RetryStore (retry.h) around it does.
std::unique_ptr<Store> open_store(OpenOptions options = {});

}  // namespace muster::store
