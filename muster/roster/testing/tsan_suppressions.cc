// What the thread sanitizer is not to report, built into every program of a tsan build that speaks
// gRPC, so that it holds however the program is started.
//
// gRPC of the distribution, and the libraries it is made of (gpr, Abseil, upb), are not
// instrumented: the sanitizer sees their memcpy and free, but not the atomics and locks that order
// them. So each report with a frame in one of them is a guess. Nothing of ours is hidden by that,
// because none of our code runs beneath theirs: their threads call nothing of ours, and we use none
// of these libraries for anything else. A race between two places of ours has no such frame.
//
// The same holds for RocksDB.
//
// libtorch is not instrumented either, but our code does run beneath it (hooks of autograd). So
// only what its libraries themselves do is left out, and the reference counts that its headers
// inline.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "race:libgrpc\n"
         "race:libgpr\n"
         "race:libabsl_\n"
         "race:libupb\n"
         "race:librocksdb\n"
         "called_from_lib:libtorch_cpu.so\n"
         "called_from_lib:libc10.so\n"
         "called_from_lib:libgomp.so\n"
         "race:^atomic_combined_refcount_\n"
         "race:^c10::intrusive_ptr\n"
         "race:^at::manual_seed\n";
}
