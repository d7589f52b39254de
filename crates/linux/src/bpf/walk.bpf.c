// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Reads the raw page-table entries of another process, window by window, and the kernel's data about
 * their folios. It decides nothing: user space decodes the entries (x86.rs).
 *
 * Kernels differ, so there are three ways (enum reading in walker.rs): syscall programs with direct loads,
 * or with bpf_probe_read_kernel(), and a task iterator, which needs no kfunc at all.
 *
 * Every load may read a table that has just been freed. Loads through bpf_rdonly_cast() cannot
 * fault. The program follows no table outside System RAM. After a page table it reads the entry that
 * led to it again, so that user space can drop a window whose table was changed meanwhile.
 *
 * The verifier checks functions that are neither static nor inlined once, and not again on each path
 * that leads to them. This keeps loading cheap (a test counts the steps).
 */
#include "kernel.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define MAX_WINDOWS 512
#define MAX_ENTRIES 8192
#define TABLE_ENTRIES 512
#define MAX_RAM 16
#define MAX_VMAS 64

#define PRESENT 1ull
#define ACCESSED 0x20ull
#define PROT_NONE 0x100ull /* in an entry that is not present */
#define HUGE 0x80ull
#define TABLE 0x000ffffffffff000ull /* physical address in an entry that leads to a table */
#define HUGE_PAGE 0x000fffffffe00000ull /* the same in an entry that maps a huge page */

enum status { OK, NO_TASK, NO_MM, NO_NAMESPACE, NO_FUNCTION };
enum level { NONE, PTE, PMD, PUD, CHANGED };
/* The pages whose folios to read: none, those of a window with a young page, or all. */
enum want { NO_FOLIOS, FOLIOS_IF_YOUNG, FOLIOS };
enum job { READ_WINDOWS, READ_VMA_FLAGS, READ_BLOCKS };

/* Only the used members, which are found by name on the running kernel. */
struct mm_struct {
	void *pgd;
	unsigned long total_vm;
	int map_count;
} __attribute__((preserve_access_index));
struct signal_struct {
	int nr_threads;
} __attribute__((preserve_access_index));
struct vm_struct {
	void **pages;
} __attribute__((preserve_access_index));
struct pid {
	unsigned int level;
} __attribute__((preserve_access_index));
struct task_struct {
	struct mm_struct *mm;
	struct signal_struct *signal;
	__u64 start_boottime;
	struct pid *thread_pid;
	void *stack;
	struct vm_struct *stack_vm_area;
} __attribute__((preserve_access_index));
struct vm_area_struct {
	unsigned long vm_flags;
} __attribute__((preserve_access_index));
struct atomic {
	int counter;
};
struct page {
	unsigned long flags;
	unsigned long compound_head;
	struct atomic _mapcount;
} __attribute__((preserve_access_index));
struct page___of_7_2 {
	unsigned long compound_info;
} __attribute__((preserve_access_index));
struct bpf_iter__task {
	struct task_struct *task;
} __attribute__((preserve_access_index));
struct folio {
	unsigned long _flags_1; /* the low byte is the order */
	struct atomic _entire_mapcount;
	struct atomic _large_mapcount;
} __attribute__((preserve_access_index));
struct folio___of_6_1 {
	void *mapping;
	unsigned long _flags_1;
	unsigned char _folio_order;
	struct atomic _total_mapcount; /* the name is wrong: it counts huge entries */
} __attribute__((preserve_access_index));
enum pageflags { PG_lru = 5, PG_head = 6 };
enum pageflags___of_6_1 { PG_double_map = 6 };

extern struct task_struct *bpf_task_from_pid(__s32 pid) __ksym __weak;
extern struct task_struct *bpf_task_from_vpid(__s32 pid) __ksym __weak;
extern void bpf_task_release(struct task_struct *p) __ksym __weak;

struct window {
	__u64 addr;
	__u32 pages; /* at most 512, within one block of 2 MiB */
	__u32 first; /* index of its first entry in the output */
	__u32 want;  /* enum want */
	__u32 unused;
};

struct ram {
	__u64 start, end; /* physical addresses, half open */
};

/* The request; constant during a run. */
struct order {
	__s32 pid; /* in the caller's pid namespace */
	__u32 job; /* enum job */
	__u32 windows;
	__u32 nr_vmas;
	__u32 five_levels;
	__u32 nr_spans;
	__u32 max_blocks;
	__u32 plain; /* enum plain */
	__u32 sample; /* 0: read all; n: find the blocks with a young page in sample n, 1 to 8 */
	__u32 unused;
	__u64 direct_map; /* address of physical address 0 */
	__u64 vmemmap;    /* address of the struct page of page frame 0, 0: unknown */
	__u64 address;    /* for peek() */
};

/* The process that was read; user space compares it from run to run. */
struct identity {
	__u64 start_boottime;
	__u64 mm;
	__u64 pgd;
	/* The number of its threads, and counters that differ after a change of its mappings. */
	__u64 threads;
	__u64 map_changes[2];
};

/* With these, user space finds the direct map and the struct pages; see find_anchors(). */
struct anchors {
	__u64 pgd;
	__u64 stack;          /* of the caller, in kernel addresses */
	__u64 stack_pages[2]; /* addresses of the struct page of its first two pages */
	__u64 page_size;      /* of struct page */
	/* Whether MADV_COLD keeps a large folio in a page table whole if the range covers it: since Linux 6.10, which
	 * also added _large_mapcount. */
	__u64 keeps_folios;
};

struct order order;
__u32 status;
struct window windows[MAX_WINDOWS];
__u32 levels[MAX_WINDOWS];
__u64 entries[MAX_ENTRIES + TABLE_ENTRIES]; /* a whole table fits after the last index */
/* For requested entries that map memory (of a huge page, only for its first page). Bits 0..15: the
 * page's index in its folio. Bits 16..23: the order of the folio. Bit 24: 1, the data is known.
 * Bit 25: whether the folio is on an LRU list; the kernel clears no other. Upper half: the number of
 * entries that map the page. */
__u64 folios[MAX_ENTRIES];
struct ram ram[MAX_RAM];
__u64 vma_addrs[MAX_VMAS];
__u64 vma_flags[MAX_VMAS];
struct identity identity;
struct anchors anchors;
__u64 peeked;

struct walk {
	__u64 pgd, direct_map, vmemmap;
	__u64 entry; /* the entry at which walk_down() ended */
	__u32 shift; /* it maps 2^shift bytes */
	__u32 five_levels;
	__u32 first; /* first entry of the current window */
	__u32 unused;
};

/* Without a branch, so that the verifier follows only one path. */
__noinline int in_some_ram(__u64 table)
{
	__u64 in_ram = 0;

	for (int i = 0; i < MAX_RAM; i++)
		in_ram |= table - ram[i].start < ram[i].end - ram[i].start;
	return in_ram;
}

/* The address of the table that `entry` leads to; 0 if it lies outside System RAM. The largest
 * range comes first, and contains almost all tables. */
static __always_inline __u64 table_of(struct walk *w, __u64 entry)
{
	__u64 table = entry & TABLE;

	if (table - ram[0].start < ram[0].end - ram[0].start || in_some_ram(table))
		return w->direct_map + table;
	return 0;
}

/* The entry for `addr` in the table that `entry` leads to; 0 if there is no such table. */
static __always_inline __u64 below(struct walk *w, __u64 entry, __u64 addr, int shift)
{
	__u64 table = table_of(w, entry);

	return table ? load(table + ((addr >> shift) & 511) * 8) : 0;
}

/* Finds the lowest entry above the page table: a PMD, or a huge PUD. Stores it in w->entry. */
__noinline int walk_down(struct walk *w, __u64 addr)
{
	__u64 entry;

	if (!w)
		return NONE;
	w->entry = 0;
	w->shift = w->five_levels ? 48 : 39;
	entry = load(w->pgd + ((addr >> w->shift) & 511) * 8);
	if (!(entry & PRESENT))
		return NONE;
	if (w->five_levels) {
		w->shift = 39;
		entry = below(w, entry, addr, 39);
		if (!(entry & PRESENT))
			return NONE;
	}
	w->shift = 30;
	entry = below(w, entry, addr, 30);
	if (!(entry & PRESENT))
		return NONE;
	if (entry & HUGE) {
		w->entry = entry;
		return PUD;
	}
	w->shift = 21;
	entry = below(w, entry, addr, 21);
	w->entry = entry;
	if (entry & HUGE)
		return PMD; /* present, or PROT_NONE: user space decides */
	return entry & PRESENT && table_of(w, entry) ? PTE : NONE;
}

/* Kernels keep the following data in different places, which are found by name. */

/* The first page of the folio that contains `page`. */
static __always_inline __u64 head_of(__u64 page)
{
	__u64 link;

	if (bpf_core_field_exists(struct page, compound_head)) {
		link = load(page + bpf_core_field_offset(struct page, compound_head));
		return link & 1 ? link - 1 : page;
	}
	link = load(page + bpf_core_field_offset(struct page___of_7_2, compound_info));
	if (!(link & 1))
		return page;
	/* This is the address, or, if struct pages are aligned for that, a mask that gives it. No
	 * struct page is in the last 4 GiB of the address space, where the kernel image is. */
	return link >> 32 == 0xffffffff ? page & link : link - 1;
}

static __always_inline __u64 order_of(__u64 head)
{
	if (bpf_core_field_exists(struct folio___of_6_1, _folio_order))
		return load(head + bpf_core_field_offset(struct folio___of_6_1, _folio_order)) & 0xff;
	return load(head + bpf_core_field_offset(struct folio, _flags_1)) & 0xff;
}

/* The number of huge entries that map a folio, and so each of its pages. The kernel counts
 * mappings from -1. */
static __always_inline __u32 mapped_whole(__u64 head)
{
	__u64 is_anon, is_double;
	__u32 whole;

	if (bpf_core_field_exists(struct folio, _entire_mapcount))
		return load(head + bpf_core_field_offset(struct folio, _entire_mapcount)) + 1;
	if (!bpf_core_field_exists(struct folio___of_6_1, _total_mapcount))
		return 0;
	whole = load(head + bpf_core_field_offset(struct folio___of_6_1, _total_mapcount)) + 1;
	/* Here the counts of single pages include those of huge entries: always for files, and once
	 * for private memory that is mapped in both ways. */
	is_anon = load(head + bpf_core_field_offset(struct folio___of_6_1, mapping)) & 1;
	is_double = load(head + bpf_core_field_offset(struct folio___of_6_1, _flags_1))
		    >> bpf_core_enum_value(enum pageflags___of_6_1, PG_double_map) & 1;
	return is_anon ? whole - is_double : 0;
}

__noinline __u64 folio_of(__u64 vmemmap, __u64 entry)
{
	const __u64 size = bpf_core_type_size(struct page);
	/* The kernel inverts the frame in entries that are not present. */
	__u64 frame = ((entry & PRESENT ? entry : ~entry) & TABLE) >> 12;
	__u64 page = vmemmap + frame * size;
	__u64 head = head_of(page);
	__u64 flags = load(head);
	__u32 mapped = load(page + bpf_core_field_offset(struct page, _mapcount)) + 1;
	__u64 known = 1ull << 24 | (flags >> bpf_core_enum_value(enum pageflags, PG_lru) & 1) << 25
		    | (__u64)mapped << 32;

	if (!(flags >> bpf_core_enum_value(enum pageflags, PG_head) & 1))
		return known;
	mapped += mapped_whole(head);
	return (known & 0xffffffff) | (__u64)mapped << 32 | order_of(head) << 16
	       | (((page - head) / size) & 0xffff);
}

/* The folio of a huge page, for its first page. It counts as mapped by all entries that map any part of
 * it, if the kernel counts these (from 6.10 on). */
__noinline __u64 folio_of_huge(__u64 vmemmap, __u64 entry)
{
	/* The kernel inverts only these bits; below them are flags. */
	__u64 first = (entry & PRESENT ? entry : ~entry) & HUGE_PAGE;
	__u64 folio = folio_of(vmemmap, first | PRESENT), mapped;

	/* Devices may map huge pages that are not folios. */
	if (!bpf_core_field_exists(struct folio, _large_mapcount) || !(folio >> 16 & 0xff))
		return folio;
	mapped = load(vmemmap + (first >> 12) * bpf_core_type_size(struct page)
		      + bpf_core_field_offset(struct folio, _large_mapcount));
	return (folio & 0xffffffff) | (mapped + 1) << 32;
}

static long read_folio(__u32 page, struct walk *w)
{
	__u64 at = within(w->first + page, MAX_ENTRIES);

	if (entries[at] & (PRESENT | PROT_NONE))
		folios[at] = folio_of(w->vmemmap, entries[at]);
	return 0;
}

struct table {
	__u64 at, any;
	__u32 first, pages;
};

/* Number of entries to read at a time: the verifier follows a short loop once, and a long one completely. */
#define AT_ONCE 8

static long read_entries(__u32 part, struct table *t)
{
	__u64 any = 0;

	for (int i = 0; i < AT_ONCE; i++) {
		__u32 k = part * AT_ONCE + i;
		__u64 at = within(t->first + k, MAX_ENTRIES);

		if (k >= t->pages)
			break;
		if (direct_loads)
			entries[at] = load(t->at + k * 8);
		any |= entries[at];
		folios[at] = 0;
	}
	t->any |= any;
	return 0;
}

/* Reads the entries of `pages` pages from `table` on. Returns the bitwise or of all of them. */
static __always_inline __u64 read_table(__u64 table, __u32 first, __u32 pages)
{
	struct table t = { .at = table, .first = first, .pages = pages };

	/* One read for all: each single load would cost as much. */
	if (!direct_loads)
		bpf_probe_read_kernel(&entries[within(first, MAX_ENTRIES)],
				      (pages & (TABLE_ENTRIES * 2 - 1)) > TABLE_ENTRIES
					      ? TABLE_ENTRIES * 8
					      : (pages & (TABLE_ENTRIES * 2 - 1)) * 8,
				      (void *)table);
	bpf_loop((pages + AT_ONCE - 1) / AT_ONCE, read_entries, &t, 0);
	return t.any;
}

static long read_window(__u32 index, struct walk *w)
{
	__u64 pmd, i = within(index, MAX_WINDOWS);
	__u64 addr = windows[i].addr;
	__u32 pages = windows[i].pages, want = windows[i].want, level;

	w->first = windows[i].first;
	level = walk_down(w, addr);
	pmd = w->entry;
	if (level == PTE) {
		__u64 page = (addr >> 12) & (TABLE_ENTRIES - 1), any;

		if (page + pages > TABLE_ENTRIES)
			pages = TABLE_ENTRIES - page; /* the table ends with its 2 MiB */
		any = read_table(table_of(w, pmd) + page * 8, w->first, pages);
		/* Only a window with a young page has bits to clear. */
		if (w->vmemmap && (want == FOLIOS || (want == FOLIOS_IF_YOUNG && any & ACCESSED)))
			bpf_loop(pages, read_folio, w, 0);
		/* A table that was freed meanwhile may contain plausible garbage. The accessed and dirty
		 * bits may change in an entry that still leads to the same table. */
		if (walk_down(w, addr) != PTE || (w->entry & TABLE) != (pmd & TABLE))
			level = CHANGED;
	} else {
		entries[within(w->first, MAX_ENTRIES)] = pmd;
		folios[within(w->first, MAX_ENTRIES)] =
			level == PMD && w->vmemmap && want != NO_FOLIOS
				? folio_of_huge(w->vmemmap, pmd) : 0;
	}
	levels[i] = level;
	return 0;
}

#include "blocks.bpf.h"
#include "files.bpf.h"

static __always_inline struct task_struct *find_task(__s32 pid, int *why)
{
	struct task_struct *task = NULL;

	*why = NO_TASK;
	if (bpf_ksym_exists(bpf_task_from_vpid)) {
		task = bpf_task_from_vpid(pid);
	} else if (bpf_ksym_exists(bpf_task_from_pid)) {
		struct task_struct *self = (void *)bpf_get_current_task();

		/* It uses pids of the initial namespace: in a container it would find another process. */
		if (BPF_CORE_READ(self, thread_pid, level) != 0)
			*why = NO_NAMESPACE;
		else
			task = bpf_task_from_pid(pid);
	} else {
		*why = NO_FUNCTION;
	}
	return task;
}

static __always_inline int identify(struct task_struct *task)
{
	struct mm_struct *mm = BPF_CORE_READ(task, mm);

	identity.start_boottime = BPF_CORE_READ(task, start_boottime);
	identity.threads = BPF_CORE_READ(task, signal, nr_threads);
	identity.mm = (__u64)mm;
	if (!mm)
		return NO_MM;
	identity.pgd = (__u64)BPF_CORE_READ(mm, pgd);
	identity.map_changes[0] = changes_of(mm);
	identity.map_changes[1] = BPF_CORE_READ(mm, total_vm) << 20 | BPF_CORE_READ(mm, map_count);
	return OK;
}

static __always_inline void read_memory(void)
{
	struct walk w = {
		.pgd = identity.pgd, .direct_map = order.direct_map, .vmemmap = order.vmemmap,
		.five_levels = order.five_levels,
	};

	if (order.job == READ_BLOCKS)
		bpf_loop(MAX_STEPS, read_block, &w, 0);
	else
		bpf_loop(order.windows, read_window, &w, 0);
}

static long keep_flags(struct task_struct *task, struct vm_area_struct *vma, __u64 *flags)
{
	*flags = BPF_CORE_READ(vma, vm_flags) | 1ull << 63;
	return 0;
}

#define EBUSY 16

/* Replaces the flags while the process is mapping memory. Bit 63, which marks flags, is not set. */
#define VMA_IS_BUSY (1ull << 62)

struct vma_walk {
	struct task_struct *task;
};

static long read_flags(__u32 index, struct vma_walk *w)
{
	__u64 flags = 0, i = within(index, MAX_VMAS);

	if (bpf_find_vma(w->task, vma_addrs[i], keep_flags, &flags, 0) == -EBUSY)
		flags = VMA_IS_BUSY;
	vma_flags[i] = flags;
	return 0;
}

/* vm_flags of the areas that contain vma_addrs; bit 63 is set if there was an answer. */
static __always_inline void read_vma_flags(struct task_struct *task)
{
	struct vma_walk w = { .task = task };

	bpf_loop(order.nr_vmas, read_flags, &w, 0);
}

SEC("syscall") int do_order(void *ctx)
{
	int why;
	struct task_struct *task = find_task(order.pid, &why);

	status = why;
	if (!task)
		return 0;
	status = identify(task);
	if (status == OK && order.job == READ_VMA_FLAGS)
		read_vma_flags(task);
	bpf_task_release(task);
	if (status == OK && order.job != READ_VMA_FLAGS) {
		bpf_rcu_read_lock();
		read_memory();
		bpf_rcu_read_unlock();
	}
	return 0;
}

/* The same for kernels without those kfuncs; the iterator visits only one task. */
SEC("iter/task") int do_order_for(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	if (!task)
		return 0;
	status = identify(task);
	if (status != OK)
		return 0;
	if (order.job == READ_VMA_FLAGS)
		read_vma_flags(task);
	else
		read_memory();
	return 0;
}

/* User space searches for the direct map below the caller's pgd. It derives the struct pages from the
 * caller's kernel stack: the kernel has a list of the stack's struct pages, and its frames are in the
 * kernel's half of the caller's own page tables. */
SEC("syscall") int find_anchors(void *ctx)
{
	struct task_struct *self = (void *)bpf_get_current_task();
	void **pages = BPF_CORE_READ(self, stack_vm_area, pages);

	anchors.pgd = (__u64)BPF_CORE_READ(self, mm, pgd);
	anchors.stack = (__u64)BPF_CORE_READ(self, stack);
	anchors.page_size = bpf_core_type_size(struct page);
	anchors.keeps_folios = bpf_core_field_exists(struct folio, _large_mapcount);
	anchors.stack_pages[0] = anchors.stack_pages[1] = 0;
	if (pages)
		bpf_probe_read_kernel(anchors.stack_pages, sizeof(anchors.stack_pages), pages);
	return OK;
}

/* The word at a kernel address. */
SEC("syscall") int peek(void *ctx)
{
	__u64 word = 0;

	bpf_probe_read_kernel(&word, sizeof(word), (void *)order.address);
	peeked = word;
	return OK;
}
