// The small models of testdata/ for tests, and zip files made of pieces.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "muster/base/check.h"
#include "muster/base/fault_injection_testing.h"
#include "muster/pt2/program.h"

namespace muster::pt2 {

inline std::string testdata(const std::string& name) {
  const char* root = std::getenv("MUSTER_SOURCE_DIR");  // NOLINT(concurrency-mt-unsafe)
  MUSTER_CHECK(root != nullptr, "ctest sets it; or set it to the repository by hand");
  return std::string(root) + "/muster/pt2/testdata/" + name + ".pt2";
}

struct TextEntry {
  std::string name;
  std::string text;
};

inline std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

inline std::string zip_of(const std::vector<TextEntry>& entries) {
  std::vector<ZipEntry> views;
  for (const auto& [name, text] : entries) views.push_back({name, bytes_of(text)});
  FaultInjectionFileSystem files;
  auto file = files.create("z");
  MUSTER_CHECK(file.ok() && write_zip(**file, views).ok() && (*file)->close().ok(), "in memory");
  return *files.read("z");
}

}  // namespace muster::pt2
