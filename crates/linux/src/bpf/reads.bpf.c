// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Counts reads of cached files by file, as they happen: read(), pread(), sendfile(), io_uring and others that
 * get pages from the page cache. One page read of each SHARE counts, chosen at random. The tracepoint exists
 * since Linux 6.12, and does not fire for tmpfs, O_DIRECT and accesses through mappings.
 */
#include "kernel.bpf.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define SHARE 64 /* a power of two */
#define MAX_CPUS 512
#define MAX_COUNTED 65536

enum { BPF_ANY };
enum { BPF_MAP_TYPE_LRU_HASH = 9 };

struct inode;
struct address_space {
	struct inode *host;
} __attribute__((preserve_access_index));

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_COUNTED);
	__type(key, __u64); /* inode */
	__type(value, __u64);
} counts SEC(".maps");

struct per_cpu {
	__u64 mapping, first, last;
	__u64 unused[5]; /* a cache line for each CPU */
};

struct per_cpu cpus[MAX_CPUS];

/* A long read gets its pages in batches: the tracepoint fires for each, with the end of the whole read. */
static __always_inline bool goes_on(struct per_cpu *c, struct address_space *m, __u64 first, __u64 last)
{
	__u64 before = c->mapping;
	bool same;

	if (first == last)
		return false;
	*(volatile __u64 *)&c->mapping = (__u64)m;
	same = *(volatile __u64 *)&c->mapping == before && c->last == last && first > c->first;
	c->first = first;
	c->last = last;
	return same;
}

SEC("tp_btf/mm_filemap_get_pages")
int BPF_PROG(count_reads, struct address_space *m, unsigned long first, unsigned long last)
{
	struct per_cpu *c = &cpus[bpf_get_smp_processor_id() & (MAX_CPUS - 1)];
	__u64 hits, inode, *count;

	if (goes_on(c, m, first, last))
		return 0;
	/* A share of all pages, in the mean exactly. */
	hits = (last - first + 1 + (bpf_get_prandom_u32() & (SHARE - 1))) / SHARE;
	if (!hits)
		return 0;
	inode = (__u64)m->host;
	count = bpf_map_lookup_elem(&counts, &inode);
	if (count)
		__sync_fetch_and_add(count, hits);
	else
		bpf_map_update_elem(&counts, &inode, &hits, BPF_ANY);
	return 0;
}
