#include "tools/muster-data/fetch_command.h"

#include <signal.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "muster/base/text.h"
#include "muster/copy/fetch.h"
#include "muster/store/open.h"
#include "muster/store/retry.h"

#include "tools/muster/find_run.h"
#include "tools/muster/hand_over.h"
#include "tools/muster/status_line.h"

namespace muster::cli {
namespace {

Result<copy::Fetched> fetch(const std::string& from, const std::string& runs,
                            const std::string& run_directory, Context& context) {
  store::RetryStore store(store::open_store(), context.clock);
  StatusLine line;
  copy::FetchOptions options;
  options.to = from;
  options.runs = runs;
  options.run_directory = run_directory;
  options.tell = [&](const std::string& what) { line.show(what); };
  MUSTER_TRY(auto fetched, copy::fetch_run(store, context.files, options));
  line.clear();
  for (const auto& note : fetched.notes) context.console.warning(note);
  return fetched;
}

std::string describe(const copy::Fetched& fetched) {
  return fetched.step
             ? fmt::format("{}: step {}, {}", fetched.run_directory, *fetched.step,
                           human_bytes(static_cast<double>(fetched.bytes)))
             : fmt::format("{}: the copy has no checkpoint that is newer", fetched.run_directory);
}

}  // namespace

Outcome fetch_run(const RunsFetchArguments& arguments, Context& context) {
  MUSTER_TRY(const auto fetched,
             fetch(arguments.from, arguments.runs, arguments.run_directory, context));
  if (arguments.format == Format::kJson) {
    nlohmann::ordered_json facts = {
        {"run", fetched.run_directory}, {"step", nullptr}, {"bytes", fetched.bytes}};
    if (fetched.step) facts["step"] = *fetched.step;
    context.console.line(facts.dump());
  } else {
    context.console.line(describe(fetched));
  }
  return 0;
}

Outcome resume_copy(const ResumeArguments& arguments, Context& context) {
  const auto& from = arguments.run.name;
  if (!is_copy(from, context.files)) {
    return Error(ErrorKind::kUsage, "muster-data is a part of muster: call that");
  }
  MUSTER_TRY(const auto fetched, fetch(from, arguments.run.runs, "", context));
  context.console.note("fetched " + describe(fetched));
  auto words = context.words;
  std::ranges::replace(words, from, fetched.run_directory);
  signal(SIGPIPE, SIG_DFL);  // main() ignores it, and what comes next would inherit that
  Context with_run{context.console, context.files, context.clock, words};
  return hand_over(with_run, "muster");
}

}  // namespace muster::cli
