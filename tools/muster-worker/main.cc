// The worker with nothing but the built-in models, losses and data formats. To add your own, write
// a main() like this one: examples/custom-model.
#include "muster/train/worker.h"

int main(int argc, char** argv) { return muster::train::worker_main(argc, argv, {}); }
