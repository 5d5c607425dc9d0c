#include "tools/muster/job_facts.h"

#include "muster/base/scratch_directory.h"
#include "muster/base/text.h"
#include "muster/config/table.h"

#include "tools/muster/worker_process.h"

namespace muster::cli {
namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// What it wrote last, if it wrote anything: "; it said: ..."
std::string last_words(const WorkerEnd& end) {
  const std::string line = end.last_line();
  return line.empty() ? "" : "; it said: " + line;
}

// What went wrong in the worker, as our own error: its last line, without its name in front.
Error worker_error(const WorkerEnd& end, const std::string& file, const std::string& stands_for) {
  std::string message = end.last_message();
  if (message.empty()) message = fmt::format("the worker left with exit code {}", end.exit_code);
  const bool known = end.exit_code >= static_cast<int>(ErrorKind::kInternal) &&
                     end.exit_code <= static_cast<int>(ErrorKind::kMachine);
  return Error(known ? static_cast<ErrorKind>(end.exit_code) : ErrorKind::kInternal, "{}",
               replaced(message, file, stands_for));
}

}  // namespace

Result<nlohmann::ordered_json> check_with_worker(const std::string& worker, const config::Job& job,
                                                 const std::string& name, FileSystem& files) {
  MUSTER_TRY(const auto scratch, ScratchDirectory::make("muster", "/tmp"));
  const std::string file = scratch.path() + "/job.yaml";
  auto asked = job;
  // Any will do, as nothing is trained.
  if (asked.sync.strategy == "auto") asked.sync.strategy = "lockstep";
  MUSTER_RETURN_IF_ERROR(write_file_atomically(files, file, resolved_yaml(asked)));
  MUSTER_TRY(const auto end, capture_worker(worker, {"check", "--job", file, "--written", name}));
  if (const auto death = exit_message(end, "the worker", "")) {
    return Error(death->kind, "{}{}", death->sentence, last_words(end));
  }
  if (end.exit_code != 0) {
    // What is not in the file, as from -s, is named by its line in the resolved job.
    return worker_error(end, file, name + " (as `muster config show` prints it)");
  }
  auto facts = nlohmann::ordered_json::parse(end.output, nullptr, false);
  return facts.is_object() ? std::move(facts) : nlohmann::ordered_json::object();
}

}  // namespace muster::cli
