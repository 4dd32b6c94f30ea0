// What the machine gives an all-reduce of f32 between RANKS buffers of one host, in one of two ways:
//   limit add RANKS MS BYTES,...      one core's `a += b` of so many bytes, as often as two ranks go into RANKS: with two, each
//                                     of two cores adds one half and stores it twice, which is about as much
//   limit cores RANKS MS BYTES,...    as many threads as there are cores, and at most a rank each, of which each adds its share of all
//                                     buffers and stores the sums to all of them; nobody waits for anybody
// RANKS is 2 or 4. Prints for each size the bytes, the microseconds in the median batch and in the best, and the elements that
// are wrong; of `cores` by plain stores or by those around the caches, whichever is sooner. Built by the bench `collectives`.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#ifdef __AVX__
#include <immintrin.h>
#endif

enum { RANKS_MAX = 4, BATCHES_MAX = 400 };
typedef float Vector __attribute__((vector_size(32)));

static int ranks, threads, around, one_core;
static float *of[RANKS_MAX];
static long bytes, calls, batches;
static pthread_barrier_t together;
static double times[RANKS_MAX][BATCHES_MAX];

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return at.tv_sec + 1e-9 * at.tv_nsec;
}

static inline void store(Vector *to, Vector sum, int streamed) {
#ifdef __AVX__
  if (streamed) { _mm256_stream_ps((float *)to, (__m256)sum); return; }
#endif
  *to = sum;
}

static inline __attribute__((always_inline)) void reduce(int count, int streamed, long from, long to) {
  for (long i = from; i < to; i += sizeof(Vector)) {
    Vector sum = {0};
    for (int rank = 0; rank < count; rank++) sum += *(Vector *)((char *)of[rank] + i);
    for (int rank = 0; rank < count; rank++) store((Vector *)((char *)of[rank] + i), sum, streamed);
  }
}

// As the compiler makes it.
static __attribute__((noinline)) void add(float *restrict to, const float *restrict from, long count) {
  for (long i = 0; i < count; i++) to[i] += from[i];
}

static void share(int thread) {
  if (one_core) {
    for (int rank = 1; rank < ranks; rank += 2) add(of[rank - 1], of[rank], bytes / sizeof(float));
    return;
  }
  long each = bytes / threads / sizeof(Vector) * sizeof(Vector), from = each * thread;
  long to = thread + 1 == threads ? bytes : from + each;
  if (ranks == 2 && !around) reduce(2, 0, from, to);
  if (ranks == 2 && around) reduce(2, 1, from, to);
  if (ranks == 4 && !around) reduce(4, 0, from, to);
  if (ranks == 4 && around) reduce(4, 1, from, to);
}

static void *run(void *at) {
  int thread = (int)(long)at;
  for (long i = 0; i < batches; i++) {
    pthread_barrier_wait(&together);
    double begin = now();
    for (long k = 0; k < calls; k++) share(thread);
    times[thread][i] = (now() - begin) / calls;
  }
  return 0;
}

static int compare(const void *one, const void *other) {
  double a = *(const double *)one, b = *(const double *)other;
  return (a > b) - (a < b);
}

// Batches of so many calls, slowest thread each, from the best to the worst.
static double *timed(long many, long calls_each) {
  pthread_t others[RANKS_MAX];
  batches = many, calls = calls_each;
  for (int thread = 1; thread < threads; thread++) pthread_create(&others[thread], 0, run, (void *)(long)thread);
  run(0);
  for (int thread = 1; thread < threads; thread++) pthread_join(others[thread], 0);
  for (long i = 0; i < batches; i++)
    for (int thread = 1; thread < threads; thread++)
      if (times[thread][i] > times[0][i]) times[0][i] = times[thread][i];
  qsort(times[0], batches, sizeof(double), compare);
  return times[0];
}

static long within(double number, long least, long most) { return number < least ? least : number > most ? most : number; }

// Elements that are wrong after one turn of all threads.
static long wrong(void) {
  for (int rank = 0; rank < ranks; rank++)
    for (long i = 0; i < bytes / 4; i++) of[rank][i] = rank + i % 7;
  for (int thread = 0; thread < threads; thread++) share(thread);
  long wrong = 0;
  for (int rank = 0; rank < ranks; rank += one_core ? 2 : 1)
    for (long i = 0; i < bytes / 4; i++)
      wrong += of[rank][i] != (one_core ? 2 * (i % 7) + 2 * rank + 1 : ranks * (i % 7) + ranks * (ranks - 1) / 2);
  return wrong;
}

int main(int argc, char **argv) {
  if (argc != 5 || ((ranks = atoi(argv[2])) != 2 && ranks != 4)) return 2;
  one_core = !strcmp(argv[1], "add");
  long cores = one_core ? 1 : sysconf(_SC_NPROCESSORS_ONLN);
  threads = cores < ranks ? cores : ranks;
  pthread_barrier_init(&together, 0, threads);
  for (char *at = argv[4]; *at; at += *at == ',') {
    bytes = strtol(at, &at, 10) / sizeof(Vector) * sizeof(Vector);
    for (int rank = 0; rank < ranks; rank++) {
      int flags = MAP_ANONYMOUS | (one_core ? MAP_PRIVATE : MAP_SHARED);
      of[rank] = mmap(0, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
      if (of[rank] == MAP_FAILED) return 1;
    }
    long not_right = wrong();
    double median = 1e9, best = 1e9;
    for (around = 0; around < (one_core ? 1 : 2); around++) {
      for (int rank = 0; rank < ranks; rank++) memset(of[rank], 0, bytes);
      double one = timed(3, 2)[1];
      long calls_each = within(1e-3 / one + 1, 1, 10000), many = within(atof(argv[3]) / 1e3 / (one * calls_each), 11, BATCHES_MAX);
      double *sorted = timed(many, calls_each);
      if (sorted[many / 2] < median) median = sorted[many / 2], best = sorted[0];
    }
    around = 0;
    printf("%ld %.4f %.4f %ld\n", bytes, median * 1e6, best * 1e6, not_right);
    for (int rank = 0; rank < ranks; rank++) munmap(of[rank], bytes);
  }
  return 0;
}
