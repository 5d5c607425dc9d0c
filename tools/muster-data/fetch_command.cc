#include "tools/muster-data/fetch_command.h"

#include <signal.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>

#include <nlohmann/json.hpp>

#include "muster/base/text.h"
#include "muster/base/thread.h"
#include "muster/copy/fetch.h"
#include "muster/store/open.h"
#include "muster/store/retry.h"

#include "tools/muster/find_run.h"
#include "tools/muster/hand_over.h"
#include "tools/muster/status_line.h"

namespace muster::cli {
namespace {

// While it lives, signals that end a process are held back. If one came, the process ends by it
// afterwards.
class HeldEnd {
 public:
  // Before there are threads: they inherit it.
  HeldEnd() {
    sigemptyset(&set_);
    for (const int number : std::array{SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction current{};
      sigaction(number, nullptr, &current);
      if (current.sa_handler != SIG_IGN) sigaddset(&set_, number);  // nohup
    }
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  ~HeldEnd() {
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    if (received_ != 0) raise(received_);
  }
  HeldEnd(const HeldEnd&) = delete;
  HeldEnd& operator=(const HeldEnd&) = delete;

  // Whether one has come; waits for it a moment. From one thread.
  bool came() {
    const timespec moment{.tv_sec = 0, .tv_nsec = 20'000'000};
    const int number = sigtimedwait(&set_, nullptr, &moment);
    if (number > 0) received_ = number;
    return number > 0;
  }

 private:
  sigset_t set_{};
  sigset_t before_{};
  int received_ = 0;
};

// Ctrl-C and the like end its requests, so that a fetch removes what it has begun.
class FetchStore {
 public:
  explicit FetchStore(const Clock& clock)
      : store_(store::open_store(), clock), watch_("fetch-signals", [this] {
          while (!over_) {
            if (!held_.came()) continue;
            store_.stop();
            return;
          }
        }) {}
  ~FetchStore() { over_ = true; }
  FetchStore(const FetchStore&) = delete;
  FetchStore& operator=(const FetchStore&) = delete;
  store::Store& get() { return store_; }

 private:
  HeldEnd held_;  // the last to go: the process may end there
  store::RetryStore store_;
  std::atomic<bool> over_{false};
  Thread watch_;
};

Result<copy::Fetched> fetch(const std::string& from, const std::string& runs,
                            const std::string& run_directory, Context& context) {
  FetchStore store(context.clock);
  StatusLine line;
  copy::FetchOptions options;
  options.to = from;
  options.runs = runs;
  options.run_directory = run_directory;
  options.tell = [&](const std::string& what) { line.show(what); };
  MUSTER_TRY(auto fetched, copy::fetch_run(store.get(), context.files, options));
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
