/* Eight functions, each of which allocates and frees in another way. They do so in turns, so that each gets memory that
   another one has freed; keep() fills new memory once. At the end each owns a known number of MiB. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <unistd.h>

constexpr size_t MIB = 1 << 20;
struct alignas(64) Line {
	char bytes[64];
};

struct Kept {
	Kept *next;
	char bytes[1000];
};
Kept *kept;

/* number, bytes of a block, MiB, allocation, release */
#define SITES \
	SITE(0, 200, 12, malloc(size), free(memory)) \
	SITE(1, 4096, 24, calloc(1, size), free(memory)) \
	SITE(2, 1000, 20, realloc(malloc(size / 4), size), free(memory)) \
	SITE(3, 20000, 24, ({ void *m; posix_memalign(&m, 256, size); m; }), free(memory)) \
	SITE(4, 65536, 20, new char[size], delete[] static_cast<char *>(memory)) \
	SITE(5, 6400, 32, new Line[100], delete[] static_cast<Line *>(memory)) \
	SITE(6, 64, 12, new (std::nothrow) Line, delete static_cast<Line *>(memory)) \
	SITE(7, 12800, 28, new (std::nothrow) Line[200], delete[] static_cast<Line *>(memory))

#define SITE(n, block, mib, allocation, release) \
	__attribute__((noinline)) void *site_##n(size_t size) \
	{ void *memory = allocation; return memset(memory, n + 1, size); } \
	static void release_##n(void *memory) { release; }
SITES
#undef SITE

static struct {
	void *(*allocate)(size_t);
	void (*release)(void *);
	size_t block, count;
	void **blocks;
} sites[] = {
#define SITE(n, block, mib, ...) { site_##n, release_##n, block, mib * MIB / block, nullptr },
	SITES
#undef SITE
};
constexpr int N = sizeof sites / sizeof *sites;

__attribute__((noinline)) static void keep(size_t count)
{
	for (size_t i = 0; i < count; i++) {
		Kept *memory = static_cast<Kept *>(malloc(sizeof(Kept)));
		memset(memory->bytes, 1, sizeof memory->bytes);
		memory->next = kept;
		kept = memory;
	}
}

int main()
{
	keep(48 * MIB / sizeof(Kept));
	for (auto &s : sites)
		s.blocks = static_cast<void **>(calloc(s.count, sizeof(void *)));
	/* In each round, every site frees its blocks and another one is the first to allocate. */
	for (int round = 0; round < 4; round++) {
		for (auto &s : sites)
			for (size_t k = 0; round && k < s.count; k++)
				s.release(s.blocks[k]);
		for (int n = 0; n < N; n++) {
			auto &s = sites[(n + 3 * round) % N];
			for (size_t k = 0; k < s.count; k++)
				s.blocks[k] = s.allocate(s.block);
		}
	}
	for (;;)
		pause();
}
