// One program with CUDA code, NCCL and MPI in it. Without a GPU it can still count its ranks.
#include <cstdio>
#include <nccl.h>
#ifdef MPI_SUPPORT
#include <mpi.h>
#endif

__global__ void add_one(float *values) { values[threadIdx.x] += 1; }

int main(int argc, char **argv) {
  int rank = 0, ranks = 1, one = 1, sum = 1, version = 0, devices = 0;
  ncclGetVersion(&version);
  cudaError_t seen = cudaGetDeviceCount(&devices);
  if (seen == cudaSuccess && devices > 0) {
    float *values;
    cudaMalloc(&values, 32 * sizeof(float));
    add_one<<<1, 32>>>(values);
    seen = cudaDeviceSynchronize();
  }
#ifdef MPI_SUPPORT
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
#endif
  if (rank == 0)
    std::printf("# stand-in: NCCL %d, %d ranks, sum %d, %d GPUs (%s)\n", version, ranks, sum, devices,
                cudaGetErrorString(seen));
  return sum != ranks * one;
}
