//! Writes the lake of a simulated fleet, in the layout of `isotherm fleet compact`, and its truth.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use isotherm_fleet::{COLUMN_AGES, Effort, Group, LakeFileError, LakeRow, Writer};
use isotherm_sim::fleet::{self, DAY_MINUTES, Day, Fleet, FleetSpec};
use serde::Serialize;

/// Rows of a file, about.
const FILE_ROWS: u32 = 1_440_000;
/// The first day: Monday, 5 January 2026.
const FIRST_DAY: u64 = 20_458;
const DAY_S: u64 = 86_400;

/// Failures of writing a lake.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabFleetError {
    /// the folder is in use
    #[error("{} exists and is not empty: name another folder with --lake, or delete this one", .0.display())]
    NotEmpty(PathBuf),
    /// a file or a folder cannot be written
    #[error("cannot write {}", path.display())]
    Write {
        /// its path
        path: PathBuf,
        /// the error of the operating system
        source: io::Error,
    },
    /// a file of the lake cannot be written
    #[error("cannot write {}", path.display())]
    Rows {
        /// its path
        path: PathBuf,
        /// the error of the writer
        source: LakeFileError,
    },
}

/// The size of the written lake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Written {
    /// rows of the lake
    pub rows: u64,
    /// files of the lake
    pub files: u64,
    /// their size
    pub bytes: u64,
    /// number of services
    pub services: usize,
}

/// The truth of a service at a minimum age of page-out.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct TruthLine<'a> {
    service: &'a str,
    kind: &'a str,
    age: &'a str,
    age_s: u64,
    /// mean of the memory that is paged out, of all groups
    saved_bytes: f64,
    /// mean of the memory that returns in a minute, of all groups
    returned_bytes_per_minute: f64,
    /// the new image, if there was a deploy
    image: Option<String>,
    /// cold memory that it added to a group, on average
    deploy_cold_bytes: Option<f64>,
}

/// The fleet of a specification, with the ages of the lake.
#[must_use]
pub fn fleet(spec: FleetSpec) -> Fleet {
    Fleet::new(spec, COLUMN_AGES.map(|age| age.1))
}

/// Writes the lake of a fleet. `done` gets the number of each day that is written.
///
/// # Errors
/// If `lake` has files, or cannot be written.
pub fn write_lake(
    fleet: &Fleet,
    lake: &Path,
    mut done: impl FnMut(u32),
) -> Result<Written, LabFleetError> {
    let cannot = |source| LabFleetError::Write { path: lake.to_owned(), source };
    fs::create_dir_all(lake).map_err(cannot)?;
    if fs::read_dir(lake).map_err(cannot)?.next().is_some() {
        return Err(LabFleetError::NotEmpty(lake.to_owned()));
    }
    let spec = fleet.spec();
    let mut written = Written { rows: 0, files: 0, bytes: 0, services: fleet.services().len() };
    let hosts = (FILE_ROWS / (DAY_MINUTES * spec.groups.max(1))).max(1);
    for number in 0..spec.days {
        let day = fleet.day(number);
        let folder = lake.join(format!("date={}", date(number)));
        fs::create_dir_all(&folder).map_err(cannot)?;
        for (part, first) in (0..spec.hosts).step_by(hosts as usize).enumerate() {
            let path = folder.join(format!("part-{part:04}.parquet"));
            let rows = |source| LabFleetError::Rows { path: path.clone(), source };
            let of_hosts = first..spec.hosts.min(first + hosts);
            written.rows += write_file(fleet, &day, of_hosts, &path).map_err(rows)?;
            written.files += 1;
            let size = fs::metadata(&path);
            written.bytes += size.map_err(|e| rows(e.into()))?.len();
        }
        done(number);
    }
    Ok(written)
}

/// Writes a day of some hosts, sorted by host, group and minute.
fn write_file(
    fleet: &Fleet,
    day: &Day,
    hosts: std::ops::Range<u32>,
    path: &Path,
) -> Result<u64, LakeFileError> {
    let aside = path.with_extension("aside");
    let written = write_rows(fleet, day, hosts, &aside)
        .and_then(|count| Ok(fs::rename(&aside, path).map(|()| count)?));
    if written.is_err() {
        let _ = fs::remove_file(&aside);
    }
    written
}

fn write_rows(
    fleet: &Fleet,
    day: &Day,
    hosts: std::ops::Range<u32>,
    path: &Path,
) -> Result<u64, LakeFileError> {
    let mut writer = Writer::new(BufWriter::new(File::create(path)?), Effort::Fast)?;
    let mut count = 0;
    let mut rows = Vec::new();
    for host in hosts {
        let mut groups: Vec<_> = (0..fleet.spec().groups).map(|g| fleet.group(host, g)).collect();
        groups.sort_by_cached_key(|group| cgroup(fleet, group));
        // Each group has its names before and after a deploy.
        let names: Vec<Group> = groups
            .iter()
            .flat_map(|g| [false, true].map(|new| names(fleet, host, g, new)))
            .collect();
        rows.clear();
        for (i, group) in (0..).zip(&groups) {
            rows.extend((0..DAY_MINUTES).map(|minute| row(fleet, day, host, (i, group), minute)));
        }
        writer.write(&names, &rows)?;
        count += rows.len() as u64;
    }
    writer.finish()?.flush()?;
    Ok(count)
}

fn cgroup(fleet: &Fleet, group: &fleet::Group) -> String {
    let name = &fleet.services()[group.service].name;
    format!("/kubepods.slice/kubepods-burstable.slice/pod-{name}-{}", group.suffix())
}

fn names(fleet: &Fleet, host: u32, group: &fleet::Group, new: bool) -> Group {
    let service = &fleet.services()[group.service];
    Group {
        host: format!("host-{host:05}"),
        cgroup: cgroup(fleet, group),
        service: service.name.clone(),
        pod: format!("{}-{}", service.name, group.suffix()),
        namespace: service.namespace.clone(),
        container: "main".to_owned(),
        image: service.image(new),
        ..Group::default()
    }
}

/// A row of the group with number `i`.
fn row(
    fleet: &Fleet,
    day: &Day,
    host: u32,
    (i, group): (u32, &fleet::Group),
    minute: u32,
) -> LakeRow {
    let service = &fleet.services()[group.service];
    let of_fleet = day.number() * DAY_MINUTES + minute;
    let m = fleet.measure(day, group, minute);
    LakeRow {
        group: 2 * i + u32::from(group.is_new(service, of_fleet)),
        minute: (FIRST_DAY * DAY_S + 60 * u64::from(of_fleet)).cast_signed() * 1000,
        resident_bytes: m.resident,
        hot_bytes: m.hot,
        warm_bytes: m.warm,
        cold_bytes: m.cold,
        unknown_bytes: m.unknown,
        refaults: Some(0),
        major_faults: Some(0),
        psi_some_us: Some(0),
        psi_full_us: Some(0),
        limit_bytes: Some(service.limit_bytes.cast_signed()),
        host_bytes: fleet.host_bytes(host).cast_signed(),
        aged_bytes: m.aged,
        own_cpu_us: m.own_cpu_us / i64::from(fleet.spec().groups),
        snapshots: m.snapshots.into(),
        idle: m.idle,
        returned: m.returned,
        ..LakeRow::default()
    }
}

/// `YYYY-MM-DD` of a day of the fleet.
fn date(number: u32) -> String {
    let time = UNIX_EPOCH + Duration::from_secs((FIRST_DAY + u64::from(number)) * DAY_S);
    humantime::format_rfc3339_seconds(time).to_string().chars().take(10).collect()
}

/// Writes the truth of a fleet: a line of JSON for each service and age.
///
/// # Errors
/// If the file cannot be written.
pub fn write_truth(fleet: &Fleet, path: &Path) -> Result<(), LabFleetError> {
    let mut text = String::new();
    for number in 0..fleet.services().len() {
        for line in truth_of(fleet, number) {
            let line = serde_json::to_string(&line).map_err(io::Error::from);
            text +=
                &line.map_err(|source| LabFleetError::Write { path: path.to_owned(), source })?;
            text.push('\n');
        }
    }
    fs::write(path, text).map_err(|source| LabFleetError::Write { path: path.to_owned(), source })
}

fn truth_of(fleet: &Fleet, number: usize) -> Vec<TruthLine<'_>> {
    let service = &fleet.services()[number];
    let deploy = service.deploy.as_ref();
    let mean = fleet.mean_scale_of_deployed(number);
    let line = |truth: fleet::PageOutTruth| TruthLine {
        service: &service.name,
        kind: service.kind.name(),
        age: COLUMN_AGES.iter().find(|age| age.1 == truth.age).map_or("", |age| age.0),
        age_s: truth.age,
        saved_bytes: truth.saved_bytes,
        returned_bytes_per_minute: truth.returned_bytes,
        image: deploy.map(|_| service.image(true)),
        deploy_cold_bytes: deploy
            .map(|d| d.cold * service.bytes as f64 * (1.0 - service.unknown) * mean),
    };
    fleet::truth(fleet, number).into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let spec = FleetSpec { hosts: 2, days: 1, groups: 2, seed: 3 };
        let file = |name: &str| {
            let lake = dir.path().join(name);
            let written = write_lake(&fleet(spec), &lake, |_| ()).unwrap();
            assert_eq!((written.rows, written.files), (4 * 1440, 1));
            fs::read(lake.join("date=2026-01-05/part-0000.parquet")).unwrap()
        };
        assert!(file("a") == file("b"));
        let again = write_lake(&fleet(spec), &dir.path().join("a"), |_| ());
        assert!(matches!(again, Err(LabFleetError::NotEmpty(_))));
    }

    /// Found by a trial with a full disk.
    #[test]
    fn a_file_that_cannot_be_written_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let fleet = fleet(FleetSpec { hosts: 1, days: 1, groups: 1, seed: 3 });
        let place = dir.path().join("part-0000.parquet");
        fs::create_dir(&place).unwrap();
        let written = write_file(&fleet, &fleet.day(0), 0..1, &place);
        assert!(matches!(written, Err(LakeFileError::Io(_))));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn rows_are_sorted_and_their_minutes_are_of_their_day() {
        let dir = tempfile::tempdir().unwrap();
        let spec = FleetSpec { hosts: 3, days: 2, groups: 2, seed: 3 };
        write_lake(&fleet(spec), dir.path(), |_| ()).unwrap();
        let rows = isotherm_fleet::read(&dir.path().join("date=2026-01-06/part-0000.parquet"));
        let mut rows = rows.unwrap();
        let before = rows.clone();
        rows.sort();
        assert!(rows == before);
        let first = (FIRST_DAY + 1) * DAY_S * 1000;
        let minutes = rows.rows.iter().map(|row| row.minute.cast_unsigned() - first);
        assert!(minutes.clone().all(|ms| ms < DAY_S * 1000 && ms % 60_000 == 0));
    }
}
