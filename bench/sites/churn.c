/* Eight functions that allocate blocks of their own size. In each round they free half of their blocks, in random runs
   of about 256 KiB, and then allocate as many again in another order, so that each gets memory that another one has
   used. The blocks of hot functions are read every 10 ms from then on, the others never again.

   Arguments: the seed, MiB to allocate per second, rounds, then for each function BLOCK:MIB:1 if it is hot and
   BLOCK:MIB:0 if not. The program prints for each function the bytes of its blocks, and how many of them lie in pages
   that no hot block makes hot. It is valid C and C++: there it uses new and delete. */
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PAGE = 4096, STEP = 2048, COUNT = 8 };

#ifdef __cplusplus
#define ALLOCATE(size) (new char[size])
#define RELEASE(memory) (delete[] (memory))
#else
#define ALLOCATE(size) ((char *)malloc(size))
#define RELEASE(memory) (free(memory))
#endif

#define SITES SITE(0) SITE(1) SITE(2) SITE(3) SITE(4) SITE(5) SITE(6) SITE(7)

#define SITE(n) \
	__attribute__((noinline)) char *site_##n(size_t size) \
	{ \
		char *memory = ALLOCATE(size); \
		memset(memory, n + 1, size); \
		__asm__ volatile("" : : "r"(memory) : "memory"); /* memset() returns to here */ \
		return memory; \
	}
SITES
#undef SITE

static struct site {
	char *(*allocate)(size_t);
	size_t block, count;
	int hot;
	char **blocks;
} sites[COUNT] = {
#define SITE(n) { site_##n, 0, 0, 0, NULL },
	SITES
#undef SITE
};

static uint64_t state;

static uint64_t draw(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

/* Frees half of the blocks. */
static void release(struct site *s)
{
	size_t run = (256 << 10) / s->block + 1;

	for (size_t first = 0; first < s->count; first += run) {
		int kept = draw() % 2;

		for (size_t k = first; !kept && k < first + run && k < s->count; k++) {
			RELEASE(s->blocks[k]);
			s->blocks[k] = NULL;
		}
	}
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void wait_ms(long ms)
{
	struct timespec pause = { 0, ms * 1000 * 1000 };

	nanosleep(&pause, NULL);
}

static volatile char sum;

static void read_hot(void)
{
	static double last;

	if (now() - last < 0.01)
		return;
	last = now();
	for (struct site *s = sites; s < sites + COUNT; s++)
		for (size_t k = 0; s->hot && k < s->count; k++)
			for (size_t at = 0; s->blocks[k] && at < s->block; at += STEP)
				sum += s->blocks[k][at];
}

static void fill(struct site *s, double rate)
{
	static double begin, bytes;

	if (begin == 0)
		begin = now();
	for (size_t k = 0; k < s->count; k++) {
		if (s->blocks[k])
			continue;
		s->blocks[k] = s->allocate(s->block);
		bytes += s->block;
		while (bytes / rate > now() - begin) {
			wait_ms(2);
			read_hot();
		}
	}
}

/* The bytes of a block in pages without a mark. */
static size_t unmarked(const unsigned char *marks, uintptr_t first, uintptr_t start, size_t size)
{
	size_t bytes = 0;

	for (uintptr_t at = start; at < start + size; ) {
		uintptr_t end = (at / PAGE + 1) * PAGE;

		end = end < start + size ? end : start + size;
		bytes += marks[at / PAGE - first] ? 0 : end - at;
		at = end;
	}
	return bytes;
}

static void print_truth(void)
{
	uintptr_t low = UINTPTR_MAX, high = 0;

	for (struct site *s = sites; s < sites + COUNT; s++)
		for (size_t k = 0; k < s->count; k++) {
			uintptr_t start = (uintptr_t)s->blocks[k];

			low = start < low ? start : low;
			high = start + s->block > high ? start + s->block : high;
		}
	uintptr_t first = low / PAGE;
	unsigned char *marks = (unsigned char *)calloc(high / PAGE - first + 1, 1);

	for (struct site *s = sites; s < sites + COUNT; s++)
		for (size_t k = 0; s->hot && k < s->count; k++)
			for (size_t at = 0; at < s->block; at += STEP)
				marks[((uintptr_t)s->blocks[k] + at) / PAGE - first] = 1;
	for (struct site *s = sites; s < sites + COUNT; s++) {
		size_t cold = 0;

		for (size_t k = 0; k < s->count; k++)
			cold += unmarked(marks, first, (uintptr_t)s->blocks[k], s->block);
		printf("site_%d %zu %zu\n", (int)(s - sites), s->count * s->block, cold);
	}
	puts("end");
	fflush(stdout);
	free(marks);
}

int main(int argc, char **argv)
{
	if (argc != COUNT + 4)
		return 2;
	/* All blocks come from one heap, so that functions reuse each other's memory. */
	mallopt(M_MMAP_THRESHOLD, 1 << 30);
	state = strtoull(argv[1], NULL, 10) * 2654435761u + 88172645463325252u;
	double rate = atof(argv[2]) * (1 << 20);
	int rounds = atoi(argv[3]);

	for (int n = 0; n < COUNT; n++) {
		size_t mib;

		if (sscanf(argv[n + 4], "%zu:%zu:%d", &sites[n].block, &mib, &sites[n].hot) != 3)
			return 2;
		sites[n].count = (mib << 20) / sites[n].block;
		sites[n].blocks = (char **)calloc(sites[n].count, sizeof(char *));
	}
	for (int round = 0; round < rounds; round++) {
		for (struct site *s = sites; round && s < sites + COUNT; s++)
			release(s);
		for (int n = 0; n < COUNT; n++)
			fill(&sites[(n + 3 * round) % COUNT], rate);
	}
	print_truth();
	for (;;) {
		read_hot();
		wait_ms(10);
	}
}
