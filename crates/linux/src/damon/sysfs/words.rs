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
        /// fill `stats`
        UpdateStats = "update_schemes_stats",
        /// fill `tried_regions`
        UpdateTriedRegions = "update_schemes_tried_regions",
        /// update the intervals with the result of tuning (Linux 6.15)
        UpdateTunedIntervals = "update_tuned_intervals",
    }

    /// The action of a scheme.
    Action {
        /// reclaim
        PageOut = "pageout",
        /// only count
        #[default]
        Stat = "stat",
    }

    /// The property that a filter of a scheme tests.
    FilterType {
        /// anonymous memory
        #[default]
        Anon = "anon",
        /// a target
        Target = "target",
        /// mapped by no process (Linux 6.15)
        Unmapped = "unmapped",
    }

    /// The metric of a quota's goal.
    GoalMetric {
        /// the value that the user writes to `current_value`
        #[default]
        UserInput = "user_input",
        /// time for which some tasks wait for memory, in microseconds
        SomeMemPsiUs = "some_mem_psi_us",
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
