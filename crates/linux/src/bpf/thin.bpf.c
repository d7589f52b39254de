// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Decides which page faults are sampled. It runs at each fault of a watched process.
 *
 * - Of pages that are touched, those of a fixed sample are taken: one page in 2^shift, selected by a hash of its
 *   number. So all faults of a sampled page are seen, and a page that is freed and filled again has one owner, the last
 *   one. The samples are nested: a page in the sample of 1 in 128 is also in that of 1 in 64.
 * - Each page of the greatest sample has the size of the sample at its last fault, whether or not it was taken. So what
 *   has filled a page decides, and not the page itself, how many pages it represents. Otherwise the estimate is biased.
 * - A fault in a mapped file or in shared memory may map the pages around it too (fault-around). Of such a sampled page
 *   there is no fault of its own, so the fault that mapped it is taken.
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

enum {
	BPF_MAP_TYPE_PERF_EVENT_ARRAY = 4,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
};

#define PAGE_SHIFT 12
#define BLOCK_SHIFT 21
/* The greatest sample: one page in 64. */
#define MIN_SHIFT 6
#define MAX_DOUBLINGS 10
/* The kernel maps pages of an aligned window of 2^4 around a fault, unless it is told otherwise. */
#define AROUND_SHIFT 4
/* For how long faults near a mapped page do not sample it after it was sampled, because it has its owner. */
#define SAMPLED_NS (4ull * 1000 * 1000 * 1000)

/*
 * For how many faults near sampled pages a CPU does not look up a mapping without a file again, and for how many of them
 * after the mappings have changed: a file may have replaced it, of which so many sampled pages, 4 MiB, have no sample.
 * Before Linux 6.4 changes are not known, and it may be 64 MiB.
 */
#define PRIVATE_FAULTS 256
#define CHANGED_FAULTS 16

/* Memory of a device, which a read may change. */
#define VM_PFNMAP 0x400
#define VM_IO 0x4000

enum kind { MINOR, MAJOR, READ, AROUND };
/* The rings: of minor faults and of major ones. */
#define RINGS 2

__u32 shift = MIN_SHIFT;
__u32 stride = 1;
/* Number of times that user space has read the rings. */
__u32 reads = 1;
/* Set before loading: number of samples that each ring has room for, and of CPUs. */
const volatile __u32 room[RINGS] = { 448, 112 };
const volatile __u32 cpus = 1;
/*
 * Set before loading: by the first bits of the hash of a window's first page, the two places in the window where its
 * sampled page may be, four bits each. To look at all 16 places costs as much as the rest of the program.
 */
const volatile __u8 places[1 << MIN_SHIFT] = {};

/* That of x86-64. */
struct bpf_perf_event_data {
	__u64 regs[21];
	__u64 sample_period;
	__u64 addr;
};

struct task_struct {
	struct mm_struct *mm;
	unsigned int self_exec_id;
} __attribute__((preserve_access_index));

/* Grows with each fork that lets the memory be shared until one process writes to it; since Linux 5.11. */
struct mm_struct___of_5_11 {
	struct seqcount write_protect_seq;
} __attribute__((preserve_access_index));

struct file;
struct vm_area_struct {
	unsigned long vm_start, vm_end, vm_flags;
	struct file *vm_file;
} __attribute__((preserve_access_index));

/* What a sample contains besides its stack. */
struct sample {
	__u64 address;
	/* number of pages or faults that it represents */
	__u64 weight;
	__u64 kind;
	/*
	 * If its page was left out when it was filled or mapped before, the shift of the sample that did so: others
	 * represent it, unless this fault has filled it again. Otherwise 0.
	 */
	__u64 left_out;
	/* forks_now() */
	__u64 forks;
	/* program_now() */
	__u64 program;
};

/* Of the faults of one CPU that go to one ring. */
struct thinning {
	/* the huge page that was sampled last, and its program */
	__u64 block, block_program;
	__u32 reads;
	/* samples taken since then */
	__u32 taken;
	/* Among how many faults one is taken, how many of them are left, and which one it is. */
	__u32 among;
	__u32 left;
	__u32 pick;
	/* The last mapping without a file, and the number of faults for which it is not looked up again. */
	__u32 private_left;
	__u64 private_program, private_start, private_end, private_changes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, RINGS);
	__type(key, __u32);
	__type(value, struct thinning);
} thinnings SEC(".maps");

/* Of program_now(): after an exec there are other pages at the same addresses. */
struct page_id {
	__u64 program, page;
};

/* Pages of files and of shared memory that are mapped, and until when faults near them do not sample them. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, struct page_id);
	__type(value, __u64);
} mapped SEC(".maps");

struct page {
	/* forks_now() at its last fault, without bit 32 */
	__u32 forks;
	/* of the sample when it was filled last; 0 if unknown */
	__u16 shift;
	/* of the sample that left it out when it was read or mapped later, which may have filled it; or 0 */
	__u16 maybe;
};

/* Pages of the greatest sample that had a fault. It has room for those of 16 GiB. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, struct page_id);
	__type(value, struct page);
} pages SEC(".maps");

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

/* This process and the program that it runs: its pid, and above it the number of its calls of exec. */
static __always_inline __u64 program_now(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	return (__u64)BPF_CORE_READ(task, self_exec_id) << 32 | bpf_get_current_pid_tgid() >> 32;
}

static __always_inline struct page_id page_at(__u64 address)
{
	return (struct page_id){ program_now(), address >> PAGE_SHIFT };
}

/* A number that changes with each fork of the memory of this process. Bit 32 is set if the kernel counts them. */
static __always_inline __u64 forks_now(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct mm_struct___of_5_11 *mm = (void *)BPF_CORE_READ(task, mm);

	if (bpf_core_field_exists(mm->write_protect_seq))
		return 1ull << 32 | BPF_CORE_READ(mm, write_protect_seq.sequence);
	return 0;
}

/* As sample_level() of the crate core: its number of leading zeros is the greatest shift of a sample with `number`. */
static __always_inline __u64 hash(__u64 number)
{
	return number * 0x9e3779b97f4a7c15;
}

/* The shift of the sample that has left out a page with this hash; 0 if none has, as far as is known. */
static __always_inline __u32 left_out_by(const struct page *page, __u64 of_page)
{
	if (!page)
		return 0;
	if (page->shift && of_page >> (64 - within(page->shift, 64)))
		return page->shift;
	if (page->maybe && of_page >> (64 - within(page->maybe, 64)))
		return page->maybe;
	return 0;
}

/*
 * Notes the fault of a page of the greatest sample, and returns the shift of the sample that is valid for it: n, or more
 * for the first fault after a fork. That one most often copies the page, and the samples that represented it still do.
 */
static __always_inline __u32 note_fill(const struct page_id *id, struct page *page, __u32 n)
{
	struct page new = { .forks = forks_now() };

	if (page && page->forks != new.forks && page->shift > n)
		n = page->shift;
	new.shift = n;
	if (page)
		*page = new;
	else
		bpf_map_update_elem(&pages, id, &new, 0);
	return n;
}

/* Notes that a sample has left out a page that was read, or that a fault near it has mapped. */
static __always_inline void note_left_out(const struct page_id *id, __u64 of_page, __u32 n)
{
	struct page *page = bpf_map_lookup_elem(&pages, id), new = { .maybe = n };

	if (!page)
		bpf_map_update_elem(&pages, id, &new, 0);
	else if (!left_out_by(page, of_page))
		page->maybe = n;
}

static __always_inline void put(struct bpf_perf_event_data *ctx, __u32 ring, struct thinning *t,
				__u64 address, __u64 weight, __u64 kind, __u64 left_out)
{
	struct sample sample = {
		.address = address, .weight = weight, .kind = kind, .left_out = left_out,
		.forks = forks_now(), .program = program_now()
	};

	t->taken++;
	bpf_perf_event_output(ctx, &outputs, ring * cpus + bpf_get_smp_processor_id(), &sample,
			      sizeof(sample));
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
	bool is_first = false, is_of_greatest = !(of_page >> (64 - MIN_SHIFT));
	__u32 left_out = 0, n;
	struct thinning *t;
	struct page_id id;

	/* 31 in 32 faults end here, before any call. */
	if (!is_of_greatest && of_block >> (64 - MIN_SHIFT))
		return;
	id = page_at(ctx->addr);
	t = thinning_of(ring);
	if (!t)
		return;
	n = shift + doublings(t, of_room);
	if (is_of_greatest) {
		struct page *page = bpf_map_lookup_elem(&pages, &id);

		left_out = left_out_by(page, of_page);
		if (kind == MINOR)
			n = note_fill(&id, page, n);
	}
	if (!(of_block >> (64 - n))) {
		is_first = t->block != block || t->block_program != id.program;
		t->block = block;
		t->block_program = id.program;
	}
	if (of_page >> (64 - n) && !is_first) {
		if (is_of_greatest && kind != MINOR)
			note_left_out(&id, of_page, n);
		return;
	}
	put(ctx, ring, t, ctx->addr, 1ull << n, kind, left_out);
}

/*
 * The page of the greatest sample in the window around a page; 0 if there is none. There is at most one, because such
 * pages are at least 34 apart.
 */
static __always_inline __u64 sampled_around(__u64 page)
{
	__u64 first = page >> AROUND_SHIFT << AROUND_SHIFT, of_first = hash(first);
	__u8 may_be = places[of_first >> (64 - MIN_SHIFT)], a = may_be & 15, b = may_be >> 4;

	if (!(hash(first + a) >> (64 - MIN_SHIFT)))
		return first + a;
	return hash(first + b) >> (64 - MIN_SHIFT) ? 0 : first + b;
}

struct area {
	__u64 address;
	bool is_file;
	/* of a mapping without a file; empty if it has one */
	__u64 start, end;
};

static long look_at_area(struct task_struct *task, struct vm_area_struct *vma, struct area *area)
{
	bool has_file = vma->vm_file && !(vma->vm_flags & (VM_IO | VM_PFNMAP));

	area->start = vma->vm_start;
	area->end = has_file ? area->start : vma->vm_end;
	area->is_file = has_file && vma->vm_start <= area->address && area->address < vma->vm_end;
	return 0;
}

/*
 * Takes the fault if the sampled page near it is mapped, and was not mapped before as far as is known. If that page had
 * a fault of its own, take_page() has taken it or left it out.
 */
static __always_inline void take_around(struct bpf_perf_event_data *ctx, __u32 ring, __u32 of_room)
{
	__u64 touched = ctx->addr >> PAGE_SHIFT, page = sampled_around(touched), now, n, changes, *until;
	struct area area = { .address = page << PAGE_SHIFT };
	bool is_own = page == touched, is_left_out;
	__u64 of_page = hash(page);
	struct page_id id;
	__u32 left_out;
	struct thinning *t;
	char byte;

	if (!page)
		return;
	t = thinning_of(ring);
	if (!t)
		return;
	id = page_at(area.address);
	changes = changes_of(BPF_CORE_READ(bpf_get_current_task_btf(), mm));
	/* The lookup of a mapping takes a lock: too dear for a thread that fills memory. */
	if (t->private_program == id.program && t->private_start <= ctx->addr && ctx->addr < t->private_end) {
		if (t->private_changes != changes && t->private_left > CHANGED_FAULTS)
			t->private_left = CHANGED_FAULTS;
		t->private_changes = changes;
		if (t->private_left) {
			t->private_left--;
			return;
		}
	}
	n = shift + doublings(t, of_room);
	is_left_out = of_page >> (64 - n);
	left_out = left_out_by(bpf_map_lookup_elem(&pages, &id), of_page);
	if (is_left_out && (is_own || left_out))
		return;
	now = bpf_ktime_get_ns();
	until = bpf_map_lookup_elem(&mapped, &id);
	/* It keeps its sample until user space has seen that it is not mapped, whatever its hash is. */
	if (!is_own && until && (is_left_out || now < *until))
		return;
	bpf_find_vma(bpf_get_current_task_btf(), ctx->addr, look_at_area, &area, 0);
	if (!area.is_file) {
		t->private_program = id.program;
		t->private_start = area.start;
		t->private_end = area.end;
		t->private_changes = changes;
		t->private_left = PRIVATE_FAULTS;
		return;
	}
	/* This fails if the page is not mapped: here, page faults are disabled. It sets the accessed bit of the page. */
	if (!is_own && bpf_probe_read_user(&byte, sizeof(byte), (void *)area.address))
		return;
	if (is_left_out) {
		note_left_out(&id, of_page, n);
		return;
	}
	now += SAMPLED_NS;
	bpf_map_update_elem(&mapped, &id, &now, 0);
	if (!is_own)
		put(ctx, ring, t, area.address, 1ull << n, AROUND, left_out);
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
		put(ctx, ring, t, ctx->addr, t->among, MAJOR, 0);
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

/* The same for kernels since 5.17, which can find the mapping of an address. */
SEC("perf_event")
int at_minor_around(struct bpf_perf_event_data *ctx)
{
	take_page(ctx, 0, room[0], MINOR);
	take_around(ctx, 0, room[0]);
	return 0;
}

SEC("perf_event")
int at_major_around(struct bpf_perf_event_data *ctx)
{
	take_page(ctx, 1, room[1], READ);
	take_around(ctx, 1, room[1]);
	take_at_random(ctx, 1, room[1]);
	return 0;
}
