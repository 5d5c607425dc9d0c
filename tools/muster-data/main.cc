// muster-data: what of `muster` reads data or a copy of a run. See data_commands.h,
// fetch_command.h.
#include <malloc.h>
#include <signal.h>

#include <variant>

#include "tools/muster-data/data_commands.h"
#include "tools/muster-data/fetch_command.h"
#include "tools/muster/program.h"

namespace {

using muster::Error;
using muster::ErrorKind;
using namespace muster::cli;  // NOLINT(google-build-using-namespace): this is a part of it

Outcome carry_out(const DataIndexArguments& arguments, Context& context) {
  return index_data(arguments, context);
}
Outcome carry_out(const DataInfoArguments& arguments, Context& context) {
  return show_data(arguments, context);
}
Outcome carry_out(const DataCheckArguments& arguments, Context& context) {
  return check_data(arguments, context);
}
Outcome carry_out(const DataPackArguments& arguments, Context& context) {
  return pack_data(arguments, context);
}
Outcome carry_out(const RunsFetchArguments& arguments, Context& context) {
  return fetch_run(arguments, context);
}
Outcome carry_out(const ResumeArguments& arguments, Context& context) {
  return resume_copy(arguments, context);
}
template <typename Other>
Outcome carry_out(const Other&, Context&) {
  return Error(ErrorKind::kUsage, "muster-data is a part of muster: call that");
}

}  // namespace

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);  // a server may close a connection (muster/store/README.md)
  // Blocks come and go. glibc would give each back to the kernel and page-fault the next one in.
  // NOLINTBEGIN(concurrency-mt-unsafe): there is one thread
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // more is not possible
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  // NOLINTEND(concurrency-mt-unsafe)
  return run_program(argc, argv, [](const Request& request, Context& context) {
    return std::visit([&](const auto& arguments) { return carry_out(arguments, context); },
                      request);
  });
}
