#include <nlohmann/json.hpp>

#include "tools/muster/commands.h"
#include "tools/muster/version.h"

namespace muster::cli {

Outcome run(const TextRequest& request, Context& context) {
  context.console.out(request.text);
  return 0;
}

Outcome run(const VersionArguments& arguments, Context& context) {
  const std::string commit = kCommit;
  if (arguments.format == Format::kJson) {
    nlohmann::ordered_json object = {{"version", kVersion}};
    object["commit"] = commit.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(commit);
    object["compiler"] = kCompiler;
    context.console.line(object.dump());
    return 0;
  }
  context.console.line(
      fmt::format("muster {}{}", kVersion, commit.empty() ? "" : fmt::format(" ({})", commit)));
  return 0;
}

}  // namespace muster::cli
