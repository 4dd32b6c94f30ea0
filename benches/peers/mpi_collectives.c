// Times a collective of an MPI as the bench `collectives` times ours: batches of calls one after the other, a barrier
// before each, and of each the slowest rank's time. In place, but for all-to-all.
//   mpi_collectives allreduce|allgather|reduce_scatter|bcast|alltoall f32|f16|bf16 MS BYTES,BYTES,...
// Bytes are of the buffer, or of the parts of all ranks; MS is how long each size is timed. Rank 0 prints a line for each: the
// bytes, the microseconds of a call in the median batch and in the best, and the elements that were wrong in another
// call; or `absent`, if this MPI has no such type. Built by the bench, with nothing but an MPI's `mpi.h` and library.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

enum { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, ALL_TO_ALL, OPERATIONS };
static const char *const NAMES[] = {"allreduce", "allgather", "reduce_scatter", "bcast", "alltoall"};

static int operation, ranks, rank;
static MPI_Datatype type;
static char *input, *output;

static int call(long count) {
  long part = count / ranks;
  switch (operation) {
  case ALL_REDUCE: return MPI_Allreduce(MPI_IN_PLACE, output, count, type, MPI_SUM, MPI_COMM_WORLD);
  case ALL_GATHER: return MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, output, part, type, MPI_COMM_WORLD);
  case REDUCE_SCATTER: return MPI_Reduce_scatter_block(MPI_IN_PLACE, output, part, type, MPI_SUM, MPI_COMM_WORLD);
  case BROADCAST: return MPI_Bcast(output, count, type, 0, MPI_COMM_WORLD);
  default: return MPI_Alltoall(input, part, type, output, part, type, MPI_COMM_WORLD);
  }
}

// Small whole numbers, which are exact in every type, and so are their sums.
static int value(long rank, long index) { return (rank * 3 + index) % 11 + 1; }

static uint32_t bits(const char *of, int whole) {
  union { float value; uint32_t bits; } exact = {.value = whole};
  if (!strcmp(of, "bf16")) return exact.bits >> 16;
  if (!strcmp(of, "f16")) return whole ? (exact.bits >> 13) - (112u << 10) : 0;
  return exact.bits;
}

static void put(char *to, size_t size, long index, uint32_t bits) { memcpy(to + index * size, &bits, size); }

static int expected(long part, long index) {
  switch (operation) {
  case ALL_GATHER: return value(index / part, index);
  case BROADCAST: return value(0, index);
  case ALL_TO_ALL: return value(index / part, rank * part + index % part);
  default: break;
  }
  if (operation == REDUCE_SCATTER) index += rank * part; // what it gets begins at the beginning
  int sum = 0;
  for (int of = 0; of < ranks; of++) sum += value(of, index);
  return sum;
}

// Elements that are wrong after a call, on all ranks; -1 when the call fails.
static long wrong(const char *of, size_t size, long count) {
  long part = count / ranks, wrong = 0;
  for (long i = 0; i < count; i++) {
    int has = operation == ALL_GATHER ? i / part == rank : operation == BROADCAST ? rank == 0 : operation != ALL_TO_ALL;
    put(input, size, i, bits(of, value(rank, i)));
    put(output, size, i, bits(of, has ? value(rank, i) : 0));
  }
  if (call(count) != MPI_SUCCESS) return -1;
  for (long i = 0; i < (operation == REDUCE_SCATTER ? part : count); i++) {
    uint32_t is = 0;
    memcpy(&is, output + i * size, size);
    wrong += is != bits(of, expected(part, i));
  }
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  return wrong;
}

// Seconds of a call.
static double batch(long count, long calls) {
  double begin = MPI_Wtime();
  for (long i = 0; i < calls; i++) call(count);
  return (MPI_Wtime() - begin) / calls;
}

static int compare(const void *one, const void *other) {
  double a = *(const double *)one, b = *(const double *)other;
  return (a > b) - (a < b);
}

static void measure(long bytes, double seconds, size_t size, long not_right) {
  long count = bytes / size, warm = bytes <= 65536 ? 50 : bytes <= (4 << 20) ? 5 : 2;
  memset(input, 0, bytes);
  memset(output, 0, bytes);
  batch(count, warm);
  MPI_Barrier(MPI_COMM_WORLD);
  double one = batch(count, warm);
  MPI_Allreduce(MPI_IN_PLACE, &one, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  if (one < 1e-8) one = 1e-8;
  long calls = 1e-3 / one + 1, batches = seconds / (one * calls);
  calls = calls > 10000 ? 10000 : calls;
  long least = one > 0.2 ? 3 : 11;
  batches = batches < least ? least : batches > 400 ? 400 : batches;
  double *times = malloc(batches * sizeof *times);
  for (long i = 0; i < batches; i++) {
    MPI_Barrier(MPI_COMM_WORLD);
    times[i] = batch(count, calls);
  }
  MPI_Allreduce(MPI_IN_PLACE, times, batches, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  qsort(times, batches, sizeof *times, compare);
  if (!rank) printf("%ld %.4f %.4f %ld\n", bytes, times[batches / 2] * 1e6, times[0] * 1e6, not_right), fflush(stdout);
  free(times);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (argc != 5) return MPI_Abort(MPI_COMM_WORLD, 2);
  while (operation < OPERATIONS && strcmp(argv[1], NAMES[operation])) operation++;
  size_t size = 2;
  type = MPI_DATATYPE_NULL;
  if (!strcmp(argv[2], "f32")) type = MPI_FLOAT, size = 4;
#ifdef MPIX_C_FLOAT16
  if (!strcmp(argv[2], "f16")) type = MPIX_C_FLOAT16;
#endif
#ifdef MPIX_C_BF16
  if (!strcmp(argv[2], "bf16")) type = MPIX_C_BF16;
#endif
  long most = 0;
  for (char *at = argv[4]; *at; at += *at == ',') {
    long bytes = strtol(at, &at, 10);
    most = bytes > most ? bytes : most;
  }
  if (operation == OPERATIONS || posix_memalign((void **)&input, 4096, most) || posix_memalign((void **)&output, 4096, most))
    return MPI_Abort(MPI_COMM_WORLD, 2);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  for (char *at = argv[4]; *at; at += *at == ',') {
    long bytes = strtol(at, &at, 10);
    long not_right = type == MPI_DATATYPE_NULL ? -1 : wrong(argv[2], size, bytes / size);
    if (not_right < 0) { // it has no such type, or does not add it
      if (!rank) puts("absent");
      break;
    }
    measure(bytes, atof(argv[3]) / 1e3, size, not_right);
  }
  MPI_Finalize();
  return 0;
}
