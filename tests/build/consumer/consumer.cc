#include <cstdio>

#include "muster/base/hash.h"
#include "muster/base/result.h"

int main() {
  const muster::Error error(muster::ErrorKind::kJob, "an error of kind {}",
                            muster::error_kind_name(muster::ErrorKind::kJob));
  std::puts(error.message().c_str());
  return error.message() == "an error of kind job" ? 0 : 1;
}
