// SPDX-License-Identifier: MIT OR Apache-2.0
/* Checks what the preload library reports. It calls the functions here instead of its own, because the program comes
 * first. ISOTHERM_ALLOC_BYTES is 1024, so that large blocks are always sampled. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BLOCK (1ul << 20)
#define MEAN 1024

#define CHECK(what)                                                     \
	do {                                                            \
		if (!(what)) {                                          \
			fprintf(stderr, "line %d: %s\n", __LINE__, #what); \
			exit(1);                                        \
		}                                                       \
	} while (0)

/* the last sampled block, until it is released */
static __thread void *live;
static __thread uint64_t last_mean, samples;

void isotherm_allocated(void *address, size_t size, uint64_t mean)
{
	(void)size;
	live = address;
	last_mean = mean;
	samples++;
}

void isotherm_released(void *address)
{
	if (address == live)
		live = NULL;
}

static void check_owned(void *block)
{
	CHECK(block && live == block);
	free(block);
	CHECK(!live);
}

static void check_blocks(void)
{
	volatile size_t too_much = SIZE_MAX / 4;
	void *block = malloc(BLOCK);

	CHECK(!realloc(block, too_much));
	check_owned(block);
	check_owned(valloc(BLOCK));
	check_owned(pvalloc(BLOCK));
}

/* The search for a function that the allocator lacks allocates an error message, which may be sampled. */
#define CHECK_RELEASE(name, type, ...)                                  \
	do {                                                            \
		void *block = malloc(BLOCK);                            \
		void (*release) type = (void (*) type)dlsym(RTLD_DEFAULT, name); \
		CHECK(release && live == block);                        \
		release(__VA_ARGS__);                                   \
		CHECK(live != block);                                   \
	} while (0)

static void sample(int more)
{
	for (uint64_t until = samples + more; samples < until;)
		free(malloc(64));
}

static void *burst(void *unused)
{
	while (last_mean < 64 * MEAN)
		free(malloc(BLOCK));
	return unused;
}

static void check_means(void)
{
	struct timespec pause = { 3, 0 };
	uint64_t mean;
	pthread_t thread;

	/* The interval of this thread was drawn with the earlier mean. */
	sample(1);
	CHECK(!pthread_create(&thread, NULL, burst, NULL) && !pthread_join(thread, NULL));
	sample(1);
	CHECK(last_mean == MEAN);
	sample(1);
	mean = last_mean;
	CHECK(mean > 8 * MEAN);
	/* Few samples are enough to find that they are few. */
	nanosleep(&pause, NULL);
	sample(3);
	CHECK(last_mean < mean);
}

int main(void)
{
	check_blocks();
	CHECK_RELEASE("free_sized", (void *, size_t), block, BLOCK);
	CHECK_RELEASE("free_aligned_sized", (void *, size_t, size_t), block, 16, BLOCK);
	CHECK_RELEASE("dallocx", (void *, int), block, 0);
	CHECK_RELEASE("sdallocx", (void *, size_t, int), block, BLOCK, 0);
	check_means();
	return 0;
}
