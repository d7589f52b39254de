/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What all programs share: types, and loads of kernel memory that cannot fault. */
typedef unsigned char __u8;
typedef unsigned short __u16, __be16;
typedef int __s32;
typedef unsigned int __u32, __be32, __wsum;
typedef long long __s64;
typedef unsigned long long __u64;
#define NULL ((void *)0)
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <stdbool.h>

struct timespec64 {
	long tv_sec;
} __attribute__((preserve_access_index));

extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym __weak;
extern void bpf_rcu_read_lock(void) __ksym __weak;
extern void bpf_rcu_read_unlock(void) __ksym __weak;

/* Set before loading: loads through bpf_rdonly_cast(). */
const volatile bool direct_loads = true;

static __always_inline __u64 load(__u64 addr)
{
	__u64 word = 0;

	if (direct_loads) {
		struct timespec64 *at = bpf_rdonly_cast(
			(void *)addr, bpf_core_type_id_kernel(struct timespec64));

		return at->tv_sec;
	}
	bpf_probe_read_kernel(&word, sizeof(word), (void *)addr);
	return word;
}

/* An index that the verifier can see is in bounds; `size` is a power of two. */
static __always_inline __u64 within(__u64 index, __u64 size)
{
	barrier_var(index);
	return index & (size - 1);
}

struct mm_struct;
struct seqcount {
	unsigned int sequence;
} __attribute__((preserve_access_index));
/* Changes whenever a writer releases the lock of the memory map (CONFIG_PER_VMA_LOCK). */
struct mm_struct___of_6_4 {
	int mm_lock_seq;
} __attribute__((preserve_access_index));
struct mm_struct___of_6_13 {
	struct seqcount mm_lock_seq;
} __attribute__((preserve_access_index));

/* Bit 32 is set if the kernel counts changes of mappings. */
static __always_inline __u64 changes_of(struct mm_struct *mm)
{
	struct mm_struct___of_6_13 *new = (void *)mm;
	struct mm_struct___of_6_4 *old = (void *)mm;

	if (bpf_core_field_exists(new->mm_lock_seq))
		return 1ull << 32 | BPF_CORE_READ(new, mm_lock_seq.sequence);
	if (bpf_core_field_exists(old->mm_lock_seq))
		return 1ull << 32 | (__u32)BPF_CORE_READ(old, mm_lock_seq);
	return 0;
}

/* Identifies a file as long as it is in memory. Another file may have its address, and even its number, later. */
static __always_inline __u64 file_id(__u64 inode, __u64 ino, __u32 generation)
{
	return inode + ino * 0x9e3779b97f4a7c15ull + generation * 0xc2b2ae3d27d4eb4full;
}
