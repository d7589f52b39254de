// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Decides which samples of an event are taken: one in `stride`, at a random place among them. The others cost neither
 * the copy of their stack nor a place in the ring.
 *
 * A program that fills its memory faster than the ring is read would fill the ring too, and what it does next would
 * not be sampled at all. Therefore the stride doubles when half of the ring is full, and again after each 16th.
 * Example: a ring has room for 448 samples. The first 224 are taken as they come, then 28 of the next 56, 28 of the
 * next 112, and so on: the ring has room for 14,000.
 */
#include "kernel.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum { BPF_MAP_TYPE_PERCPU_ARRAY = 6 };

#define EVENTS 2
#define CHANGES 64
#define MAX_DOUBLINGS 10
/*
 * Kernels since 6.2 take the time of a sample before they call this program, and need some us for its stack. The
 * sample before it is older: 61 faults take longer than this. In ns.
 */
#define SAMPLE_TIME 20000

__u32 stride = 1;
/* Number of times that user space has read the rings. */
__u32 reads = 1;
/* Set before loading: number of samples that the ring of each event has room for. */
const volatile __u32 room[EVENTS] = { 448, 112 };

struct change {
	__u64 at;
	__u64 stride;
};

/* Of the events of one CPU. */
struct thinning {
	/* the last changes of the stride; user space finds the weight of a sample by its time */
	struct change log[CHANGES];
	__u32 changes;
	__u32 stride;
	__u32 reads;
	/* samples taken since then */
	__u32 taken;
	/* how many samples are left of those among which one is taken, and which one it is */
	__u32 left;
	__u32 pick;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EVENTS);
	__type(key, __u32);
	__type(value, struct thinning);
} thinnings SEC(".maps");

static __always_inline int take(__u32 event, __u32 of_room)
{
	struct thinning *t = bpf_map_lookup_elem(&thinnings, &event);
	__u32 half = of_room / 2, doublings = 0, n;

	if (!t)
		return 1;
	if (t->reads != reads) {
		t->reads = reads;
		t->taken = 0;
	}
	if (t->taken >= half)
		doublings = 1 + (t->taken - half) / (of_room / 16 + 1);
	if (doublings > MAX_DOUBLINGS)
		doublings = MAX_DOUBLINGS;
	n = stride << doublings;
	if (n == 0)
		n = 1;
	/*
	 * A sample represents all of those among which it was chosen. The stride grows because samples were taken, so it
	 * must wait for the last of them. It shrinks at any moment, whether or not one was taken.
	 */
	if (n < t->stride || (n > t->stride && t->left == 0)) {
		struct change *change = &t->log[within(t->changes++, CHANGES)];

		change->at = bpf_ktime_get_ns() - SAMPLE_TIME;
		change->stride = n;
		t->stride = n;
		t->left = 0;
	}
	if (t->left == 0) {
		t->left = n;
		t->pick = bpf_get_prandom_u32() % n;
	}
	t->left--;
	if (t->left != t->pick)
		return 0;
	t->taken++;
	return 1;
}

SEC("perf_event")
int thin_minor(void *unused)
{
	return take(0, room[0]);
}

SEC("perf_event")
int thin_major(void *unused)
{
	return take(1, room[1]);
}
