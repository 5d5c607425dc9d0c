#include "tools/muster/own_program.h"

#include <unistd.h>

#include <cstdlib>

#include <nlohmann/json.hpp>

#include "muster/base/scratch_directory.h"

#include "tools/muster/job_sources.h"
#include "tools/muster/worker_process.h"

namespace muster::cli {
namespace {

Result<std::string> find_python() {
  const char* named = std::getenv("MUSTER_PYTHON");  // NOLINT(concurrency-mt-unsafe)
  if (named != nullptr && *named != '\0') {
    if (access(named, X_OK) == 0) return std::string(named);
    return Error(ErrorKind::kUsage,
                 "MUSTER_PYTHON names '{}', which is not a program that can be run", named);
  }
  auto python = find_program("python3");
  if (python.ok()) return python;
  return Error(ErrorKind::kMachine,
               "--program needs Python, and there is no python3 beside muster nor on PATH; name it "
               "with MUSTER_PYTHON");
}

}  // namespace

Result<OwnProgram> read_answer(const std::string& path, const std::string& answer) {
  const auto read = nlohmann::json::parse(answer, nullptr, /*allow_exceptions=*/false);
  const bool whole = read.is_object() && read.contains("job") && read["job"].is_object() &&
                     read.contains("start") && read["start"].is_array() && !read["start"].empty();
  OwnProgram program = {.path = path, .job = "", .start = {}};
  if (whole) {
    program.job = read["job"].dump();
    for (const auto& word : read["start"]) {
      if (word.is_string()) program.start.push_back(word.get<std::string>());
    }
  }
  if (!whole || program.start.size() != read["start"].size()) {
    return Error(ErrorKind::kJob,
                 "'{}' did not say what its job is: does it call run.steps() of the Python package "
                 "muster?",
                 path);
  }
  return program;
}

Result<OwnProgram> ask_program(const std::string& path, FileSystem& files, std::string& errors) {
  if (!files.exists(path)) {
    return Error(ErrorKind::kUsage, "--program: there is no file '{}'", path);
  }
  MUSTER_TRY(const auto python, find_python());
  MUSTER_TRY(const auto scratch, ScratchDirectory::make("muster-program"));
  const std::string answer = scratch.path() + "/job.json";
  MUSTER_TRY(const auto end,
             capture_worker(python, {"-m", "muster.program", "--describe", answer, path}));
  if (end.signal != 0 || end.exit_code != 0) {
    errors = end.errors;
    return Error(launch::kind_of(end).value_or(ErrorKind::kJob),
                 "'{}' was asked for its job, and failed: {}", path, end.last_message());
  }
  auto text = files.read(answer);
  return read_answer(path, text.ok() ? *text : "");
}

Result<config::Sources> job_sources(const OwnProgram& program, const std::vector<std::string>& sets,
                                    FileSystem& files) {
  MUSTER_TRY(auto sources, job_sources("", sets, files));
  sources.file_text = program.job;
  sources.file_name = program.path;
  sources.base_dir = sources.current_dir;
  return sources;
}

}  // namespace muster::cli
