/* Twenty functions, each of which fills memory of a given size. The hot ones are written to every 10 ms, the others
   never again. Arguments: MiB to fill per second, then KiB:1 for a hot function, KiB:0 for a cold one. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PAGE = 4096, COUNT = 20 };

#define SITES \
	SITE(0) SITE(1) SITE(2) SITE(3) SITE(4) SITE(5) SITE(6) SITE(7) SITE(8) SITE(9) \
	SITE(10) SITE(11) SITE(12) SITE(13) SITE(14) SITE(15) SITE(16) SITE(17) SITE(18) SITE(19)

#define SITE(n) \
	__attribute__((noinline)) char *site_##n(size_t size) \
	{ \
		char *memory = malloc(size); \
		for (size_t at = 0; memory && at < size; at += PAGE) \
			((volatile char *)memory)[at] = n + 1; \
		return memory; \
	}
SITES
#undef SITE

static struct {
	char *(*fill)(size_t);
	char *memory;
	size_t size;
	int hot;
} sites[COUNT] = {
#define SITE(n) { site_##n, NULL, 0, 0 },
	SITES
#undef SITE
};

static double rate;

/* Waits for as long as a program takes that fills so much at the rate. */
static void wait_for(size_t bytes)
{
	double seconds = bytes / rate;
	struct timespec pause = { seconds, (seconds - (long)seconds) * 1e9 };

	nanosleep(&pause, NULL);
}

static void fill(int from, int to)
{
	for (int n = from; n < to; n++) {
		sites[n].memory = sites[n].fill(sites[n].size);
		wait_for(sites[n].size);
	}
}

/* The last ten run in a thread of their own. */
static void *in_thread(void *none)
{
	fill(COUNT / 2, COUNT);
	return none;
}

int main(int argc, char **argv)
{
	struct timespec pause = { 0, 10 * 1000 * 1000 };
	pthread_t thread;

	if (argc != COUNT + 2)
		return 2;
	rate = atof(argv[1]) * (1 << 20);
	for (int n = 0; n < COUNT; n++) {
		char *end;

		sites[n].size = strtoul(argv[n + 2], &end, 10) << 10;
		sites[n].hot = *end == ':' && end[1] == '1';
	}
	fill(0, COUNT / 2);
	if (pthread_create(&thread, NULL, in_thread, NULL))
		return 1;
	pthread_join(thread, NULL);
	for (;;) {
		for (int n = 0; n < COUNT; n++)
			for (size_t at = 0; sites[n].hot && at < sites[n].size; at += PAGE)
				((volatile char *)sites[n].memory)[at]++;
		nanosleep(&pause, NULL);
	}
}
