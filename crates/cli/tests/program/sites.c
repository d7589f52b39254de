/* Twenty functions, each of which fills memory of a known size. The hot ones are written to all the time, the
   others never again. An argument is a number of rounds of 10 ms to run. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define MIB (1ul << 20)
#define PAGE 4096

static char *fill(size_t size)
{
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		exit(1);
	for (size_t i = 0; i < size; i += PAGE)
		memory[i] = 1;
	return memory;
}

/* number, MiB, hot */
#define SITES \
	SITE(0, 4, 1) SITE(1, 8, 0) SITE(2, 6, 1) SITE(3, 16, 0) SITE(4, 6, 0) \
	SITE(5, 8, 1) SITE(6, 12, 0) SITE(7, 24, 0) SITE(8, 5, 1) SITE(9, 10, 0) \
	SITE(10, 4, 0) SITE(11, 8, 1) SITE(12, 6, 0) SITE(13, 16, 0) SITE(14, 6, 1) \
	SITE(15, 8, 0) SITE(16, 12, 0) SITE(17, 4, 1) SITE(18, 5, 0) SITE(19, 10, 0)

#define SITE(n, mib, hot) \
	__attribute__((noinline)) char *site_##n(void) \
	{ char *memory = fill(mib * MIB); __asm__ volatile("" : : "r"(memory) : "memory"); return memory; }
SITES
#undef SITE

struct site {
	char *memory;
	size_t size;
	int hot;
};

static struct site sites[20];

/* The last ten run in a thread of their own. */
static void *in_thread(void *none)
{
#define SITE(n, mib, is_hot) if (n >= 10) sites[n] = (struct site){ site_##n(), mib * MIB, is_hot };
	SITES
#undef SITE
	return none;
}

int main(int argc, char **argv)
{
	long rounds = argc > 1 ? atol(argv[1]) : -1;
	struct timespec pause = { 0, 10 * 1000 * 1000 };
	pthread_t thread;

#define SITE(n, mib, is_hot) if (n < 10) sites[n] = (struct site){ site_##n(), mib * MIB, is_hot };
	SITES
#undef SITE
	if (pthread_create(&thread, NULL, in_thread, NULL))
		return 1;
	pthread_setname_np(thread, "filler");
	pthread_join(thread, NULL);
	for (; rounds; rounds--) {
		for (int n = 0; n < 20; n++)
			for (size_t i = 0; sites[n].hot && i < sites[n].size; i += PAGE)
				sites[n].memory[i]++;
		nanosleep(&pause, NULL);
	}
	return 0;
}
