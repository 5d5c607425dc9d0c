// What a wheel puts into bin/ under the names of Muster's programs: becomes the program of the same
// name inside the package (site-packages/muster/bin), whose libraries are at fixed places relative
// to it. A Python entry point would take longer to start than `muster` takes to answer.
//
// MUSTER_PYTHON is set to the Python beside this file, for `muster train --program`.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
