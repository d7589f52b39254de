// SPDX-License-Identifier: MIT OR Apache-2.0
/* Samples the allocations of a program, by bytes. The dynamic linker loads this library before the allocator of
 * the program (LD_PRELOAD), and each function here forwards to that allocator.
 *
 * A sampled allocation calls isotherm_allocated(), and its release isotherm_released(). isotherm puts events on
 * these functions, which report the arguments and the call stack. So an allocation that is not sampled never
 * enters the kernel, and without isotherm nothing happens at all. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))
/* Memory of a thread that is there without an allocation. */
#define THREAD_LOCAL static __thread __attribute__((tls_model("initial-exec")))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Mean number of bytes between two samples, unless ISOTHERM_ALLOC_BYTES says otherwise. */
#define DEFAULT_MEAN (512 * 1024)

static _Atomic uint64_t mean = DEFAULT_MEAN;

/* --- sampled allocations --- */

/* Addresses of the sampled allocations, by open addressing: each is within PROBES entries of its hash. */
#define ENTRIES (1u << 20)
#define PROBES 32
#define FREE 0ul
#define LEFT 1ul /* free again: others may stand behind it */
static _Atomic uintptr_t sampled[ENTRIES];
/* Number of sampled allocations by the upper bits of the hash: nearly all releases need to look here only. */
static _Atomic uint16_t counts[1u << 16];

static uint64_t hash(uintptr_t address)
{
	return (address >> 4) * 0x9e3779b97f4a7c15ull;
}

static _Atomic uint16_t *count_of(uint64_t h)
{
	return &counts[h >> 48];
}

static _Atomic uintptr_t *entry(uint64_t h, uint64_t probe)
{
	return &sampled[((h >> 40) + probe) % ENTRIES];
}

static int add(uintptr_t address)
{
	uint64_t h = hash(address);

	for (int i = 0; i < PROBES; i++) {
		uintptr_t there = atomic_load_explicit(entry(h, i), memory_order_relaxed);
		if (there <= LEFT && atomic_compare_exchange_strong(entry(h, i), &there, address)) {
			atomic_fetch_add(count_of(h), 1);
			return 1;
		}
	}
	return 0;
}

static int take(uintptr_t address)
{
	uint64_t h = hash(address);

	if (LIKELY(!atomic_load_explicit(count_of(h), memory_order_relaxed)))
		return 0;
	for (int i = 0; i < PROBES; i++) {
		uintptr_t there = atomic_load_explicit(entry(h, i), memory_order_relaxed);
		if (there == FREE)
			return 0;
		if (there == address && atomic_compare_exchange_strong(entry(h, i), &there, LEFT)) {
			atomic_fetch_sub(count_of(h), 1);
			return 1;
		}
	}
	return 0;
}

/* isotherm puts its events here. `bytes` is the mean distance from the previous sample of the thread. */
EXPORT __attribute__((noinline)) void isotherm_allocated(void *address, size_t size, uint64_t bytes)
{
	__asm__ volatile("" : : "r"(address), "r"(size), "r"(bytes) : "memory");
}

EXPORT __attribute__((noinline)) void isotherm_released(void *address)
{
	__asm__ volatile("" : : "r"(address) : "memory");
}

/* --- which allocations are sampled --- */

THREAD_LOCAL int64_t bytes_left;
/* the mean with which bytes_left was drawn */
THREAD_LOCAL uint64_t drawn_mean;
THREAD_LOCAL uint64_t random_state;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* xorshift64* */
static uint64_t next_random(void)
{
	uint64_t x = random_state;

	if (!x)
		x = (hash((uintptr_t)&bytes_left) ^ now_ns() * 0x2545f4914f6cdd1dull) | 1;
	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	random_state = x;
	return x * 0x2545f4914f6cdd1dull;
}

/* log2(x) for 1 <= x < 2, within 0.0001. */
static double log2_of_mantissa(double x)
{
	double t = (x - 1) / (x + 1), t2 = t * t;

	return 2.885390082 * t * (1 + t2 * (1.0 / 3 + t2 * (1.0 / 5 + t2 * (1.0 / 7))));
}

/* Draws the bytes until the next sample: exponentially distributed, so that each byte is equally likely to be sampled. */
static void draw_interval(uint64_t bytes)
{
	uint64_t u = (next_random() >> 11) | 1; /* up to 2^53 */
	int exponent = 63 - __builtin_clzll(u);
	double log2u = exponent - 53 + log2_of_mantissa((double)u / (double)(1ull << exponent));

	bytes_left = (int64_t)(-log2u * 0.6931471806 * (double)bytes) + 1;
	drawn_mean = bytes;
}

/* If CHECKED_EVERY samples come faster than this, their mean distance doubles; if far slower, it falls again. A sample
 * takes about 10 us, so that this is 0.5 % of a CPU, and as much for the releases. A program that allocates a GiB at full
 * speed has 1400 samples, which fit into the ring of a CPU even if it is read late. */
#define MOST_SAMPLES_PER_S 500
#define CHECKED_EVERY 256

static uint64_t wanted_mean = DEFAULT_MEAN;

/* Before main(): later setenv() may call realloc() with an environment that is no longer valid. */
static __attribute__((constructor)) void read_wanted_mean(void)
{
	const char *text = getenv("ISOTHERM_ALLOC_BYTES");
	uint64_t bytes = text ? strtoull(text, NULL, 10) : 0;

	if (bytes)
		wanted_mean = bytes;
	atomic_store(&mean, wanted_mean);
}

static void adapt(void)
{
	const uint64_t allowed = CHECKED_EVERY * 1000000000ull / MOST_SAMPLES_PER_S;
	static _Atomic uint64_t samples, begin;
	/* Before the count: of the samples since then. */
	uint64_t was = atomic_load(&begin), n = atomic_fetch_add(&samples, 1) + 1, now = now_ns(), passed = now - was;
	uint64_t bytes = atomic_load(&mean);

	/* After a burst, few samples may come for a long time. A program that starts may have a longer burst. */
	if (n < CHECKED_EVERY && (!was || passed <= 4 * allowed))
		return;
	if (!atomic_compare_exchange_strong(&begin, &was, now))
		return; /* another thread does it */
	atomic_store(&samples, 0);
	if (passed < allowed)
		atomic_store(&mean, bytes * 2);
	else if (passed > 4 * allowed && bytes > wanted_mean)
		atomic_store(&mean, bytes / 2);
}

static __attribute__((noinline)) void sample(void *address, size_t size)
{
	int is_first = !random_state;
	uint64_t bytes = atomic_load_explicit(&mean, memory_order_relaxed), drawn;

	if (is_first) {
		/* A thread begins in the middle of an interval. */
		draw_interval(bytes);
		bytes_left -= (int64_t)size;
		if (bytes_left > 0)
			return;
	}
	/* An allocation in which several samples lie is reported once: isotherm computes with the probability that
	 * none lies in it. */
	drawn = drawn_mean;
	draw_interval(bytes);
	if (add((uintptr_t)address)) {
		isotherm_allocated(address, size, drawn);
		adapt();
	}
}

static void *allocated(void *address, size_t size)
{
	if (LIKELY(address)) {
		bytes_left -= (int64_t)size;
		if (UNLIKELY(bytes_left <= 0))
			sample(address, size);
	}
	return address;
}

/* Whether it was sampled. */
static int released(void *address)
{
	if (LIKELY(!take((uintptr_t)address)))
		return 0;
	isotherm_released(address);
	return 1;
}

/* --- the allocator --- */

/* dlsym() may allocate before malloc() is found. */
static _Alignas(16) char early[16 * 1024];
static _Atomic size_t early_used;

static void *early_alloc(size_t size)
{
	size_t at = atomic_fetch_add(&early_used, (size + 15) & ~(size_t)15);

	if (at <= sizeof early && size <= sizeof early - at)
		return early + at;
	errno = ENOMEM;
	return NULL;
}

static int is_early(const void *address)
{
	return (const char *)address >= early && (const char *)address < early + sizeof early;
}

THREAD_LOCAL int is_resolving;

/* Stands for a function that no library behind this one defines: looking for it each time would be slow. */
static const char missing;

/* The next definition of a function, behind this library. NULL if there is none, or while one is looked for. */
static void *next(_Atomic(void *) *known, const char *name)
{
	void *found = atomic_load_explicit(known, memory_order_acquire);

	if (UNLIKELY(!found) && !is_resolving) {
		is_resolving = 1;
		found = dlsym(RTLD_NEXT, name);
		is_resolving = 0;
		atomic_store_explicit(known, found ? found : (void *)&missing, memory_order_release);
	}
	return UNLIKELY(found == &missing) ? NULL : found;
}

#define NEXT(type, name)                \
	static _Atomic(void *) known;   \
	__typeof__(type) real = (__typeof__(type))next(&known, name);

EXPORT void *malloc(size_t size)
{
	NEXT(void *(*)(size_t), "malloc")
	return UNLIKELY(!real) ? early_alloc(size) : allocated(real(size), size);
}

EXPORT void *calloc(size_t n, size_t size)
{
	NEXT(void *(*)(size_t, size_t), "calloc")
	return UNLIKELY(!real) ? early_alloc(n * size) : allocated(real(n, size), n * size);
}

EXPORT void free(void *address)
{
	NEXT(void (*)(void *), "free")
	if (UNLIKELY(!address || is_early(address) || !real))
		return;
	released(address);
	real(address);
}

/* A sampled allocation that realloc() could not replace remains. */
static __attribute__((noinline)) void remains(void *address)
{
	NEXT(size_t (*)(void *), "malloc_usable_size")
	if (real && add((uintptr_t)address))
		isotherm_allocated(address, real(address), atomic_load(&mean));
}

EXPORT void *realloc(void *address, size_t size)
{
	void *result;
	int was_sampled;

	NEXT(void *(*)(void *, size_t), "realloc")
	if (UNLIKELY(!real || is_early(address))) {
		void *new = malloc(size);
		size_t most = address ? (size_t)(early + sizeof early - (char *)address) : 0;
		if (new && address)
			memcpy(new, address, size < most ? size : most);
		return new;
	}
	/* Before another thread can get the address. */
	was_sampled = address && released(address);
	result = real(address, size);
	if (UNLIKELY(was_sampled && !result && size)) {
		remains(address);
		errno = ENOMEM;
	}
	return size ? allocated(result, size) : result;
}

/* That of the C library would not call realloc() here. */
EXPORT void *reallocarray(void *address, size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes)) {
		errno = ENOMEM;
		return NULL;
	}
	return realloc(address, bytes);
}

EXPORT int posix_memalign(void **out, size_t alignment, size_t size)
{
	NEXT(int (*)(void **, size_t, size_t), "posix_memalign")
	int error = real ? real(out, alignment, size) : ENOMEM;

	if (!error)
		allocated(*out, size);
	return error;
}

EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
	NEXT(void *(*)(size_t, size_t), "aligned_alloc")
	return real ? allocated(real(alignment, size), size) : NULL;
}

EXPORT void *memalign(size_t alignment, size_t size)
{
	NEXT(void *(*)(size_t, size_t), "memalign")
	return real ? allocated(real(alignment, size), size) : NULL;
}

EXPORT void *valloc(size_t size)
{
	NEXT(void *(*)(size_t), "valloc")
	return real ? allocated(real(size), size) : NULL;
}

EXPORT void *pvalloc(size_t size)
{
	NEXT(void *(*)(size_t), "pvalloc")
	return real ? allocated(real(size), size) : NULL;
}

/* The operators of C++. Those of the C++ library call malloc() and free(), which are counted above. Other
 * allocators have their own, which do not. Without either, as in an interpreter that loads a C++ library later, they
 * are functions of C. */
#define OPERATOR_NEW(name, arguments, otherwise, ...)                   \
	EXPORT void *name arguments                                     \
	{                                                               \
		NEXT(void *(*) arguments, #name)                        \
		int64_t before = bytes_left;                            \
		uint64_t state = random_state;                          \
		void *address = real ? real(__VA_ARGS__) : otherwise;   \
		if (bytes_left == before && random_state == state)      \
			allocated(address, size);                       \
		return address;                                         \
	}

#define RELEASE(name, arguments, ...)                                   \
	EXPORT void name arguments                                      \
	{                                                               \
		NEXT(void (*) arguments, #name)                         \
		if (address)                                            \
			released(address);                              \
		if (real)                                               \
			real(__VA_ARGS__);                              \
		else                                                    \
			free(address);                                  \
	}

/* of an object (w, l), and of an array (a) */
#define OPERATORS_NEW(suffix, ...)                                      \
	OPERATOR_NEW(_Znw##suffix, __VA_ARGS__)                         \
	OPERATOR_NEW(_Zna##suffix, __VA_ARGS__)
#define OPERATORS_DELETE(suffix, ...)                                   \
	RELEASE(_Zdl##suffix, __VA_ARGS__)                              \
	RELEASE(_Zda##suffix, __VA_ARGS__)

OPERATORS_NEW(m, (size_t size), malloc(size), size)
OPERATORS_NEW(mRKSt9nothrow_t, (size_t size, const void *tag), malloc(size), size, tag)
OPERATORS_NEW(mSt11align_val_t, (size_t size, size_t alignment), memalign(alignment, size), size, alignment)
OPERATORS_NEW(mSt11align_val_tRKSt9nothrow_t, (size_t size, size_t alignment, const void *tag),
	      memalign(alignment, size), size, alignment, tag)
OPERATORS_DELETE(Pv, (void *address), address)
OPERATORS_DELETE(Pvm, (void *address, size_t size), address, size)
OPERATORS_DELETE(PvRKSt9nothrow_t, (void *address, const void *tag), address, tag)
OPERATORS_DELETE(PvSt11align_val_t, (void *address, size_t alignment), address, alignment)
OPERATORS_DELETE(PvmSt11align_val_t, (void *address, size_t size, size_t alignment), address, size, alignment)
OPERATORS_DELETE(PvSt11align_val_tRKSt9nothrow_t, (void *address, size_t alignment, const void *tag), address,
		 alignment, tag)

/* Functions of C23 and of jemalloc. An allocator without them never sees a call: free() does the same. */
RELEASE(free_sized, (void *address, size_t size), address, size)
RELEASE(free_aligned_sized, (void *address, size_t alignment, size_t size), address, alignment, size)
RELEASE(dallocx, (void *address, int flags), address, flags)
RELEASE(sdallocx, (void *address, size_t size, int flags), address, size, flags)
