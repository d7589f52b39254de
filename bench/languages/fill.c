/* Fills a table with strings in insert_all(), and keeps it. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STRINGS = 400000, SIZE = 100 };
static char *all[STRINGS];

__attribute__((noinline)) static void insert_all(void)
{
	for (int i = 0; i < STRINGS; i++) {
		all[i] = malloc(SIZE);
		memset(all[i], 'a' + i % 26, SIZE);
	}
}

int main(void)
{
	insert_all();
	for (;;)
		pause();
}
