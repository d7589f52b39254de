// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Counts accesses to cached files as they happen, by file and window of a file. Reads: read(), pread(),
 * sendfile(), io_uring and others that get pages from the page cache. The tracepoint exists since Linux 6.12,
 * and does not fire for tmpfs, O_DIRECT and accesses through mappings. Writes: on ext4 each call, on other file
 * systems the first one of a folio between two writebacks. One page of each SHARE counts, chosen at random. Besides,
 * each access marks its windows as accessed in the present interval.
 *
 * With `traces`, it also lists each access to a fixed sample of pages, in order. Which pages they are, a hash of the
 * inode and the page tells: see rarity_of().
 */
#include "kernel.bpf.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define SHARE 64 /* a power of two */
#define MAX_CPUS 512
#define MAX_COUNTED 65536
#define MARKS_SHIFT 20
#define MAX_PAGES (1 << 19) /* of one read() */
#define PAGE_SHIFT 12
#define EXT4_MAGIC 0xef53
#define MIN_WINDOW 64 /* pages */
#define MAX_FOLIO 512 /* pages */

#define MAX_SAMPLING 15
#define RING_SIZE (4 << 20)

enum { BPF_ANY };
enum { BPF_MAP_TYPE_LRU_HASH = 9, BPF_MAP_TYPE_RINGBUF = 27 };
enum { BPF_RB_NO_WAKEUP = 1 };
enum access { READ, WRITE, MAP };
enum pageflags { PG_head = 6 };

struct super_block {
	unsigned long s_magic;
} __attribute__((preserve_access_index));
struct inode;
struct address_space {
	struct inode *host;
} __attribute__((preserve_access_index));
struct inode {
	struct super_block *i_sb;
	unsigned long i_ino;
	long long i_size;
	struct address_space i_data;
	__u32 i_generation;
} __attribute__((preserve_access_index));
struct folio {
	unsigned long index;
	unsigned long _flags_1; /* of large folios; the low byte is the order */
} __attribute__((preserve_access_index));

/* Set before loading. */
const volatile bool counts_ext4 = false; /* the programs for ext4 are loaded */
const volatile bool traces = false; /* list accesses to sampled pages */

struct key {
	__u64 file;   /* file_id() */
	__u64 window; /* and in the highest bit: written */
};

#define WRITTEN (1ull << 63)

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_COUNTED);
	__type(key, struct key);
	__type(value, __u64);
} counts SEC(".maps");

struct per_cpu {
	__u64 mapping, first, last;
	__u64 calls;     /* of any program */
	__u64 pages;     /* read or mapped, and not in totals: fewer than SHARE */
	__u64 missing;   /* accesses to sampled pages that the ring had no room for */
	__u64 unused[2]; /* a cache line for each CPU */
};

/* An access to a sampled page. */
struct traced {
	__u64 file;
	__u64 page;
	__u32 kind;
	__u32 rarity; /* it is sampled at each sampling up to this */
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_SIZE);
} trace SEC(".maps");

/* Pages of each file that were read or mapped. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_COUNTED);
	__type(key, __u64);
	__type(value, __u64);
} totals SEC(".maps");

/* Files whose accesses are not listed. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_COUNTED);
	__type(key, __u64);
	__type(value, __u8);
} ignored SEC(".maps");

__u32 window_shift; /* binary logarithm of the pages of a window; 63: the whole file. May change while it runs */
__u32 sampling; /* one page in 2^this is sampled; may grow while it runs */

struct per_cpu cpus[MAX_CPUS];

/* Number of the present interval, from 2 on, and those in which windows were accessed last. Two windows may share a
 * mark: then both look as recently accessed as the later one. */
__u32 interval;
__u32 marks[1 << MARKS_SHIFT];

static __always_inline __u64 id_of(struct inode *inode)
{
	/* Its own address, with which the verifier permits arithmetic. */
	__u64 address = load((__u64)&inode->i_data.host);

	return file_id(address, inode->i_ino, inode->i_generation);
}

/* As in reads.rs. Adjacent windows have adjacent marks, which share lines of the CPU's caches. A mark is written only
 * once in an interval, so that CPUs do not contend for it. The verifier checks a global function only once. */
__noinline int mark(__u64 file, __u64 window)
{
	__u64 first = file * 0xff51afd7ed558ccdull >> (64 - MARKS_SHIFT);
	__u64 at = first + window + (window >> (64 - MARKS_SHIFT)); /* writes: half of the marks further */
	__u32 *mark = &marks[at & ((1 << MARKS_SHIFT) - 1)], now = interval;

	if (*mark != now)
		*mark = now;
	return 0;
}

static __always_inline struct per_cpu *this_cpu(void)
{
	struct per_cpu *c = &cpus[bpf_get_smp_processor_id() & (MAX_CPUS - 1)];

	c->calls++;
	return c;
}

/*
 * A long read gets its pages in batches: the tracepoint fires for each, with the end of the whole read. Example: 32
 * pages in folios of one page fire (0, 31) and (31, 31). A read of another single page changes nothing here: such reads
 * are frequent. A read of just the last page after a long read is mistaken for a batch, once.
 */
static __always_inline bool goes_on(struct per_cpu *c, struct address_space *m, __u64 first, __u64 last)
{
	__u64 before = c->mapping;
	bool same;

	if (first == last && last != c->last)
		return false;
	*(volatile __u64 *)&c->mapping = (__u64)m;
	same = *(volatile __u64 *)&c->mapping == before && c->last == last && first > c->first;
	c->first = first;
	c->last = last;
	return same;
}

static __always_inline void add(struct key *k, __u64 hits)
{
	__u64 *count = bpf_map_lookup_elem(&counts, k);

	if (count)
		__sync_fetch_and_add(count, hits);
	else
		bpf_map_update_elem(&counts, k, &hits, BPF_ANY);
}

/* Always 0, which the verifier does not know: it would follow a count from 0 on through all steps of a loop. */
volatile __u64 zero;

struct span {
	struct key key;
	__u64 page, last, hits;
	__u64 written;
};

/* Counts and marks the pages of a span in steps of SHARE, those of one window at once. */
static long count_page(__u32 i, struct span *s)
{
	__u64 window = s->page >> (window_shift & 63) | s->written;

	if (s->page > s->last)
		return 1;
	if (s->hits && window != s->key.window) {
		add(&s->key, s->hits);
		s->hits = 0;
	}
	s->key.window = window;
	mark(s->key.file, window);
	s->hits++;
	s->page += SHARE;
	return 0;
}

/* Marks the windows of the first and of the last page: those between them have a page that counts. */
static __always_inline void mark_ends(__u64 file, __u64 first, __u64 last, __u64 written)
{
	mark(file, first >> (window_shift & 63) | written);
	if (first != last)
		mark(file, last >> (window_shift & 63) | written);
}

/*
 * Marks all windows of a folio that was written: the tracepoint does not report the page. Example: with windows of 64
 * pages, a write to page 200 of a folio of 256 pages is in window 3, and marks windows 0 to 3.
 */
static __always_inline void mark_written(__u64 file, struct folio *folio)
{
	__u64 page = folio->index, end = page + 1;

	if (load((__u64)folio) >> bpf_core_enum_value(enum pageflags, PG_head) & 1)
		end = page + (1ull << (folio->_flags_1 & 63));
	for (int i = 0; i < MAX_FOLIO / MIN_WINDOW && page < end; i++, page += MIN_WINDOW)
		mark(file, page >> (window_shift & 63) | WRITTEN);
}

static __always_inline void count(__u64 file, __u64 first, __u64 last, __u64 written)
{
	/* A share of all pages, in the mean exactly. */
	__u64 page = first + (bpf_get_prandom_u32() & (SHARE - 1));

	if (page > last)
		return;
	struct span s = {
		.key = { .file = file },
		.page = page,
		.last = last,
		.hits = zero,
		.written = written,
	};

	bpf_loop(MAX_PAGES / SHARE, count_page, &s, 0);
	add(&s.key, s.hits);
}

/* Of two halves of 2^level pages, the one in which pages may be sampled. */
static __always_inline __u64 half(__u64 salt, __u32 level, __u64 at)
{
	__u64 x = (at ^ salt) + ((__u64)level << 56);

	x *= 0xff51afd7ed558ccd;
	x ^= x >> 32;
	return x * 0xc4ceb9fe1a85ec53 >> 63;
}

/* Up to which sampling the page is sampled: one page in each 2^sampling, and of those one in 2 at the next. */
static __always_inline __u32 rarity_of(__u64 salt, __u64 page)
{
	for (__u32 level = 1; level <= MAX_SAMPLING; level++)
		if ((page >> (level - 1) & 1) != half(salt, level, page >> level))
			return level - 1;
	return MAX_SAMPLING;
}

struct tracing {
	__u64 file, salt, window, first, last;
	__u32 sampling, kind;
};

static __always_inline void emit(struct tracing *t, __u64 page, __u32 rarity)
{
	__u64 file = t->file;
	struct traced *e;

	if (bpf_map_lookup_elem(&ignored, &file))
		return;
	e = bpf_ringbuf_reserve(&trace, sizeof(*e), 0);
	if (!e) {
		cpus[bpf_get_smp_processor_id() & (MAX_CPUS - 1)].missing++;
		return;
	}
	e->file = file;
	e->page = page;
	e->kind = t->kind;
	e->rarity = rarity;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

/* The sampled page of a window of 2^sampling pages. */
static long trace_window(__u32 i, struct tracing *t)
{
	__u64 page = t->window++;

	if (page > t->last >> (t->sampling & 15))
		return 1;
	for (__u32 level = MAX_SAMPLING; level; level--)
		if (level <= t->sampling)
			page = page << 1 | half(t->salt, level, page);
	if (page >= t->first && page <= t->last)
		emit(t, page, rarity_of(t->salt, page));
	return 0;
}

static __always_inline void trace_pages(struct inode *inode, __u64 first, __u64 last, __u32 kind)
{
	struct tracing t = {
		.file = id_of(inode),
		.salt = inode->i_ino * 0x9e3779b97f4a7c15,
		.first = first,
		.last = last,
		.sampling = sampling,
		.kind = kind,
	};

	if (kind != WRITE) {
		struct per_cpu *c = &cpus[bpf_get_smp_processor_id() & (MAX_CPUS - 1)];

		/* Each SHARE-th page counts for all of them: in the mean, each file gets its pages. */
		c->pages += last - first + 1;
		if (c->pages >= SHARE) {
			__u64 pages = c->pages & ~(SHARE - 1ull), key = t.file;
			__u64 *total = bpf_map_lookup_elem(&totals, &key);

			c->pages &= SHARE - 1;
			if (total)
				__sync_fetch_and_add(total, pages);
			else
				bpf_map_update_elem(&totals, &key, &pages, BPF_ANY);
		}
	}
	if (first == last) {
		__u32 rarity = rarity_of(t.salt, first);

		if (rarity >= t.sampling)
			emit(&t, first, rarity);
		return;
	}
	t.window = first >> (t.sampling & 15);
	bpf_loop(MAX_PAGES, trace_window, &t, 0);
}

SEC("tp_btf/mm_filemap_get_pages")
int BPF_PROG(count_reads, struct address_space *m, unsigned long first, unsigned long last)
{
	struct per_cpu *cpu = this_cpu();
	long long size = m->host->i_size;
	__u64 file, end = last;

	/* The last page is that of the buffer, which may be longer than the file. */
	if (size <= (long long)(first << PAGE_SHIFT))
		return 0;
	if (end > (__u64)(size - 1) >> PAGE_SHIFT)
		end = (__u64)(size - 1) >> PAGE_SHIFT;
	file = id_of(m->host);
	mark_ends(file, first, end, 0);
	if (goes_on(cpu, m, first, last))
		return 0;
	last = end;
	count(file, first, last, 0);
	if (traces)
		trace_pages(m->host, first, last, READ);
	return 0;
}

/* A process touches a page of a mapping that is not in its page table: the pages around are mapped too. */
SEC("tp_btf/mm_filemap_map_pages")
int BPF_PROG(trace_mapped, struct address_space *m, unsigned long first, unsigned long last)
{
	this_cpu();
	trace_pages(m->host, first, last, MAP);
	return 0;
}

SEC("tp_btf/mm_filemap_fault")
int BPF_PROG(trace_fault, struct address_space *m, unsigned long index)
{
	this_cpu();
	trace_pages(m->host, index, index, MAP);
	return 0;
}

static __always_inline int count_ext4_write(struct inode *inode, long long at, unsigned int bytes)
{
	__u64 file, first, last;

	this_cpu();
	if (!bytes)
		return 0;
	first = at >> PAGE_SHIFT;
	last = (at + bytes - 1) >> PAGE_SHIFT;
	file = id_of(inode);
	mark_ends(file, first, last, WRITTEN);
	count(file, first, last, WRITTEN);
	if (traces)
		trace_pages(inode, first, last, WRITE);
	return 0;
}

/*
 * A write fires one of these for each folio that it copies to, with the bytes that it copied. Example: 1 MiB in folios of
 * one page fires 256 times, each for one page. write_begin fires before the folio is known, with the rest of the write.
 */
SEC("tp_btf/ext4_da_write_end")
int BPF_PROG(count_ext4, struct inode *inode, long long at, unsigned int bytes, unsigned int copied)
{
	return count_ext4_write(inode, at, copied);
}

/* Without delayed allocation: with nodelalloc, and on a nearly full disk. */
SEC("tp_btf/ext4_write_end")
int BPF_PROG(count_ext4_at_once, struct inode *inode, long long at, unsigned int bytes, unsigned int copied)
{
	return count_ext4_write(inode, at, copied);
}

/* With data=journal. */
SEC("tp_btf/ext4_journalled_write_end")
int BPF_PROG(count_ext4_journalled, struct inode *inode, long long at, unsigned int bytes, unsigned int copied)
{
	return count_ext4_write(inode, at, copied);
}

SEC("tp_btf/writeback_dirty_folio")
int BPF_PROG(count_dirtied, struct folio *folio, struct address_space *m)
{
	struct inode *inode;
	__u64 file;

	this_cpu();
	if (!folio || !m)
		return 0;
	inode = m->host;
	file = id_of(inode);
	if (counts_ext4 && inode->i_sb->s_magic == EXT4_MAGIC) {
		/* write() marks the exact windows. */
		mark_ends(file, folio->index, folio->index, WRITTEN);
		return 0;
	}
	mark_written(file, folio);
	count(file, folio->index, folio->index, WRITTEN);
	if (traces)
		trace_pages(inode, folio->index, folio->index, WRITE);
	return 0;
}
