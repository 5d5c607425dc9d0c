// What the thread sanitizer is not to report, built into every program of a tsan build that speaks
// gRPC, so that it holds however the program is started.
//
// gRPC of the distribution, and the libraries it is made of (gpr, Abseil, upb), are not
// instrumented: the sanitizer sees their memcpy and free, but not the atomics and locks that order
// them. So each report with a frame in one of them is a guess. Nothing of ours is hidden by that,
// because none of our code runs beneath theirs: their threads call nothing of ours, and we use none
// of these libraries for anything else. A race between two places of ours has no such frame.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "race:libgrpc\n"
         "race:libgpr\n"
         "race:libabsl_\n"
         "race:libupb\n";
}
