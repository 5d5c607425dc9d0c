// Which Muster this is. The git commit is in a file of its own (version_commit.cc.in), written when
// CMake configures, so that a new commit recompiles nothing else.
#pragma once

namespace muster::cli {

extern const char* const kVersion;
extern const char* const kCommit;  // "17fad3b", with "+" if files were changed; "" if not known
extern const char* const kCompiler;

}  // namespace muster::cli
