//! The words in DAMON's files.

use super::entry::Word;

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $word:ident = $text:literal,)* })*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub enum $name { $($(#[$about])* $word,)* }

        impl $name {
            /// All words.
            pub const ALL: &[$name] = &[$($name::$word,)*];

            /// The word in the kernel's files.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $($name::$word => $text,)* }
            }
        }

        impl Word for $name {
            fn parse(text: &str) -> Option<Self> {
                $name::ALL.iter().copied().find(|word| word.name() == text)
            }
            fn text(&self) -> String {
                self.name().to_owned()
            }
        }
    )* };
}

words! {
    /// The memory to monitor.
    Operations {
        /// address spaces of processes
        #[default]
        Vaddr = "vaddr",
        /// fixed ranges of an address space
        Fvaddr = "fvaddr",
        /// physical addresses
        Paddr = "paddr",
    }

    /// A command for `state`; reading `state` returns [`Command::On`] or [`Command::Off`].
    Command {
        /// start
        On = "on",
        /// stop
        #[default]
        Off = "off",
        /// apply all changes of files
        Commit = "commit",
        /// apply only changes of quota goals
        CommitQuotaGoals = "commit_schemes_quota_goals",
        /// fill `stats`
        UpdateStats = "update_schemes_stats",
        /// fill `tried_regions/total_bytes`
        UpdateTriedBytes = "update_schemes_tried_bytes",
        /// fill `tried_regions`
        UpdateTriedRegions = "update_schemes_tried_regions",
        /// empty `tried_regions`
        ClearTriedRegions = "clear_schemes_tried_regions",
        /// fill `quotas/effective_bytes`
        UpdateEffectiveQuotas = "update_schemes_effective_quotas",
        /// update the intervals with the result of tuning (Linux 6.15)
        UpdateTunedIntervals = "update_tuned_intervals",
    }

    /// The action of a scheme.
    Action {
        /// read ahead
        WillNeed = "willneed",
        /// deactivate
        Cold = "cold",
        /// reclaim
        PageOut = "pageout",
        /// allow huge pages
        HugePage = "hugepage",
        /// forbid huge pages
        NoHugePage = "nohugepage",
        /// collapse into huge pages (Linux 7.2)
        Collapse = "collapse",
        /// to the head of the LRU list
        LruPrio = "lru_prio",
        /// to the tail of the LRU list
        LruDeprio = "lru_deprio",
        /// migrate, the hottest first
        MigrateHot = "migrate_hot",
        /// migrate, the coldest first
        MigrateCold = "migrate_cold",
        /// only count
        #[default]
        Stat = "stat",
    }

    /// The property that a filter of a scheme tests.
    FilterType {
        /// anonymous memory
        #[default]
        Anon = "anon",
        /// memory of a cgroup
        Memcg = "memcg",
        /// accessed since the last check (Linux 6.10)
        Young = "young",
        /// an address range
        Addr = "addr",
        /// a target
        Target = "target",
        /// on the active LRU list (Linux 6.15)
        Active = "active",
        /// size of the folio (Linux 6.15)
        HugePageSize = "hugepage_size",
        /// mapped by no process (Linux 6.15)
        Unmapped = "unmapped",
    }

    /// The property that a filter of a probe tests (Linux 7.2).
    ProbeFilterType {
        /// anonymous memory
        #[default]
        Anon = "anon",
        /// memory of a cgroup
        Memcg = "memcg",
        /// accessed since it was marked idle (Linux 7.3)
        PageIdleUnset = "pgidle_unset",
    }

    /// The metric of a quota's goal.
    GoalMetric {
        /// the value that the user writes to `current_value`
        #[default]
        UserInput = "user_input",
        /// time for which some tasks wait for memory, in microseconds
        SomeMemPsiUs = "some_mem_psi_us",
        /// used memory of a node, in 1/10,000 (Linux 6.16)
        NodeMemUsedBp = "node_mem_used_bp",
        /// free memory of a node, in 1/10,000 (Linux 6.16)
        NodeMemFreeBp = "node_mem_free_bp",
        /// memory of a node that a cgroup uses, in 1/10,000 (Linux 6.19)
        NodeMemcgUsedBp = "node_memcg_used_bp",
        /// memory of a node that a cgroup does not use, in 1/10,000 (Linux 6.19)
        NodeMemcgFreeBp = "node_memcg_free_bp",
        /// active memory, in 1/10,000 (Linux 7.0)
        ActiveMemBp = "active_mem_bp",
        /// inactive memory, in 1/10,000 (Linux 7.0)
        InactiveMemBp = "inactive_mem_bp",
        /// memory of a node that is eligible for the scheme, in 1/10,000 (Linux 7.2)
        NodeEligibleMemBp = "node_eligible_mem_bp",
    }

    /// How a quota is adjusted to its goals (Linux 7.1).
    GoalTuner {
        /// steadily
        #[default]
        Consist = "consist",
        /// all or nothing
        Temporal = "temporal",
    }

    /// The metric of watermarks.
    WatermarkMetric {
        /// none: the scheme is always active
        #[default]
        None = "none",
        /// free memory, in 1/1,000
        FreeMemRate = "free_mem_rate",
    }
}

/// The operations sets of the kernel; unknown words are omitted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Available(pub Vec<Operations>);

impl Word for Available {
    fn parse(text: &str) -> Option<Self> {
        Some(Available(text.split_whitespace().filter_map(Operations::parse).collect()))
    }
    fn text(&self) -> String {
        String::new()
    }
}
