/* Fills 64 MiB, and then touches one page of them at a time, at random, about a thousand a second: page-out of what
   is idle for some seconds brings each of them back. */
#include <stdlib.h>
#include <time.h>

#define PAGES 16384ul
#define PAGE 4096

static char memory[PAGES * PAGE];

__attribute__((noinline)) static void bring_back(void)
{
	memory[(size_t)random() % PAGES * PAGE]++;
	__asm__ volatile("" : : : "memory");
}

int main(void)
{
	struct timespec pause = { 0, 1000 * 1000 };

	for (size_t i = 0; i < PAGES; i++)
		memory[i * PAGE] = 1;
	for (;;) {
		bring_back();
		nanosleep(&pause, NULL);
	}
}
