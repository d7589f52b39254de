/* Eight functions that allocate blocks of their own size and free them again, so that each gets memory that another
   one has touched first. At the end each owns a known number of MiB. The hot ones are read all the time, the others
   never again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB (1ul << 20)

/* number, bytes of a block, MiB, hot */
#define SITES \
	SITE(0, 48, 12, 0) SITE(1, 200, 24, 1) SITE(2, 1000, 20, 0) SITE(3, 4096, 32, 1) \
	SITE(4, 4096, 40, 0) SITE(5, 20000, 24, 0) SITE(6, 65536, 20, 1) SITE(7, 300000, 28, 0)

#define SITE(n, block, mib, hot) \
	__attribute__((noinline)) char *site_##n(size_t size) \
	{ char *memory = malloc(size); memset(memory, n + 1, size); return memory; }
SITES
#undef SITE

static struct site {
	char *(*allocate)(size_t);
	size_t block, count;
	int hot;
	char **blocks;
} sites[] = {
#define SITE(n, block, mib, hot) { site_##n, block, mib * MIB / block, hot, NULL },
SITES
#undef SITE
};
enum { N = sizeof sites / sizeof *sites };

int main(void)
{
	struct timespec pause = { 0, 10 * 1000 * 1000 };
	volatile char sum = 0;

	for (int i = 0; i < N; i++)
		sites[i].blocks = calloc(sites[i].count, sizeof(char *));
	/* In each round, every site frees its blocks and another one is the first to allocate. */
	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < N; i++)
			for (size_t k = 0; k < sites[i].count; k++)
				free(sites[i].blocks[k]);
		for (int n = 0; n < N; n++) {
			struct site *s = &sites[(n + 3 * round) % N];
			for (size_t k = 0; k < s->count; k++)
				s->blocks[k] = s->allocate(s->block);
		}
	}
	puts("ready");
	fflush(stdout);
	for (;;) {
		for (int i = 0; i < N; i++)
			for (size_t k = 0; sites[i].hot && k < sites[i].count; k++)
				for (size_t at = 0; at < sites[i].block; at += 2048)
					sum += sites[i].blocks[k][at];
		nanosleep(&pause, NULL);
	}
}
