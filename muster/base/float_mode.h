// How a thread treats subnormal floats, those nearer to zero than 2^-126.
//
// Everything that computes numbers of a job takes them to be zero: processors need about 100 times
// as long for them (a matrix product with 4 such rows of 64 took 83 ms instead of 9), a model
// that has become certain of its samples has many, and they are of no use in training. As this
// changes bits, it has to be the same in all threads and all workers of a job. Threads take it
// over from the one that starts them.
#pragma once

namespace muster {

// For the calling thread, and those it starts from now on.
void flush_subnormals();
bool flushes_subnormals();

// For the calling thread, as long as it lives: where it is not known whose thread it is.
class FlushSubnormals {
 public:
  FlushSubnormals();
  ~FlushSubnormals();
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  const bool before_;
};

}  // namespace muster
