// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Reads the page cache from its own data structures: the files of each super block, their names, and the
 * tree of each file, whose nodes count the pages that are cached and those that were evicted. It takes no
 * lock and writes nothing to the kernel. Page cache, dentries and inodes are freed by RCU, and all
 * programs with direct loads read under it. Without it, each address is checked before use, and no load
 * can fault.
 */
#include "kernel.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define MAX_SUPERS (1 << 14)
#define MAX_FILES 8192
#define MAX_NODES 16384
#define MAX_DENTRIES 4096
#define MAX_NAME 256
#define MAX_FOLDERS 16
#define MAX_NAMES 64
#define MAX_DEPTH 2048 /* a path has at most 4096 bytes */
#define NAME_BYTES (1 << 19)
/* Steps of one run: bounds the time under RCU to some milliseconds. */
#define MAX_INODES 8192
#define MAX_STEPS (1 << 16)
#define SAMPLED_PAGES 64
#define OVERLAYFS_MAGIC 0x794c7630
#define BTRFS_MAGIC 0x9123683e

#define CORE __attribute__((preserve_access_index))

/* Only the used members, which are found by name on the running kernel. */
struct list_head {
	struct list_head *next;
} CORE;
struct hlist_node {
	struct hlist_node *next;
} CORE;
struct hlist_head {
	struct hlist_node *first;
} CORE;
struct rb_root {
	void *rb_node;
} CORE;
struct rb_root_cached {
	struct rb_root rb_root;
} CORE;
struct xarray {
	void *xa_head;
} CORE;
struct xa_node {
	unsigned char shift, offset, count, nr_values;
	void *slots[64];
	unsigned long marks[3];
} CORE;
struct xa_node___of_7_2 {
	unsigned long marks[3][1];
} CORE;
struct inode;
struct address_space {
	struct inode *host;
	struct xarray i_pages;
	struct rb_root_cached i_mmap;
	unsigned long nrpages;
} CORE;
struct dentry;
struct super_block {
	struct list_head s_list;
	__u32 s_dev;
	unsigned long s_magic;
	struct dentry *s_root;
	char s_id[32];
	struct list_head s_inodes;
} CORE;
struct inode {
	struct super_block *i_sb;
	struct address_space *i_mapping;
	unsigned long i_ino;
	unsigned short i_mode;
	__u32 i_rdev;
	unsigned int i_nlink;
	__u32 i_generation;
	long long i_size;
	struct list_head i_sb_list;
	struct hlist_head i_dentry;
	struct address_space i_data;
} CORE;
/* Each subvolume numbers its files from 256 on. */
struct btrfs_key {
	__u64 objectid;
} CORE;
struct btrfs_root {
	struct btrfs_key root_key;
} CORE;
struct btrfs_inode {
	struct btrfs_root *root;
	struct inode vfs_inode;
} CORE;
struct qstr {
	const unsigned char *name;
} CORE;
struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
	union {
		struct hlist_node d_alias;
	} d_u;
} CORE;
struct dentry___of_7_2 {
	struct hlist_node d_alias;
} CORE;
struct path {
	struct dentry *dentry;
} CORE;
struct file {
	struct path f_path;
	struct inode *f_inode;
	struct address_space *f_mapping;
	void *private_data;
} CORE;
/* Since Linux 6.13. */
struct ovl_file {
	struct file *realfile;
} CORE;
struct fdtable {
	struct file **fd;
} CORE;
struct files_struct {
	struct fdtable *fdt;
} CORE;
struct kernfs_node {
	__u64 id;
} CORE;
struct cgroup {
	struct kernfs_node *kn;
} CORE;
struct cgroup_subsys_state {
	struct cgroup *cgroup;
	void *ss;
} CORE;
struct mem_cgroup {
	struct cgroup_subsys_state css;
} CORE;
struct obj_cgroup {
	struct mem_cgroup *memcg;
} CORE;
struct css_set {
	struct cgroup_subsys_state *subsys[8];
} CORE;
struct task_struct {
	int tgid;
	struct files_struct *files;
	struct css_set *cgroups;
} CORE;
struct vm_area_struct {
	unsigned long vm_start, vm_end, vm_pgoff;
	struct file *vm_file;
} CORE;
struct folio {
	unsigned long memcg_data;
} CORE;
struct seq_file;
struct bpf_iter_meta {
	struct seq_file *seq;
} CORE;
struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct file *file;
} CORE;
struct bpf_iter__task_vma {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct vm_area_struct *vma;
} CORE;
enum pageflags {
	PG_writeback = 1,
	PG_referenced = 2,
	PG_dirty = 4,
	PG_active = 8,
};
enum cgroup_subsys_id { memory_cgrp_id = 4 };

#define AT(type, field) bpf_core_field_offset(type, field)
#define LOAD(base, type, field) load((__u64)(base) + AT(type, field))

static __always_inline void lock(void)
{
	if (direct_loads)
		bpf_rcu_read_lock();
}

static __always_inline void unlock(void)
{
	if (direct_loads)
		bpf_rcu_read_unlock();
}

/* The request. */
struct order {
	__u64 sb;         /* any super block; the one whose files to list */
	__u64 cursor;     /* the inode that was visited last; 0: begin */
	__u64 cursor_id;
	__u64 min_pages;  /* list only files with as many cached pages */
	__u64 count_below; /* count files with fewer cached pages in `counted`, if they are small */
	__u64 seed;       /* of the choice of pages */
	__s32 fd;         /* of the caller, for keep_open_file and find_folder */
	__u32 entries;    /* of the input: files, or dentries; of the output of list_files */
	__u64 folders[MAX_FOLDERS]; /* list only files below these dentries; the rest is 0 */
};

struct super_entry {
	__u64 sb, magic;
	__u32 dev, unused;
	char id[32];
};

struct cached_file {
	__u64 inode, sb, ino;
	__u64 id;      /* file_id() */
	__u64 version; /* differs between files with the same number, on one file system */
	__u64 pages, size;
	__u64 parent; /* dentry of the directory; 0: the file has no name in memory */
	__u32 name;   /* its place in `names` */
	__u32 name_bytes;
	__u32 nlink;
	__u32 device; /* of a device file */
	__u16 mode;
	__u8 is_mapped;
	__u8 unused[5];
};

/* A part of a file, at most 64 pages or a part of one folio. */
struct cache_node {
	__u64 first; /* page index */
	__u64 group; /* cgroup to which the sampled page is charged; 0: none */
	__u32 file;  /* index in `files` */
	__u32 cached, evicted, dirty, writeback;
	__u32 sample; /* enum sample */
};

enum sample { SAMPLED = 1, REFERENCED = 2, ACTIVE = 4 };

/* The sum of files that are not listed. All but `files` and `size` are pages. */
struct counted_files {
	__u64 files, size;
	__u64 cached, evicted, dirty, writeback, mapped;
	__u64 sampled, referenced, active; /* pages that samples represent, and those of them with marks */
};

struct dentry_entry {
	__u64 dentry, parent;
	__u32 name, name_bytes;
};

/* What an iterator writes for each open or mapped file. */
struct holder {
	__u64 id; /* file_id() */
	__u32 pid, unused;
	__u64 start, end, page; /* of a mapping: its addresses, and the page of the file at its start */
};

struct place {
	__u64 file; /* index in `files` */
	__u64 page; /* to look at next */
};

struct order order;
struct place at; /* the progress of read_nodes */
__u32 found, visited, lost, more, name_end;
__u64 folder; /* the dentry that find_folder has found */
struct counted_files counted;
__u64 unsampled; /* cached pages of counted files since the last sample */
struct super_entry supers[MAX_SUPERS];
struct cached_file files[MAX_FILES];
struct cache_node nodes[MAX_NODES];
struct dentry_entry dentries[MAX_DENTRIES];
char names[NAME_BYTES + MAX_NAME];

/* The inode whose mapping has the pages. A file that was opened through an overlay has none itself: the
 * real file below does. 0: not found. */
static __always_inline __u64 host_of(__u64 file)
{
	__u64 inode, host, magic;

	inode = LOAD(file, struct file, f_inode);
	magic = LOAD(LOAD(inode, struct inode, i_sb), struct super_block, s_magic);
	if (magic == OVERLAYFS_MAGIC) {
		__u64 below = LOAD(file, struct file, private_data);

		file = bpf_core_type_exists(struct ovl_file) ? LOAD(below, struct ovl_file, realfile) : below;
	}
	host = LOAD(LOAD(file, struct file, f_mapping), struct address_space, host);
	/* Without this, a wrong guess at the overlay's data would give any address. */
	if (LOAD(LOAD(host, struct inode, i_mapping), struct address_space, host) != host)
		return 0;
	return host;
}

/* All super blocks are on one ring. Its head is no super block: it lies in the kernel's image, which is at
 * the end of the address space. Without a root, a super block is not mounted yet, or not any more. */
static long list_super(__u32 i, __u64 *sb)
{
	__u64 next = LOAD(*sb, struct super_block, s_list) - AT(struct super_block, s_list);

	if (*sb < 0xffffffff80000000ull && LOAD(*sb, struct super_block, s_root)) {
		struct super_entry *s = &supers[within(found, MAX_SUPERS)];

		s->sb = *sb;
		s->magic = LOAD(*sb, struct super_block, s_magic);
		s->dev = LOAD(*sb, struct super_block, s_dev);
		bpf_probe_read_kernel_str(s->id, sizeof(s->id),
					  (void *)(*sb + AT(struct super_block, s_id)));
		found++;
	}
	*sb = next;
	more = found < MAX_SUPERS;
	return next == order.sb || !more || !next;
}

SEC("syscall") int list_supers(void *ctx)
{
	__u64 sb = order.sb;

	found = 0;
	lock();
	bpf_loop(MAX_SUPERS + 1, list_super, &sb, 0);
	unlock();
	return 0;
}

/* Appends a name, and returns its length without the end. */
static __always_inline __u32 keep_name(__u64 dentry)
{
	__u64 name = LOAD(dentry, struct dentry, d_name.name), end = within(name_end, NAME_BYTES);
	long n = bpf_probe_read_kernel_str(&names[end], MAX_NAME, (void *)name);

	if (n <= 0)
		return 0;
	name_end += n - 1;
	return n - 1;
}

/* The dentry at a link of the list of an inode's names, which begins with the next link. */
static __always_inline __u64 dentry_at(__u64 link)
{
	if (!link)
		return 0;
	if (bpf_core_field_exists(struct dentry___of_7_2, d_alias))
		return link - AT(struct dentry___of_7_2, d_alias);
	return link - AT(struct dentry, d_u);
}

static __always_inline __u64 dentry_of(__u64 inode)
{
	return dentry_at(LOAD(inode, struct inode, i_dentry.first));
}

static __always_inline __u64 mapping_of(__u64 inode)
{
	return inode + AT(struct inode, i_data);
}

/* The root of the tree of a file. */
static __always_inline __u64 root_of(__u64 inode)
{
	return LOAD(mapping_of(inode), struct address_space, i_pages.xa_head);
}

static __always_inline __u64 id_of(__u64 inode)
{
	return file_id(inode, LOAD(inode, struct inode, i_ino), LOAD(inode, struct inode, i_generation));
}

/* The generation of the inode, and on btrfs the subvolume. A snapshot has the numbers and generations of its origin. */
static __always_inline __u64 version_of(__u64 inode)
{
	__u32 generation = LOAD(inode, struct inode, i_generation);
	__u64 sb = LOAD(inode, struct inode, i_sb), root;

	if (!bpf_core_field_exists(struct btrfs_root, root_key)
	    || LOAD(sb, struct super_block, s_magic) != BTRFS_MAGIC)
		return generation;
	root = LOAD(inode - AT(struct btrfs_inode, vfs_inode), struct btrfs_inode, root);
	return generation | LOAD(root, struct btrfs_root, root_key.objectid) << 32;
}

static __always_inline void keep_file(__u64 inode, __u64 dentry)
{
	struct cached_file *f = &files[within(found, MAX_FILES)];
	__u64 mapping = mapping_of(inode);

	f->inode = inode;
	f->sb = LOAD(inode, struct inode, i_sb);
	f->ino = LOAD(inode, struct inode, i_ino);
	f->id = id_of(inode);
	f->version = version_of(inode);
	f->pages = LOAD(mapping, struct address_space, nrpages);
	f->size = LOAD(inode, struct inode, i_size);
	f->nlink = LOAD(inode, struct inode, i_nlink);
	f->device = LOAD(inode, struct inode, i_rdev);
	f->mode = LOAD(inode, struct inode, i_mode);
	f->is_mapped = LOAD(mapping, struct address_space, i_mmap.rb_root.rb_node) != 0;
	f->parent = 0;
	f->name = name_end;
	f->name_bytes = 0;
	if (dentry) {
		f->parent = LOAD(dentry, struct dentry, d_parent);
		f->name_bytes = keep_name(dentry);
	}
	found++;
}

/* What the caller has open as order.fd. */
static __always_inline struct file *open_file(void)
{
	struct task_struct *self = (void *)bpf_get_current_task();
	struct file **fds = BPF_CORE_READ(self, files, fdt, fd), *file = NULL;

	bpf_probe_read_kernel(&file, sizeof(file), fds + order.fd);
	return file;
}

SEC("syscall") int find_folder(void *ctx)
{
	struct file *file = open_file();

	folder = (__u64)BPF_CORE_READ(file, f_path.dentry);
	return 0;
}

SEC("syscall") int keep_open_file(void *ctx)
{
	struct file *file = open_file();
	__u64 inode;

	found = name_end = 0;
	lock();
	inode = host_of((__u64)file);
	if (inode)
		keep_file(inode, dentry_of(inode));
	unlock();
	return 0;
}

struct climb {
	__u64 dentry, is_below;
};

static long climb(__u32 depth, struct climb *c)
{
	__u64 parent;

	for (int i = 0; i < MAX_FOLDERS && order.folders[i]; i++)
		if (order.folders[i] == c->dentry) {
			c->is_below = 1;
			return 1;
		}
	parent = LOAD(c->dentry, struct dentry, d_parent);
	if (parent == c->dentry || !parent)
		return 1;
	c->dentry = parent;
	return 0;
}

static long name_dentry(__u32 i, void *unused)
{
	struct dentry_entry *d = &dentries[within(i, MAX_DENTRIES)];

	if (name_end >= NAME_BYTES)
		return 1;
	d->parent = LOAD(d->dentry, struct dentry, d_parent);
	d->name = name_end;
	d->name_bytes = keep_name(d->dentry);
	found = i + 1;
	return 0;
}

/* Names and parents of dentries. The parent of a root is the root itself. */
SEC("syscall") int name_dentries(void *ctx)
{
	found = name_end = 0;
	lock();
	bpf_loop(order.entries, name_dentry, NULL, 0);
	unlock();
	return 0;
}

#define IS_NODE(entry) (((entry) & 3) == 2 && (entry) > 4096)
#define IS_SIBLING(entry) (((entry) & 3) == 2 && (entry) < 256)
#define IS_SHADOW(entry) ((entry) & 1)

static __always_inline __u64 slot_of(__u64 node, __u32 slot)
{
	return load(node + AT(struct xa_node, slots) + (slot & 63) * 8);
}

/* Marks 0 and 1 are dirty and writeback. Only the first slot of a folio is marked. */
static __always_inline __u64 marks_of(__u64 node, __u32 mark)
{
	__u64 marks = bpf_core_field_exists(struct xa_node___of_7_2, marks)
			      ? AT(struct xa_node___of_7_2, marks)
			      : AT(struct xa_node, marks);

	return load(node + marks + mark * 8);
}

struct tally {
	__u64 node, dirty, writeback;
	__u32 nr_dirty, nr_writeback;
};

static long count_marks(__u32 slot, struct tally *t)
{
	__u64 entry = slot_of(t->node, slot), head = slot;

	if (IS_SIBLING(entry))
		head = entry >> 2;
	t->nr_dirty += t->dirty >> (head & 63) & 1;
	t->nr_writeback += t->writeback >> (head & 63) & 1;
	return 0;
}

struct pick {
	__u64 node, folio;
	__u32 start;
};

static long pick_folio(__u32 i, struct pick *p)
{
	__u64 entry = slot_of(p->node, p->start + i);

	if (IS_SIBLING(entry))
		entry = slot_of(p->node, entry >> 2);
	if (!entry || (entry & 3))
		return 0;
	p->folio = entry;
	return 1;
}

/* The memory cgroup of a page: its id is the inode number of its directory. A page is charged to a group,
 * or, in new kernels, to an object that leads to it: the group is the one that belongs to the memory
 * controller. */
static __always_inline __u64 group_of(__u64 folio, __u64 memory)
{
	__u64 group;

	if (!memory || !bpf_core_field_exists(struct folio, memcg_data))
		return 0;
	group = LOAD(folio, struct folio, memcg_data) & ~7ull;
	if (!group)
		return 0;
	if (LOAD(group, struct mem_cgroup, css.ss) != memory) {
		group = LOAD(group, struct obj_cgroup, memcg);
		if (LOAD(group, struct mem_cgroup, css.ss) != memory)
			return 0;
	}
	return LOAD(LOAD(LOAD(group, struct mem_cgroup, css.cgroup), struct cgroup, kn), struct kernfs_node, id);
}

#define FLAG(flags, name, bit) \
	((flags) >> bpf_core_enum_value(enum pageflags, name) & 1 ? (bit) : 0)

static __always_inline void describe(struct cache_node *n, __u64 folio, __u64 memory)
{
	__u64 flags = load(folio);

	n->sample = SAMPLED | FLAG(flags, PG_referenced, REFERENCED) | FLAG(flags, PG_active, ACTIVE);
	n->group = group_of(folio, memory);
}

/* A node of 64 slots for single pages counts its entries: only the marked ones are looked at. */
static __always_inline void count_leaf(struct cache_node *n, __u64 node)
{
	struct tally t = { .node = node, .dirty = marks_of(node, 0), .writeback = marks_of(node, 1) };
	__u64 head = load(node);
	__u32 entries = head >> 16 & 0xff;

	/* The kernel changes the two numbers one after the other. */
	n->evicted = head >> 24 & 0xff;
	n->cached = entries > n->evicted ? entries - n->evicted : 0;
	if (t.dirty | t.writeback) {
		bpf_loop(64, count_marks, &t, 0);
		n->dirty = t.nr_dirty;
		n->writeback = t.nr_writeback;
	}
}

/* Looks at one page of a node, chosen by a hash of `seed` among its entries if these are the first ones. */
static __always_inline void sample_leaf(struct cache_node *n, __u64 node, __u64 memory, __u64 seed)
{
	__u64 hash = (seed * 0x9e3779b97f4a7c15ull) >> 32;
	struct pick p = { .node = node, .start = hash * (n->cached + n->evicted) >> 32 };

	bpf_loop(64, pick_folio, &p, 0);
	if (p.folio)
		describe(n, p.folio, memory);
}

/* An entry above the leaves, for the pages of a large folio, or the only page of a file. */
static __always_inline void count_entry(struct cache_node *n, __u64 entry, __u32 pages)
{
	__u64 flags;

	if (IS_SHADOW(entry)) {
		n->evicted = pages;
		return;
	}
	flags = load(entry);
	n->cached = pages;
	n->dirty = FLAG(flags, PG_dirty, pages);
	n->writeback = FLAG(flags, PG_writeback, pages);
}

struct inode_walk {
	__u64 link, head;
};

/*
 * The directory of the file before, and whether it is listed. They are not in struct inode_walk: in old kernels (6.1) the
 * verifier checks one step of bpf_loop only. It would take the zeros that the struct has at first for constants, and
 * remove what follows from other values.
 */
__u64 last_parent, last_is_below;

/* Whether a name is below one of order.folders. */
static __always_inline bool is_below(__u64 dentry)
{
	__u64 parent = LOAD(dentry, struct dentry, d_parent);

	if (parent != last_parent) {
		struct climb c = { .dentry = parent };

		bpf_loop(MAX_DEPTH, climb, &c, 0);
		last_parent = parent;
		last_is_below = c.is_below;
	}
	return last_is_below;
}

struct names {
	__u64 link, below;
};

static long seek_name(__u32 i, struct names *n)
{
	__u64 dentry;

	n->link = load(n->link);
	dentry = dentry_at(n->link);
	if (!dentry)
		return 1;
	if (!is_below(dentry))
		return 0;
	n->below = dentry;
	return 1;
}

/* Whether the file is below one of order.folders, by any of its names. One without a name may be. */
static __always_inline bool is_chosen(__u64 inode, __u64 *dentry)
{
	struct names n = { .link = LOAD(inode, struct inode, i_dentry.first) };

	*dentry = dentry_at(n.link);
	if (!order.folders[0] || !*dentry || is_below(*dentry))
		return true;
	if (LOAD(inode, struct inode, i_nlink) < 2)
		return false;
	bpf_loop(MAX_NAMES, seek_name, &n, 0);
	*dentry = n.below;
	return n.below;
}

/* Counts a file whose tree is one node or one page, and samples one page of each SAMPLED_PAGES. Other files are listed,
 * and those without a name if that decides whether they are chosen. */
static __always_inline bool count_file(__u64 inode, __u64 root)
{
	struct cache_node n = {};
	__u64 node = root - 2;
	bool is_node = IS_NODE(root);

	if ((is_node && (load(node) & 0xff)) || (order.folders[0] && !dentry_of(inode)))
		return false;
	if (is_node)
		count_leaf(&n, node);
	else
		count_entry(&n, root, 1);
	if (!(n.cached | n.evicted))
		return true;
	counted.files++;
	counted.size += LOAD(inode, struct inode, i_size);
	counted.cached += n.cached;
	counted.evicted += n.evicted;
	counted.dirty += n.dirty;
	counted.writeback += n.writeback;
	if (LOAD(mapping_of(inode), struct address_space, i_mmap.rb_root.rb_node))
		counted.mapped += n.cached;
	unsampled += n.cached;
	if (unsampled < SAMPLED_PAGES)
		return true;
	unsampled %= SAMPLED_PAGES;
	if (is_node)
		sample_leaf(&n, node, 0, inode ^ order.seed);
	else
		describe(&n, root, 0);
	if (n.sample & SAMPLED)
		counted.sampled += SAMPLED_PAGES;
	if (n.sample & (REFERENCED | ACTIVE))
		counted.referenced += SAMPLED_PAGES;
	if (n.sample & ACTIVE)
		counted.active += SAMPLED_PAGES;
	return true;
}

static long list_inode(__u32 i, struct inode_walk *w)
{
	__u64 next = load(w->link), inode, dentry, root, pages = 0;

	if (next == w->head) {
		more = 0;
		return 1;
	}
	/* An inode that is taken off the list points to itself. */
	if (next == w->link || !next) {
		lost = 1;
		return 1;
	}
	w->link = next;
	visited++;
	inode = next - AT(struct inode, i_sb_list);
	root = root_of(inode);
	if (root)
		pages = LOAD(mapping_of(inode), struct address_space, nrpages);
	if (root && pages >= order.min_pages && is_chosen(inode, &dentry)
	    && !(pages < order.count_below && count_file(inode, root)))
		keep_file(inode, dentry);
	return found >= order.entries || found >= MAX_FILES || name_end >= NAME_BYTES;
}

/* The files with page cache or with notes of evicted pages, among the next inodes of a super block. If the
 * inode at which the run before has stopped is gone, `lost` is set: begin again. */
SEC("syscall") int list_files(void *ctx)
{
	struct inode_walk w = { .head = order.sb + AT(struct super_block, s_inodes) };

	found = visited = lost = name_end = 0;
	last_parent = last_is_below = 0;
	counted = (struct counted_files){};
	more = 1;
	lock();
	w.link = w.head;
	if (order.cursor) {
		__u64 next;

		w.link = order.cursor + AT(struct inode, i_sb_list);
		next = load(w.link);
		lost = LOAD(order.cursor, struct inode, i_sb) != order.sb
		       || id_of(order.cursor) != order.cursor_id
		       || load(next + 8) != w.link || next == w.link;
	}
	if (!lost)
		bpf_loop(MAX_INODES, list_inode, &w, 0);
	order.cursor = w.link == w.head ? 0 : w.link - AT(struct inode, i_sb_list);
	order.cursor_id = order.cursor ? id_of(order.cursor) : 0;
	unlock();
	return 0;
}

struct cache_walk {
	__u64 root;   /* of the tree of the file; 0: not read yet */
	__u64 memory; /* the memory controller, `struct cgroup_subsys` */
};

static __always_inline struct cache_node *new_node(__u64 page)
{
	struct cache_node *n = &nodes[within(found, MAX_NODES)];

	n->first = page;
	n->group = 0;
	n->file = at.file;
	n->cached = n->evicted = n->dirty = n->writeback = n->sample = 0;
	found++;
	return n;
}

static __always_inline void read_leaf(struct cache_walk *w, __u64 node, __u64 page)
{
	struct cache_node *n = new_node(page);

	count_leaf(n, node);
	if (n->cached)
		sample_leaf(n, node, w->memory, page ^ order.seed);
}

static __always_inline void read_entry(struct cache_walk *w, __u64 entry, __u64 page, __u32 shift)
{
	struct cache_node *n = new_node(page);

	count_entry(n, entry, 1u << (shift & 31));
	if (n->cached)
		describe(n, entry, w->memory);
}

static __always_inline void next_file(struct cache_walk *w)
{
	at.file++;
	at.page = 0;
	w->root = 0;
}

/* The next part of the file with pages; or skips one part without any. */
static __always_inline void read_part(struct cache_walk *w)
{
	__u64 entry = w->root, node, page = at.page;
	__u32 shift;

	for (int depth = 0; depth < 11; depth++) {
		node = entry - 2;
		shift = load(node) & 0xff;
		if (depth == 0 && shift < 58 && page >> (shift + 6)) {
			next_file(w);
			return;
		}
		if (shift == 0) {
			read_leaf(w, node, page & ~63ull);
			at.page = (page | 63) + 1;
			return;
		}
		entry = slot_of(node, page >> (shift & 63));
		if (IS_SIBLING(entry))
			entry = slot_of(node, entry >> 2);
		if (IS_NODE(entry))
			continue;
		if (entry)
			read_entry(w, entry, page, shift);
		at.page = ((page >> (shift & 63)) + 1) << (shift & 63);
		if (!at.page) /* the end of the largest file */
			next_file(w);
		return;
	}
	next_file(w);
}

static long read_node(__u32 step, struct cache_walk *w)
{
	struct cached_file *f = &files[within(at.file, MAX_FILES)];

	if (at.file >= order.entries) {
		more = 0;
		return 1;
	}
	if (found >= MAX_NODES)
		return 1;
	if (!w->root) {
		/* Since it was listed, the file may have gone. */
		if (LOAD(f->inode, struct inode, i_sb) != f->sb || id_of(f->inode) != f->id) {
			next_file(w);
			return 0;
		}
		w->root = root_of(f->inode);
		if (!IS_NODE(w->root)) {
			if (w->root)
				read_entry(w, w->root, 0, 0);
			next_file(w);
			return 0;
		}
	}
	read_part(w);
	return 0;
}

static long recount_file(__u32 i, void *unused)
{
	struct cached_file *f = &files[within(i, MAX_FILES)];
	__u64 mapping = mapping_of(f->inode);

	f->pages = 0;
	/* Since it was listed, the file may have gone. */
	if (LOAD(f->inode, struct inode, i_sb) != f->sb || id_of(f->inode) != f->id)
		return 0;
	f->pages = LOAD(mapping, struct address_space, nrpages);
	f->size = LOAD(f->inode, struct inode, i_size);
	return 0;
}

/* The number of pages and the size of order.entries files. */
SEC("syscall") int recount_files(void *ctx)
{
	lock();
	bpf_loop(order.entries, recount_file, NULL, 0);
	unlock();
	return 0;
}

static __always_inline __u64 memory_controller(void)
{
	struct task_struct *self = (void *)bpf_get_current_task();
	__u64 sets = (__u64)BPF_CORE_READ(self, cgroups), css;

	if (!bpf_core_enum_value_exists(enum cgroup_subsys_id, memory_cgrp_id))
		return 0;
	css = load(sets + AT(struct css_set, subsys)
		   + 8 * bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id));
	return LOAD(css, struct cgroup_subsys_state, ss);
}

/* The parts of order.entries files, from `at` on, until nodes[] is full. */
SEC("syscall") int read_nodes(void *ctx)
{
	struct cache_walk w = {};

	found = 0;
	more = 1;
	lock();
	w.memory = memory_controller();
	bpf_loop(MAX_STEPS, read_node, &w, 0);
	unlock();
	return 0;
}

static __always_inline void tell(struct seq_file *seq, struct task_struct *task, struct file *file,
				 struct holder h)
{
	__u64 inode = host_of((__u64)file);

	if (!inode)
		return;
	h.pid = BPF_CORE_READ(task, tgid);
	h.id = id_of(inode);
	bpf_seq_write(seq, &h, sizeof(h));
}

SEC("iter/task_file") int list_open(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;

	if (task && file)
		tell(ctx->meta->seq, task, file, (struct holder){});
	return 0;
}

SEC("iter/task_vma") int list_mapped(struct bpf_iter__task_vma *ctx)
{
	struct task_struct *task = ctx->task;
	struct vm_area_struct *vma = ctx->vma;
	struct file *file;

	if (!task || !vma)
		return 0;
	file = BPF_CORE_READ(vma, vm_file);
	if (file)
		tell(ctx->meta->seq, task, file,
		     (struct holder){ .start = BPF_CORE_READ(vma, vm_start),
				      .end = BPF_CORE_READ(vma, vm_end),
				      .page = BPF_CORE_READ(vma, vm_pgoff) });
	return 0;
}
