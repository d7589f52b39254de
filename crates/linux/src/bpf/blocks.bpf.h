/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Reads all entries of long stretches of memory, block by block, and returns a bit for each page. A block
 * is the 2 MiB that one page table maps. An entry that is empty at an upper level is skipped at once.
 */
#define MAX_SPANS 512
#define MAX_BLOCKS 1024
/* Maximum number of blocks and of skipped entries in one run. An empty one takes some 10 ns. */
#define MAX_STEPS (1 << 15)

struct span {
	__u64 start, end;
	__u64 plain; /* in all blocks, or only in those with a young page */
};

struct block {
	__u64 start;
	__u64 entry; /* the entry that leads to its page table, or maps it as a huge page */
	__u32 level; /* enum level: PTE, or PMD */
	__u32 has_plain;
	__u32 span; /* index of the span for which it was read */
	__u32 unused;
	__u64 resident[8]; /* for level PTE, one bit per page */
	__u64 young[8];
	/* Pages that advice clears individually: folios of one page, on an LRU list, mapped once. All
	 * pages of a huge page, if only this entry maps any part of it. */
	__u64 plain[8];
};

/* The blocks whose plain pages to determine. */
enum plain { OF_NONE, OF_HUGE, OF_ALL };

/* The beginning of a run, and its end: span and address. */
struct progress {
	__u64 at;
	__u32 span;
	__u32 blocks; /* number of blocks found */
};

struct span spans[MAX_SPANS];
struct progress progress;
struct block blocks[MAX_BLOCKS];

struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax;
} __attribute__((preserve_access_index));

/* The bits PRESENT, ACCESSED, PROT_NONE and SPECIAL of 8 entries. Those of two adjacent entries are 7 apart,
 * so that no two bits collide. The first entry is in the highest bits. */
#define SPECIAL 0x200ull
#define BITS (PRESENT | ACCESSED | PROT_NONE | SPECIAL)
#define EACH 0x0002040810204081ull /* bit 0 of each entry */

/* Gathers bits that are 7 apart; the highest comes first. No two of the products collide. */
static __always_inline __u8 gathered(__u64 bits)
{
	return bits * 0x0101010101010101ull >> 49;
}

/* An entry that is present or PROT_NONE maps memory. If it is special, that is not memory of the process:
 * the zero page is always mapped so. */
static __always_inline __u64 residents(__u64 packed)
{
	return (packed | packed >> 8) & ~(packed >> 9) & EACH;
}

static __always_inline void note(struct block *block, __u64 byte, __u64 packed)
{
	__u64 resident = residents(packed);

	((__u8 *)block->resident)[byte] = gathered(resident);
	((__u8 *)block->young)[byte] = gathered(packed >> 5 & resident);
}

#define PACK(field) packed = packed << 7 | (at->field & BITS);

struct bits {
	__u64 table;
	__u32 block;
	__u32 first; /* part */
};

/* 16 entries. */
static long read_part_of_bits(__u32 i, struct bits *b)
{
	struct block *block = &blocks[within(b->block, MAX_BLOCKS)];
	__u64 packed = 0, part = within(b->first + i, TABLE_ENTRIES / 16);

	if (!direct_loads) {
		for (int byte = 0; byte < 2; byte++) {
			packed = 0;
			for (int k = 0; k < 8; k++)
				packed = packed << 7 | (entries[part * 16 + byte * 8 + k] & BITS);
			note(block, part * 2 + byte, packed);
		}
		return 0;
	}
	struct pt_regs *at = bpf_rdonly_cast((void *)(b->table + part * 128),
					     bpf_core_type_id_kernel(struct pt_regs));

	PACK(r15) PACK(r14) PACK(r13) PACK(r12) PACK(bp) PACK(bx) PACK(r11) PACK(r10)
	note(block, part * 2, packed);
	packed = 0;
	PACK(r9) PACK(r8) PACK(ax) PACK(cx) PACK(dx) PACK(si) PACK(di) PACK(orig_ax)
	note(block, part * 2 + 1, packed);
	return 0;
}

/* Whether a page from `first` to `last` is young, by a sample: 8 entries of each 64, a cache line of eight. */
__noinline __u64 is_sample_young(__u64 table, __u32 first, __u32 last)
{
	__u64 young = 0;

	if (!direct_loads)
		bpf_probe_read_kernel(entries, TABLE_ENTRIES * 8, (void *)table);
	for (__u32 i = 0; i < TABLE_ENTRIES / 64; i++) {
		__u64 packed = 0, page = within(i * 64 + (order.sample - 1) * 8, TABLE_ENTRIES);

		if (page < first || page + 7 > last)
			continue;
		if (direct_loads) {
			struct pt_regs *at = bpf_rdonly_cast((void *)(table + page * 8),
							     bpf_core_type_id_kernel(struct pt_regs));

			PACK(r15) PACK(r14) PACK(r13) PACK(r12) PACK(bp) PACK(bx) PACK(r11) PACK(r10)
		} else {
			for (int k = 0; k < 8; k++)
				packed = packed << 7 | (entries[page + k] & BITS);
		}
		young |= packed >> 5 & residents(packed);
	}
	return young;
}

/* Reads all entries, or a part of them: a sample of a block has a window of 16. The rest of the masks is
 * empty then. */
static __always_inline void read_bits(__u32 index, __u64 table, __u32 first, __u32 parts)
{
	struct block *block = &blocks[within(index, MAX_BLOCKS)];
	struct bits b = { .table = table, .block = index, .first = first };

	if (!direct_loads)
		bpf_probe_read_kernel(entries, TABLE_ENTRIES * 8, (void *)table);
	if (parts < TABLE_ENTRIES / 16)
		for (int i = 0; i < 8; i++)
			block->resident[i] = block->young[i] = 0;
	bpf_loop(parts, read_part_of_bits, &b, 0);
}

static __always_inline __u64 any_of(const __u64 *words)
{
	__u64 any = 0;

	for (int i = 0; i < 8; i++)
		any |= words[i];
	return any;
}

/* Whether advice clears the page of an entry individually. Without a branch, because this runs for each
 * page. If there is no page, it reads `nowhere` instead. */
static __always_inline __u64 is_plain(struct walk *w, __u64 entry, __u64 nowhere)
{
	__u64 resident = (entry | entry >> 8) & ~(entry >> 9) & 1;
	__u64 inverted = (entry & PRESENT) - 1;
	__u64 frame = ((entry ^ inverted) & TABLE) >> 12;
	__u64 page = w->vmemmap + frame * bpf_core_type_size(struct page);
	__u64 flags, link, more;

	page = nowhere ^ ((page ^ nowhere) & -resident);
	flags = load(page);
	link = load(page + (bpf_core_field_exists(struct page, compound_head)
				    ? bpf_core_field_offset(struct page, compound_head)
				    : bpf_core_field_offset(struct page___of_7_2, compound_info)));
	/* The kernel counts mappings from -1. */
	more = load(page + bpf_core_field_offset(struct page, _mapcount)) & 0xffffffff;
	return resident & flags >> bpf_core_enum_value(enum pageflags, PG_lru)
	       & ~(flags >> bpf_core_enum_value(enum pageflags, PG_head)) & ~link & (more - 1) >> 63;
}

struct plainness {
	struct walk *w;
	__u64 table;
	__u32 block;
	__u32 first; /* part */
	__u64 others; /* resident pages that are not plain */
};

/* 8 pages. */
static long read_part_of_plain(__u32 i, struct plainness *p)
{
	struct block *block = &blocks[within(p->block, MAX_BLOCKS)];
	__u64 byte = 0, part = within(p->first + i, TABLE_ENTRIES / 8);

	for (int k = 0; k < 8; k++) {
		__u64 page = part * 8 + k;
		__u64 entry = direct_loads ? load(p->table + page * 8) : entries[page];

		byte = byte >> 1 | is_plain(p->w, entry, p->w->pgd) << 7;
	}
	((__u8 *)block->plain)[part] = byte;
	p->others |= ((__u8 *)block->resident)[part] & ~byte;
	return 0;
}

/* Reads a part of the pages. The rest counts as plain, unless the part has pages that are not plain: a
 * folio may reach beyond it, so all pages are read then. */
static __always_inline void read_plain(struct walk *w, __u32 index, __u64 table, __u32 first,
				       __u32 parts)
{
	struct block *block = &blocks[within(index, MAX_BLOCKS)];
	struct plainness p = { .w = w, .table = table, .block = index, .first = first };

	if (parts < TABLE_ENTRIES / 8) {
		for (int i = 0; i < 8; i++)
			block->plain[i] = block->resident[i];
		bpf_loop(parts, read_part_of_plain, &p, 0);
		if (!p.others)
			return;
		p.first = 0;
	}
	bpf_loop(TABLE_ENTRIES / 8, read_part_of_plain, &p, 0);
}

/* The index of the part of its page table that maps an address, in parts of `entries` entries. */
static __always_inline __u32 part_of(__u64 addr, __u32 entries)
{
	return (addr >> 12 & (TABLE_ENTRIES - 1)) / entries;
}

/* Reads one block, or skips one stretch without any. */
static long read_block(__u32 step, struct walk *w)
{
	struct block *block = &blocks[within(progress.blocks, MAX_BLOCKS)];
	struct span *span = &spans[within(progress.span, MAX_SPANS)];
	__u64 at = progress.at, pmd, table, last;
	int level;

	if (at >= span->end) {
		progress.span++;
		if (progress.span >= order.nr_spans)
			return 1;
		progress.at = spans[within(progress.span, MAX_SPANS)].start;
		return 0;
	}
	if (progress.blocks >= order.max_blocks)
		return 1;
	level = walk_down(w, at);
	pmd = w->entry;
	progress.at = ((at >> (w->shift & 63)) + 1) << (w->shift & 63);
	if (level != PTE && level != PMD)
		return 0;
	last = (span->end < progress.at ? span->end : progress.at) - 1;
	if (order.sample && !(level == PMD ? pmd & ACCESSED
					   : is_sample_young(table_of(w, pmd), part_of(at, 1), part_of(last, 1))))
		return 0;
	block->start = at >> 21 << 21;
	block->entry = pmd;
	block->level = level;
	block->span = progress.span;
	block->has_plain = 0;
	if (level == PMD && w->vmemmap && order.plain && (span->plain || pmd & ACCESSED)) {
		__u64 once = folio_of_huge(w->vmemmap, pmd) >> 32 == 1;

		block->has_plain = 1;
		for (int i = 0; i < 8; i++)
			block->plain[i] = -once;
	}
	if (level == PTE) {
		table = table_of(w, pmd);
		/* For a clear, it must be known of a whole block which pages no range may cover. */
		if (order.plain == OF_ALL)
			read_bits(progress.blocks, table, 0, TABLE_ENTRIES / 16);
		else
			read_bits(progress.blocks, table, part_of(at, 16),
				  part_of(last, 16) - part_of(at, 16) + 1);
		if (!any_of(block->resident))
			return 0;
		block->has_plain = w->vmemmap && order.plain == OF_ALL
				   && (span->plain || any_of(block->young));
		if (block->has_plain && span->plain)
			read_plain(w, progress.blocks, table, 0, TABLE_ENTRIES / 8);
		else if (block->has_plain)
			read_plain(w, progress.blocks, table, part_of(at, 8),
				   part_of(last, 8) - part_of(at, 8) + 1);
		/* The same check as for windows. */
		if (walk_down(w, at) != PTE || (w->entry & TABLE) != (pmd & TABLE))
			return 0;
	}
	progress.blocks++;
	return 0;
}
