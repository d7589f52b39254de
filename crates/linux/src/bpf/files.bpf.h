/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Lists the open files of a process through which its memory may be accessed without its own page tables:
 * devices, and files without a directory (virtual machines, rings). /proc/PID/fd has the same, but requires
 * the capability to read files of other users.
 */
struct super_block {
	unsigned long s_magic;
} __attribute__((preserve_access_index));
struct inode {
	unsigned short i_mode;
	__u32 i_rdev;
	struct super_block *i_sb;
} __attribute__((preserve_access_index));
struct qstr {
	const unsigned char *name;
} __attribute__((preserve_access_index));
struct dentry {
	struct qstr d_name;
} __attribute__((preserve_access_index));
struct path {
	struct dentry *dentry;
} __attribute__((preserve_access_index));
struct file {
	struct path f_path;
	struct inode *f_inode;
} __attribute__((preserve_access_index));
struct seq_file;
struct bpf_iter_meta {
	struct seq_file *seq;
} __attribute__((preserve_access_index));
struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	__u32 fd;
	struct file *file;
} __attribute__((preserve_access_index));

#define S_IFMT 0170000
#define S_IFCHR 0020000
#define ANON_INODE_FS_MAGIC 0x09041934

/* files.rs has the same layout. */
struct open_file {
	__u32 fd;
	__u32 device; /* the kernel's number: minor in bits 0..19, major above; 0: none */
	char name[32]; /* if there is no device */
};

/* Null, zero, random and terminals cannot. Almost every process has some of them. */
static __always_inline bool may_reach_memory(__u32 device)
{
	__u32 major = device >> 20;

	return major != 1 && major != 4 && major != 5 && !(major >= 136 && major <= 143);
}

/* kvm-vm, kvm-vcpu, [vfio-device], [io_uring]: checks the characters that distinguish these from [eventfd]
 * and similar files, of which a server may have a hundred thousand. */
static __always_inline bool is_known_to_reach_memory(const char *name)
{
	return name[0] == 'k' || (name[0] == '[' && (name[1] == 'v' || name[1] == 'i'));
}

SEC("iter/task_file") int list_files(struct bpf_iter__task_file *ctx)
{
	struct file *file = ctx->file;
	struct open_file found = { .fd = ctx->fd };

	if (!file)
		return 0;
	if ((BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) == S_IFCHR) {
		found.device = BPF_CORE_READ(file, f_inode, i_rdev);
		if (!may_reach_memory(found.device))
			return 0;
	} else if (BPF_CORE_READ(file, f_inode, i_sb, s_magic) == ANON_INODE_FS_MAGIC) {
		bpf_probe_read_kernel_str(found.name, sizeof(found.name),
					  BPF_CORE_READ(file, f_path.dentry, d_name.name));
		if (!is_known_to_reach_memory(found.name))
			return 0;
	} else {
		return 0;
	}
	bpf_seq_write(ctx->meta->seq, &found, sizeof(found));
	return 0;
}
