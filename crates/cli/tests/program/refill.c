/* Comes back to the same memory again and again, from its first line of input on. Arguments: how, MiB, ms from one round
   to the next, and the number of rounds.
   - unmap: maps, fills and unmaps it
   - drop: fills it, and drops the pages
   - page_out: pages it out, and touches it again
   - swap_cache: pages it out, shares the swapped pages with a child that does not touch them, and reads them, so that
     most of them return from the swap cache; pages them out again
   - fork: shares all memory with a child, and writes to it
   - fork_slowly: the same, but so slowly that no sample is lost
   - spawn: fills it in another function, starts a program that borrows its memory until it runs, and drops the pages
   - child: leaves all memory to a child too at the end, which writes to the same part of it after another line of input
   - around: shared memory that a child has filled: reads one page in 16 of it, and the kernel maps those around it;
     drops the pages, and waits as long again
   - file: reads one page in 16 of a file, and the kernel maps those around it; after a fork it writes to all of them,
     so slowly that no sample is lost
   - free: drops the pages at the end, after another line of input
   At the end it is filled, and as much other memory, which was touched only once, in a scattered order: pages that were
   touched early and late are neighbours. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096

static char *map_file(size_t size, int kind, int file)
{
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, kind, file, 0);

	if (memory == MAP_FAILED)
		exit(1);
	madvise(memory, size, MADV_NOHUGEPAGE);
	return memory;
}

static char *map(size_t size, int kind)
{
	return map_file(size, kind | MAP_ANONYMOUS, -1);
}

static char *map_new_file(size_t size)
{
	static const char zeros[PAGE];
	int file = open(".", O_TMPFILE | O_RDWR, 0600);

	for (size_t i = 0; i < size; i += PAGE)
		if (write(file, zeros, PAGE) != PAGE)
			exit(1);
	return map_file(size, MAP_SHARED, file);
}

__attribute__((noinline)) static void touch(char *memory, size_t size)
{
	for (size_t i = 0; i < size; i += PAGE)
		memory[i]++;
	__asm__ volatile("" : : : "memory");
}

__attribute__((noinline)) static void keep(char *memory, size_t size)
{
	for (size_t i = 0; i < size / PAGE; i++)
		memory[i * 7919 % (size / PAGE) * PAGE]++;
	__asm__ volatile("" : : : "memory");
}

__attribute__((noinline)) static void read_some(const volatile char *memory, size_t size)
{
	for (size_t i = 0; i < size; i += 16 * PAGE)
		memory[i];
	__asm__ volatile("" : : : "memory");
}

__attribute__((noinline)) static void refill(char *memory, size_t size, int is_filled)
{
	if (is_filled)
		read_some(memory, size);
	else
		touch(memory, size);
	__asm__ volatile("" : : : "memory");
}

__attribute__((noinline)) static void read_all(const volatile char *memory, size_t size)
{
	for (size_t i = 0; i < size; i += PAGE)
		memory[i];
	__asm__ volatile("" : : : "memory");
}

/* The pages that are swapped out have two users from now on. */
static void share_swapped(char *memory, size_t size)
{
	pid_t child;

	if (madvise(memory, size, MADV_PAGEOUT))
		exit(1);
	child = fork();
	if (child < 0)
		exit(1);
	if (!child && !prctl(PR_SET_PDEATHSIG, SIGKILL))
		for (;;)
			pause();
	read_all(memory, size);
}

static void fill_in_child(char *memory, size_t size)
{
	pid_t child = fork();

	if (child < 0)
		exit(1);
	if (!child) {
		touch(memory, size);
		_exit(0);
	}
	waitpid(child, NULL, 0);
}

/* Each page is copied. */
__attribute__((noinline)) static void write_shared(char *memory, size_t size, int slowly)
{
	struct timespec wait = { 0, 1000 * 1000 };

	for (size_t i = 0; i < size; i += 64 * PAGE) {
		touch(memory + i, 64 * PAGE);
		if (slowly)
			nanosleep(&wait, NULL);
	}
	__asm__ volatile("" : : : "memory");
}

static void share(char *stays, char *memory, size_t size, int slowly)
{
	pid_t child = fork();

	if (child < 0)
		exit(1);
	while (!child)
		pause();
	write_shared(stays, size, slowly);
	write_shared(memory, size, slowly);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

static void write_slowly_after_fork(char *memory, size_t size)
{
	struct timespec wait = { 0, 1000 * 1000 };
	pid_t child = fork();

	if (child < 0)
		exit(1);
	if (!child)
		_exit(0);
	waitpid(child, NULL, 0);
	for (size_t i = 0; i < size; i += 64 * PAGE) {
		refill(memory + i, 64 * PAGE, 0);
		nanosleep(&wait, NULL);
	}
}

static void spawn(void)
{
	char *words[] = { "true", NULL };
	pid_t child;

	if (posix_spawnp(&child, words[0], NULL, NULL, words, NULL))
		exit(1);
	waitpid(child, NULL, 0);
}

int main(int argc, char **argv)
{
	const char *how = argv[1];
	size_t size = strtoul(argv[2], NULL, 10) << 20;
	long ms = atol(argv[3]), rounds = atol(argv[4]);
	struct timespec wait = { ms / 1000, ms % 1000 * 1000000 };
	int is_around = !strcmp(how, "around");
	int kind = is_around ? MAP_SHARED : MAP_PRIVATE;
	int is_file = !strcmp(how, "file");
	char *stays = map(size, MAP_PRIVATE), *memory = is_file ? map_new_file(size) : map(size, kind);

	if (getchar() == EOF)
		return 1;
	if (is_around)
		fill_in_child(memory, size);
	keep(stays, size);
	if (!strcmp(how, "spawn")) {
		write_shared(memory, size, 0);
		nanosleep(&wait, NULL);
		spawn();
		madvise(memory, size, MADV_DONTNEED);
	}
	if (is_file) {
		read_some(memory, size);
		nanosleep(&wait, NULL);
		write_slowly_after_fork(memory, size);
		rounds = 0;
	}
	for (long i = 1; i <= rounds; i++) {
		if (i == 1 || strcmp(how, "swap_cache"))
			refill(memory, size, is_around);
		nanosleep(&wait, NULL);
		if (i == rounds)
			break;
		if (!strcmp(how, "unmap")) {
			munmap(memory, size);
			memory = map(size, kind);
		} else if (!strcmp(how, "drop") || is_around) {
			madvise(memory, size, MADV_DONTNEED);
			if (is_around)
				nanosleep(&wait, NULL);
		} else if (!strcmp(how, "swap_cache")) {
			if (i == 1)
				share_swapped(memory, size);
			if (madvise(memory, size, MADV_PAGEOUT))
				return 1;
			read_all(memory, size);
		} else if (!strncmp(how, "fork", 4)) {
			share(stays, memory, size, !strcmp(how, "fork_slowly"));
		} else if (madvise(memory, size, MADV_PAGEOUT)) {
			return 1;
		}
	}
	puts("done");
	fflush(stdout);
	if (!strcmp(how, "free") && getchar() != EOF) {
		madvise(memory, size, MADV_DONTNEED);
		puts("freed");
		fflush(stdout);
	}
	if (!strcmp(how, "child") && !fork() && !prctl(PR_SET_PDEATHSIG, SIGKILL) && getchar() != EOF) {
		write_shared(memory, size, 0);
		puts("written");
		fflush(stdout);
	}
	pause();
	return 0;
}
