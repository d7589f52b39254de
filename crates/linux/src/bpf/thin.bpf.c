// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Decides which samples of an event are taken: one in `stride`, chosen at random. The others cost neither the copy of
 * their stack nor a place in the ring.
 */
#include "kernel.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

__u32 stride = 1;

SEC("perf_event")
int thin(void *unused)
{
	__u32 n = stride;

	return n <= 1 || bpf_get_prandom_u32() % n == 0;
}
