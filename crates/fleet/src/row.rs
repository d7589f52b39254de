//! A row of the lake and its columns.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

use arrow_array::Int64Array;
use arrow_schema::{DataType, Field, Schema, TimeUnit};

/// Ages of the columns `idle_AGE` and `returned_AGE`: the AGE of their names, and its seconds.
pub const COLUMN_AGES: [(&str, u64); 22] = [
    ("1s", 1),
    ("2s", 2),
    ("5s", 5),
    ("10s", 10),
    ("15s", 15),
    ("30s", 30),
    ("1m", 60),
    ("2m", 120),
    ("5m", 300),
    ("10m", 600),
    ("15m", 900),
    ("30m", 1800),
    ("1h", 3600),
    ("2h", 7200),
    ("4h", 14_400),
    ("8h", 28_800),
    ("12h", 43_200),
    ("1d", 86_400),
    ("2d", 172_800),
    ("4d", 345_600),
    ("7d", 604_800),
    ("14d", 1_209_600),
];

/// A control group and the names that it was resolved to. An empty text is a null, except in `host`, `cgroup`
/// and `service`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Group {
    /// name of the machine
    pub host: String,
    /// path of the control group
    pub cgroup: String,
    /// name of the service: namespace and owner of the pod, container or unit; else the last part of the path
    pub service: String,
    /// name of the pod
    pub pod: String,
    /// namespace of the pod
    pub namespace: String,
    /// name of the container
    pub container: String,
    /// systemd unit
    pub unit: String,
    /// image of the container
    pub image: String,
    /// command line of its largest process, if command lines were asked for
    pub command: String,
}

/// A column of text.
pub(crate) struct TextColumn {
    pub name: &'static str,
    pub nullable: bool,
    pub get: fn(&Group) -> &str,
    pub get_mut: fn(&mut Group) -> &mut String,
}

macro_rules! text {
    ($($name:ident: $nullable:literal),*) => {
        &[$(TextColumn {
            name: stringify!($name),
            nullable: $nullable,
            get: |g| &g.$name,
            get_mut: |g| &mut g.$name,
        }),*]
    };
}

pub(crate) const TEXTS: &[TextColumn] = text![
    host: false, cgroup: false, service: false, pod: true, namespace: true, container: true, unit: true, image: true,
    command: true
];

/// A number of a row: an `i64`, or an `Option` of one in a nullable column.
trait Number: Copy {
    const NULLABLE: bool;
    fn column(values: impl Iterator<Item = Self>) -> Int64Array;
    fn of(value: Option<i64>) -> Self;
}

impl Number for i64 {
    const NULLABLE: bool = false;
    fn column(values: impl Iterator<Item = Self>) -> Int64Array {
        Int64Array::from_iter_values(values)
    }
    fn of(value: Option<i64>) -> Self {
        value.unwrap_or(0)
    }
}

impl Number for Option<i64> {
    const NULLABLE: bool = true;
    fn column(values: impl Iterator<Item = Self>) -> Int64Array {
        values.collect()
    }
    fn of(value: Option<i64>) -> Self {
        value
    }
}

/// A column of some rows, and its number in one row.
type Get = dyn Fn(&[LakeRow]) -> Int64Array + Send + Sync;
type Set = dyn Fn(&mut LakeRow, Option<i64>) + Send + Sync;

/// A column of numbers.
pub(crate) struct Numbers {
    pub name: String,
    pub nullable: bool,
    pub get: Box<Get>,
    pub set: Box<Set>,
}

macro_rules! row {
    ($($(#[$doc:meta])* $name:ident: $kind:ty,)*) => {
        /// The figures of a control group in one minute. Sizes are in bytes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct LakeRow {
            /// index of its [`Group`]
            pub group: u32,
            /// start of the minute in ms since 1970, UTC
            pub minute: i64,
            $($(#[$doc])* pub $name: $kind,)*
            /// resident bytes idle for at least each age of [`COLUMN_AGES`]
            pub idle: [i64; COLUMN_AGES.len()],
            /// bytes touched in this minute after they had been idle for at least each age of [`COLUMN_AGES`]
            pub returned: [i64; COLUMN_AGES.len()],
        }

        fn named() -> Vec<Numbers> {
            vec![$(Numbers {
                name: stringify!($name).to_owned(),
                nullable: <$kind as Number>::NULLABLE,
                get: Box::new(|rows| <$kind as Number>::column(rows.iter().map(|r| r.$name))),
                set: Box::new(|row, value| row.$name = <$kind as Number>::of(value)),
            }),*]
        }
    };
}

row! {
    /// resident memory; like all sizes up to `swapped_bytes` the mean over the snapshots of the minute
    resident_bytes: i64,
    /// hot part of it
    hot_bytes: i64,
    /// part of it that is neither hot nor cold
    warm_bytes: i64,
    /// cold part of it
    cold_bytes: i64,
    /// part of it whose accesses cannot be observed
    unknown_bytes: i64,
    /// in swap
    swapped_bytes: i64,
    /// in swap because isotherm paged it out, at the end of the minute
    saved_bytes: Option<i64>,
    /// paged out by isotherm in this minute
    paged_out_bytes: Option<i64>,
    /// pages that returned soon after reclaim, in this minute
    refaults: Option<i64>,
    /// major page faults in this minute
    major_faults: Option<i64>,
    /// time in this minute in which some task waited for memory, in us
    psi_some_us: Option<i64>,
    /// time in this minute in which all tasks waited for memory, in us
    psi_full_us: Option<i64>,
    /// memory limit of the control group, or of its nearest ancestor with one
    limit_bytes: Option<i64>,
    /// memory of the machine
    host_bytes: i64,
    /// resident memory of known idle age
    aged_bytes: i64,
    /// CPU time of isotherm in this minute, divided among the groups by resident memory, in us
    own_cpu_us: i64,
    /// snapshots over which the means are; 0: nothing was observed
    snapshots: i64,
    /// minutes of this host that were lost between its previous row and this one
    dropped_minutes: i64,
}

fn ages(
    prefix: &str,
    of: fn(&mut LakeRow) -> &mut [i64; COLUMN_AGES.len()],
) -> impl Iterator<Item = Numbers> {
    COLUMN_AGES.iter().enumerate().map(move |(i, (age, _))| Numbers {
        name: format!("{prefix}_{age}"),
        nullable: false,
        get: if prefix == "idle" {
            Box::new(move |rows| Int64Array::from_iter_values(rows.iter().map(|r| r.idle[i])))
        } else {
            Box::new(move |rows| Int64Array::from_iter_values(rows.iter().map(|r| r.returned[i])))
        },
        set: Box::new(move |row, value| of(row)[i] = value.unwrap_or(0)),
    })
}

/// All columns of numbers but `minute`, in the order of the file.
pub(crate) static NUMBER_COLUMNS: LazyLock<Vec<Numbers>> = LazyLock::new(|| {
    let mut all = named();
    all.extend(ages("idle", |row| &mut row.idle));
    all.extend(ages("returned", |row| &mut row.returned));
    all
});

/// Type of a column of text in memory. In the file it is a string.
pub(crate) fn text_type() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

/// The columns of a file.
#[must_use]
pub fn schema() -> Arc<Schema> {
    static SCHEMA: LazyLock<Arc<Schema>> = LazyLock::new(|| {
        let minute = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
        let mut fields = vec![Field::new("minute", minute, false)];
        fields.extend(TEXTS.iter().map(|t| Field::new(t.name, text_type(), t.nullable)));
        fields.extend(
            NUMBER_COLUMNS.iter().map(|n| Field::new(&n.name, DataType::Int64, n.nullable)),
        );
        Arc::new(Schema::new(fields))
    });
    Arc::clone(&SCHEMA)
}

/// Rows and their groups.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rows {
    /// the groups that `rows` refers to
    pub groups: Vec<Group>,
    /// the rows
    pub rows: Vec<LakeRow>,
}

impl Rows {
    /// Adds rows, with their groups.
    pub fn append(&mut self, more: Rows) {
        let mut ids: HashMap<Group, u32> =
            (0..).zip(&self.groups).map(|(id, group)| (group.clone(), id)).collect();
        let id = |group: Group| {
            *ids.entry(group).or_insert_with_key(|group| {
                self.groups.push(group.clone());
                u32::try_from(self.groups.len() - 1).unwrap_or(u32::MAX)
            })
        };
        let ids: Vec<u32> = more.groups.into_iter().map(id).collect();
        let row = |row: LakeRow| LakeRow {
            group: ids.get(row.group as usize).copied().unwrap_or(u32::MAX),
            ..row
        };
        self.rows.extend(more.rows.into_iter().map(row));
    }

    /// Number of minutes that are lost if only the first `kept` minutes remain, including the lost minutes that the
    /// other rows report.
    pub(crate) fn lost_after(&self, kept: usize) -> usize {
        let mut lost: BTreeMap<i64, i64> = BTreeMap::new();
        for row in &self.rows {
            *lost.entry(row.minute).or_insert(1) += row.dropped_minutes;
        }
        usize::try_from(lost.values().skip(kept).sum::<i64>()).unwrap_or_default()
    }

    /// Sorts the rows by host, control group and minute.
    pub fn sort(&mut self) {
        let mut order: Vec<_> = self.groups.iter().enumerate().collect();
        order.sort_by_key(|(_, group)| *group);
        let mut ranks = vec![0; order.len()];
        for (rank, (id, _)) in order.iter().enumerate() {
            ranks[*id] = rank;
        }
        self.rows.sort_by_key(|row| (ranks.get(row.group as usize).copied(), row.minute));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_is_described() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/abi/testing/lake.md");
        let text = std::fs::read_to_string(path).unwrap();
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        let names = rows.filter_map(|row| row.split(" | ").next()).flat_map(|cell| cell.split('`'));
        let names: Vec<&str> =
            names.filter(|name| name.starts_with(|c: char| c.is_alphabetic())).collect();
        let ages = |name: &&str| COLUMN_AGES.map(|(age, _)| name.replace("AGE", age)).to_vec();
        let described: Vec<String> = names
            .iter()
            .flat_map(
                |name| if name.ends_with("AGE") { ages(name) } else { vec![(*name).to_owned()] },
            )
            .collect();
        let mut columns: Vec<String> = schema().fields().iter().map(|f| f.name().clone()).collect();
        for age in COLUMN_AGES {
            assert!(text.contains(&format!("`{}`", age.0)), "{}", age.0);
        }
        let mut described = described;
        described.sort();
        columns.sort();
        assert_eq!(described, columns);
    }
}
