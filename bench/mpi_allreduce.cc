// OpenMPI's allreduce of int32 between processes, to compare muster_comm_benchmark with; not part
// of the build, as nothing here needs MPI.
//
//   apt-get install openmpi-bin libopenmpi-dev
//   mpicxx -O2 bench/mpi_allreduce.cc -o mpi_allreduce
//   mpirun -n 2 ./mpi_allreduce                                   # shared memory
//   mpirun -n 2 --mca btl tcp,self ./mpi_allreduce                # TCP
//
// Prints the median time of one allreduce and the processor time of all processes, by size. Every
// result is verified.
#include <mpi.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return double(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * double(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (size_t bytes = 4 << 10; bytes <= 64 << 20; bytes *= 4) {
    std::vector<int32_t> data(bytes / 4);
    const int calls = bytes <= (1 << 20) ? 300 : 30;
    std::vector<double> us;
    double cpu = 0;
    for (int i = -10; i < calls; ++i) {
      std::fill(data.begin(), data.end(), rank + 1);
      MPI_Barrier(MPI_COMM_WORLD);
      const double cpu_before = cpu_seconds();
      const double before = MPI_Wtime();
      MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_INT32_T, MPI_SUM,
                    MPI_COMM_WORLD);
      if (i >= 0) {
        us.push_back((MPI_Wtime() - before) * 1e6);
        cpu += (cpu_seconds() - cpu_before) * 1e6 / calls;
      }
      if (data.front() != size * (size + 1) / 2 || data.back() != data.front()) {
        std::fprintf(stderr, "a wrong sum\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
    }
    std::nth_element(us.begin(), us.begin() + calls / 2, us.end());
    double all_cpu = 0;
    MPI_Reduce(&cpu, &all_cpu, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
      std::printf("%9zu bytes  %10.1f us  %10.1f us of processors\n", bytes,
                  us[static_cast<size_t>(calls / 2)], all_cpu);
    }
  }
  MPI_Finalize();
  return 0;
}
