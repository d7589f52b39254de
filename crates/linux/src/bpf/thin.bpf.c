// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Decides which page faults are sampled. It runs at each fault of a watched process.
 *
 * - Of pages that are touched, those of a fixed sample are taken: one page in 2^shift, selected by a hash of its
 *   number. So all faults of a sampled page are seen, and a page that is freed and filled again has one owner, the last
 *   one. The samples are nested: a page in the sample of 1 in 128 is also in that of 1 in 64.
 * - Of faults that waited for a disk or for swap, one in `stride` is taken, at a random place among them. So their rate
 *   is right even if a few pages have nearly all of them.
 *
 * Other faults cost neither the copy of their stack nor a place in the ring.
 *
 * A program that fills its memory faster than the ring is read would fill the ring too, and what it does next would
 * not be sampled at all. Therefore the sample halves when half of the ring is full, and again after each 16th.
 * Example: a ring has room for 448 samples. The first 224 are taken as they come, then 28 of the next 56, 28 of the
 * next 112, and so on: the ring has room for 14,000.
 */
#include "kernel.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum { BPF_MAP_TYPE_PERF_EVENT_ARRAY = 4, BPF_MAP_TYPE_PERCPU_ARRAY = 6 };

#define PAGE_SHIFT 12
#define BLOCK_SHIFT 21
/* The greatest sample: one page in 64. */
#define MIN_SHIFT 6
#define MAX_DOUBLINGS 10

enum kind { MINOR, MAJOR, READ };
/* The rings: of minor faults and of major ones. */
#define RINGS 2

__u32 shift = MIN_SHIFT;
__u32 stride = 1;
/* Number of times that user space has read the rings. */
__u32 reads = 1;
/* Set before loading: number of samples that each ring has room for, and of CPUs. */
const volatile __u32 room[RINGS] = { 448, 112 };
const volatile __u32 cpus = 1;

/* That of x86-64. */
struct bpf_perf_event_data {
	__u64 regs[21];
	__u64 sample_period;
	__u64 addr;
};

/* What a sample contains besides its stack. */
struct sample {
	__u64 address;
	/* number of pages or faults that it represents */
	__u64 weight;
	__u64 kind;
};

/* Of the faults of one CPU that go to one ring. */
struct thinning {
	/* the huge page that was sampled last */
	__u64 block;
	__u32 reads;
	/* samples taken since then */
	__u32 taken;
	/* Among how many faults one is taken, how many of them are left, and which one it is. */
	__u32 among;
	__u32 left;
	__u32 pick;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, RINGS);
	__type(key, __u32);
	__type(value, struct thinning);
} thinnings SEC(".maps");

/* The events that own the rings: those of all CPUs for minor faults, then those for major ones. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} outputs SEC(".maps");

static __always_inline struct thinning *thinning_of(__u32 ring)
{
	struct thinning *t = bpf_map_lookup_elem(&thinnings, &ring);

	if (t && t->reads != reads) {
		t->reads = reads;
		t->taken = 0;
		t->block = 0;
	}
	return t;
}

/* How many times the sample halves because the ring fills. */
static __always_inline __u32 doublings(const struct thinning *t, __u32 of_room)
{
	__u32 half = of_room / 2, n;

	if (t->taken < half)
		return 0;
	n = 1 + (t->taken - half) / (of_room / 16 + 1);
	return n < MAX_DOUBLINGS ? n : MAX_DOUBLINGS;
}

static __always_inline void put(struct bpf_perf_event_data *ctx, __u32 ring, struct thinning *t,
				__u64 weight, __u64 kind)
{
	struct sample sample = { .address = ctx->addr, .weight = weight, .kind = kind };

	t->taken++;
	bpf_perf_event_output(ctx, &outputs, ring * cpus + bpf_get_smp_processor_id(), &sample,
			      sizeof(sample));
}

/* As sample_level() of the crate core: its number of leading zeros is the greatest shift of a sample with `number`. */
static __always_inline __u64 hash(__u64 number)
{
	return number * 0x9e3779b97f4a7c15;
}

/*
 * Takes the fault if its page is in the sample, or if the huge page that it may have filled is: user space finds out
 * whether it has. Only the first fault can fill a huge page, so the next ones in the same place are left out.
 */
static __always_inline void take_page(struct bpf_perf_event_data *ctx, __u32 ring, __u32 of_room,
				      __u64 kind)
{
	__u64 block = ctx->addr >> BLOCK_SHIFT;
	__u64 of_page = hash(ctx->addr >> PAGE_SHIFT), of_block = hash(block);
	struct thinning *t;
	__u64 n;

	if (of_page >> (64 - MIN_SHIFT) && of_block >> (64 - MIN_SHIFT))
		return;
	t = thinning_of(ring);
	if (!t)
		return;
	n = shift + doublings(t, of_room);
	if (of_page >> (64 - n) && (of_block >> (64 - n) || t->block == block))
		return;
	if (!(of_block >> (64 - n)))
		t->block = block;
	put(ctx, ring, t, 1ull << n, kind);
}

/*
 * A sample represents all of those among which it was chosen. The stride grows because samples were taken, so it
 * waits for the last of them. It shrinks at any moment, whether or not one was taken.
 */
static __always_inline void take_at_random(struct bpf_perf_event_data *ctx, __u32 ring, __u32 of_room)
{
	struct thinning *t = thinning_of(ring);
	__u32 n;

	if (!t)
		return;
	n = stride << doublings(t, of_room);
	if (n == 0)
		n = 1;
	if (n < t->among || t->left == 0) {
		t->among = n;
		t->left = n;
		t->pick = bpf_get_prandom_u32() % n;
	}
	t->left--;
	if (t->left == t->pick)
		put(ctx, ring, t, t->among, MAJOR);
}

SEC("perf_event")
int at_minor(struct bpf_perf_event_data *ctx)
{
	take_page(ctx, 0, room[0], MINOR);
	return 0;
}

SEC("perf_event")
int at_major(struct bpf_perf_event_data *ctx)
{
	take_page(ctx, 1, room[1], READ);
	take_at_random(ctx, 1, room[1]);
	return 0;
}
