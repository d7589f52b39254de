/* Does to its memory at random what makes samples of it wrong if they are counted badly, from its first line of input on.
   Arguments: seed, number of steps, ms from one step to the next, and the kinds of steps:
   - t: touches pages
   - d: drops pages
   - u: unmaps pages, and maps the range again
   - p: shares all memory with a child, and writes to some of it
   - c: the same, and the child writes to some of it before that
   - a: reads one page in 16 of shared memory, and the kernel maps those around it
   - w: writes to shared memory; with this kind it is a file, whose pages have one more fault at their first write
   At the end it prints how many pages are resident, private and shared ones. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096ul
#define PAGES 8192ul
#define PRIVATE 6
#define ARENAS 8

static char *arenas[ARENAS];
static int file;
static uint64_t state;

static unsigned long below(unsigned long n)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (state >> 33) % n;
}

static void check(int is_right)
{
	if (!is_right) {
		perror("shuffle");
		exit(1);
	}
}

struct range {
	unsigned long arena, first, pages;
};

static char *at(struct range r)
{
	return arenas[r.arena] + r.first * PAGE;
}

/* Most ranges are small, some are a whole arena. */
static struct range some(unsigned long arena, unsigned long arenas)
{
	struct range r = { arena + below(arenas), 0, PAGES >> below(5) };

	r.first = below(PAGES - r.pages + 1);
	return r;
}

static void map(struct range r)
{
	int is_private = r.arena < PRIVATE;
	int kind = MAP_FIXED | (is_private ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
	off_t offset = is_private ? 0 : ((r.arena - PRIVATE) * PAGES + r.first) * PAGE;
	char *got = mmap(at(r), r.pages * PAGE, PROT_READ | PROT_WRITE, kind, is_private ? -1 : file, offset);

	check(got == at(r));
	madvise(got, r.pages * PAGE, MADV_NOHUGEPAGE);
}

/* In order, or in strides. */
__attribute__((noinline)) static void touch(struct range r)
{
	unsigned long stride = 1ul << below(6);

	for (unsigned long i = 0; i < stride; i++)
		for (unsigned long page = i; page < r.pages; page += stride)
			at(r)[page * PAGE]++;
	__asm__ volatile("" : : : "memory");
}

__attribute__((noinline)) static void read_around(struct range r)
{
	unsigned long stride = 16ul << below(3);

	for (unsigned long i = 0; i < stride; i += 16)
		for (unsigned long page = i; page < r.pages; page += stride)
			*(volatile char *)(at(r) + page * PAGE);
	__asm__ volatile("" : : : "memory");
}

static void share(int child_writes)
{
	int done[2];
	char byte;
	pid_t child;

	check(!pipe(done));
	child = fork();
	check(child >= 0);
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (child_writes)
			touch(some(0, PRIVATE));
		check(write(done[1], "x", 1) == 1);
		for (;;)
			pause();
	}
	check(read(done[0], &byte, 1) == 1);
	for (int i = 0; i < 4; i++)
		touch(some(0, PRIVATE));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	close(done[0]);
	close(done[1]);
}

static void step(char kind)
{
	struct range r = some(0, ARENAS);

	switch (kind) {
	case 't':
		touch(some(0, PRIVATE));
		break;
	case 'd':
		check(!madvise(at(r), r.pages * PAGE, MADV_DONTNEED));
		break;
	case 'u':
		check(!munmap(at(r), r.pages * PAGE));
		map(r);
		break;
	case 'p':
	case 'c':
		share(kind == 'c');
		break;
	case 'a':
		read_around(some(PRIVATE, ARENAS - PRIVATE));
		break;
	case 'w':
		touch(some(PRIVATE, ARENAS - PRIVATE));
	}
}

static unsigned long resident(unsigned long first, unsigned long last)
{
	static uint64_t entries[PAGES];
	unsigned long n = 0;
	int pagemap = open("/proc/self/pagemap", O_RDONLY);

	for (unsigned long i = first; i < last; i++) {
		off_t offset = (uintptr_t)arenas[i] / PAGE * sizeof(*entries);

		check(pread(pagemap, entries, sizeof(entries), offset) == sizeof(entries));
		for (unsigned long page = 0; page < PAGES; page++)
			n += entries[page] >> 63;
	}
	return n;
}

int main(int argc, char **argv)
{
	long steps = argc > 4 ? atol(argv[2]) : 0, ms = argc > 4 ? atol(argv[3]) : 0;
	struct timespec wait = { ms / 1000, ms % 1000 * 1000000 };
	const char *kinds = argv[4];
	static char zeros[PAGE];

	state = strtoul(argv[1], NULL, 10);
	file = strchr(kinds, 'w') ? open(".", O_TMPFILE | O_RDWR, 0600) : memfd_create("shuffle", 0);
	for (unsigned long i = 0; i < (ARENAS - PRIVATE) * PAGES; i++)
		check(write(file, zeros, PAGE) == PAGE);
	/* One after the other, so that the report of a part of the memory is one range. */
	arenas[0] = mmap(NULL, ARENAS * PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(arenas[0] != MAP_FAILED);
	for (unsigned long i = 0; i < ARENAS; i++) {
		arenas[i] = arenas[0] + i * PAGES * PAGE;
		map((struct range){ i, 0, PAGES });
	}
	printf("%lx\n", (unsigned long)arenas[0]);
	fflush(stdout);
	if (getchar() == EOF)
		return 1;
	for (long i = 0; i < steps; i++) {
		step(kinds[below(strlen(kinds))]);
		nanosleep(&wait, NULL);
	}
	printf("%lu %lu\n", resident(0, PRIVATE), resident(PRIVATE, ARENAS));
	fflush(stdout);
	pause();
	return 0;
}
