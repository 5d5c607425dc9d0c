// What a wheel puts into bin/ under the names of Muster's programs: becomes the program of the same
// name inside the package (site-packages/muster/bin), whose libraries are at fixed places relative
// to it. A Python entry point would take longer to start than `muster` takes to answer.
//
// MUSTER_PYTHON is set to the Python beside this file, for `muster train --program`.
//
// It is also muster/bin/muster-worker of the package, which `muster train` starts: that becomes
// muster/bin/torch/muster-worker, the only program with libtorch's C++ types, if the package torch
// has the version that it was built for.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace {

constexpr int kMachine = 8;  // docs/exit-codes.md

// The value of __version__ in this version.py without what is behind '+'. False: there is none.
bool read_version(const char* file, char* version, size_t size) {
  FILE* const in = fopen(file, "re");
  if (in == nullptr) return false;
  static const char kBegin[] = "__version__ = '";
  bool found = false;
  char line[256];
  while (!found && fgets(line, sizeof(line), in) != nullptr) {
    if (strncmp(line, kBegin, sizeof(kBegin) - 1) != 0) continue;
    const char* const value = line + sizeof(kBegin) - 1;
    snprintf(version, size, "%.*s", static_cast<int>(strcspn(value, "+'\n")), value);
    found = true;
  }
  fclose(in);
  return found;
}

// The sentences of muster/_native.py.
int start_worker(const char* folder, char** argv) {
  char path[PATH_MAX + 128];
  char found[64];
  snprintf(path, sizeof(path), "%s/../../torch/version.py", folder);
  if (!read_version(path, found, sizeof(found))) {
    fprintf(stderr, "muster: muster's training loop needs torch %s: pip install torch==%s\n",
            TORCH_VERSION, TORCH_VERSION);
    return kMachine;
  }
  if (strcmp(found, TORCH_VERSION) != 0) {
    fprintf(stderr,
            "muster: muster-train %s was built for torch %s, and this environment has %s: pip "
            "install torch==%s, or install a muster-train that was built for %s\n",
            MUSTER_VERSION, TORCH_VERSION, found, TORCH_VERSION, found);
    return kMachine;
  }
  snprintf(path, sizeof(path), "%s/torch/muster-worker", folder);
  execv(path, argv);
  fprintf(stderr, "muster: cannot start '%s': %s\n", path, strerror(errno));
  return 1;
}

bool ends_with(const char* text, const char* end) {
  const size_t length = strlen(text);
  return length >= strlen(end) && strcmp(text + length - strlen(end), end) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 1) return 2;
  char self[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
  if (length <= 0) {
    perror("muster: cannot find its own place");
    return 1;
  }
  self[length] = '\0';
  char* const slash = strrchr(self, '/');
  *slash = '\0';  // self: the directory
  const char* const name = slash + 1;

  if (ends_with(self, "/muster/bin") && strcmp(name, "muster-worker") == 0) {
    return start_worker(self, argv);
  }

  char path[PATH_MAX + 128];
  snprintf(path, sizeof(path), "%s/python3", self);
  if (access(path, X_OK) == 0) setenv("MUSTER_PYTHON", path, 0);

  // dist-packages are Debian's: pip as root installs into /usr/local, Debian itself into /usr.
  const char* const kPlaces[] = {
      "../lib/" PYTHON_FOLDER "/site-packages", "../lib64/" PYTHON_FOLDER "/site-packages",
      "../lib/" PYTHON_FOLDER "/dist-packages", "../local/lib/" PYTHON_FOLDER "/dist-packages",
      "../lib/python3/dist-packages"};
  for (const char* place : kPlaces) {
    snprintf(path, sizeof(path), "%s/%s/muster/bin/%s", self, place, name);
    if (access(path, X_OK) != 0) continue;
    execv(path, argv);
    fprintf(stderr, "muster: cannot start '%s': %s\n", path, strerror(errno));
    return 1;
  }
  fprintf(stderr,
          "muster: the package muster-train is not where pip puts it, seen from '%s'; install it "
          "again\n",
          self);
  return 1;
}
