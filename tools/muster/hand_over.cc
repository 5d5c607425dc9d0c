#include "tools/muster/hand_over.h"

#include <errno.h>
#include <unistd.h>

#include "tools/muster/worker_process.h"

namespace muster::cli {

Error hand_over(Context& context, const std::string& name) {
  auto program = find_program(name);
  if (!program.ok()) return std::move(program).error();
  if (auto written = context.console.flush(); !written.ok()) return std::move(written).error();
  std::vector<std::string> words = {*program};
  words.insert(words.end(), context.words.begin(), context.words.end());
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(program->c_str(), argv.data());
  return io_error(errno, fmt::format("cannot start '{}'", *program));
}

Outcome run(const StatusArguments&, Context& context) { return hand_over(context); }
Outcome run(const CoordinatorArguments&, Context& context) { return hand_over(context); }
Outcome run(const JoinArguments&, Context& context) { return hand_over(context); }
Outcome run(const RunsFetchArguments&, Context& context) {
  return hand_over(context, "muster-data");
}
Outcome run(const DataIndexArguments&, Context& context) {
  return hand_over(context, "muster-data");
}
Outcome run(const DataInfoArguments&, Context& context) {
  return hand_over(context, "muster-data");
}
Outcome run(const DataCheckArguments&, Context& context) {
  return hand_over(context, "muster-data");
}
Outcome run(const DataPackArguments&, Context& context) {
  return hand_over(context, "muster-data");
}

}  // namespace muster::cli
