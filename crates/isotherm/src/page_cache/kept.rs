//! The files of a listing. The figures of those that come first are read again more often than all are listed.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::time::Duration;

use isotherm_core::{Nanos, PAGE_SIZE};
use isotherm_linux::page_cache::{CachedFile, PageCacheError};
use isotherm_linux::sys;

use super::heat::Observed;
use super::page_use::{FileUse, PageUse};
use super::reader::{CacheReader, CacheReading};
use super::rows::{By, Row, RowOrder, SortBy, first_files, grouped, of_file, sort_first};
use super::scope::ScopeError;

/// Number of files whose figures are read between two listings.
pub(super) const NR_FIRST: usize = 2000;
/// Maximum number of files that are added to them until the next listing.
const MAX_ADDED: usize = 1000;
/// Number of files whose trees are read before the next look at the time.
const BATCH_FILES: usize = 4;

/// The files of a listing.
pub(super) struct Kept {
    pub scan: CacheReading,
    order: RowOrder,
    /// the first rows, unless each row is a file
    groups: FirstRows<'static>,
    /// time of the listing
    pub listed: Nanos,
    /// The files that come first, if each row is a file: their places in the scan, and as the kernel knows them.
    /// Without BPF, the latter is empty.
    first: Vec<usize>,
    cached: Vec<CachedFile>,
    /// their identities, their maximum number, and the cached pages with which another file may be one of them
    ids: HashSet<u64>,
    max_first: usize,
    min_pages: u64,
    /// the next one whose tree to read
    next: usize,
    /// when the present turn through all of them began, and the one before
    turn: Nanos,
    last_turn: Nanos,
    /// Other files were searched last time.
    has_searched: bool,
    /// sum of the other files
    others: PageUse,
}

/// The first rows.
#[derive(Clone)]
pub(super) struct FirstRows<'a> {
    pub rows: Vec<Row<'a>>,
    /// number of all rows
    pub nr_rows: u64,
    /// resident bytes of the rows that are left out
    pub rest_bytes: u64,
}

impl Kept {
    /// Keeps a listing, in which `nr_first` files may be read again.
    pub fn new(mut scan: CacheReading, order: RowOrder, nr_first: usize, listed: Nanos) -> Self {
        let known = std::mem::take(&mut scan.cached);
        let (mut groups, mut first) = (Vec::new(), Vec::new());
        match order.by {
            By::File => {
                first = first_files(&scan.files, 0..scan.files.len(), order.sort, nr_first);
            }
            by => groups = grouped(&scan, by, order.depth),
        }
        let mut others = scan.rest.pages;
        scan.files.iter().for_each(|file| others.add(&file.pages));
        let of_first = || first.iter().filter_map(|i| scan.files.get(*i));
        of_first().for_each(|file| others.remove(&file.pages));
        // If there are fewer files, any other one is among the first.
        let last = of_first().nth(nr_first.saturating_sub(1));
        let min_pages = last.map_or(0, |file| file.pages.resident_bytes / PAGE_SIZE) + 1;
        let cached: Vec<_> = first.iter().filter_map(|i| known.get(*i).cloned()).collect();
        Kept {
            groups: FirstRows::of(groups, &order),
            ids: cached.iter().map(CachedFile::id).collect(),
            max_first: first.len() + MAX_ADDED,
            min_pages,
            scan,
            order,
            listed,
            first,
            cached,
            next: 0,
            turn: listed,
            last_turn: listed,
            has_searched: false,
            others,
        }
    }

    /// Reads how many pages the first files have. Then searches others, every second time, and reads the trees of the first
    /// ones in turn, as long as the CPU time does not exceed `time` much. A search may take all of it.
    pub fn read_again(
        &mut self,
        reader: &mut CacheReader,
        time: Duration,
        now: Nanos,
    ) -> Result<(), ScopeError> {
        let begun = sys::thread_cpu();
        // Only the trees say to which groups pages are charged.
        if reader.counts_all() {
            reader.recount(&mut self.cached)?;
            for (i, cached) in self.first.iter().zip(&self.cached) {
                if let Some(file) = self.scan.files.get_mut(*i) {
                    file.pages.recount(cached.pages * PAGE_SIZE, cached.size);
                }
            }
            let searches = self.order.by == By::File && self.order.sort == SortBy::Resident;
            // A search may use up the time of the next outputs; after it, the trees have their turn.
            if !time.is_zero() {
                self.has_searched = searches && !self.has_searched;
                if self.has_searched {
                    self.search(reader)?;
                }
            }
        }
        for _ in 0..self.cached.len().div_ceil(BATCH_FILES) {
            if sys::thread_cpu().saturating_sub(begun) >= time {
                break;
            }
            if self.next >= self.cached.len() {
                self.next = 0;
                self.last_turn = std::mem::replace(&mut self.turn, now);
            }
            let end = self.cached.len().min(self.next + BATCH_FILES);
            self.read_trees(reader, self.next..end)?;
            self.next = end;
        }
        Ok(())
    }

    /// Adds files that have grown beyond the last of the first ones.
    fn search(&mut self, reader: &mut CacheReader) -> Result<(), ScopeError> {
        let begin = self.cached.len();
        if begin >= self.max_first {
            return Ok(());
        }
        let mut found = reader.search(self.min_pages, |file| self.ids.contains(&file.id()))?;
        found.truncate(self.max_first - begin);
        if found.is_empty() {
            return Ok(());
        }
        self.ids.extend(found.iter().map(|(file, _)| file.id));
        let places = self.scan.files.iter().enumerate().map(|(i, file)| (file.id, i));
        let places: HashMap<u64, usize> = places.filter(|(id, _)| self.ids.contains(id)).collect();
        for (file, cached) in found {
            let place = places.get(&file.id).copied().unwrap_or(self.scan.files.len());
            match self.scan.files.get(place) {
                Some(listed) => self.others.remove(&listed.pages),
                None => self.scan.files.push(file),
            }
            self.first.push(place);
            self.cached.push(cached);
        }
        Ok(self.read_trees(reader, begin..self.cached.len())?)
    }

    /// Reads the trees of some of the first files.
    fn read_trees(
        &mut self,
        reader: &mut CacheReader,
        of: Range<usize>,
    ) -> Result<(), PageCacheError> {
        let files = &mut self.scan.files;
        let places = self.first.get(of.clone()).unwrap_or_default();
        for i in places {
            if let Some(file) = files.get_mut(*i) {
                file.clear();
            }
        }
        reader.parts(self.cached.get(of).unwrap_or_default(), |i, part| {
            if let Some(file) = places.get(i).and_then(|i| files.get_mut(*i)) {
                file.add_part(&part, false);
            }
        })
    }

    /// Sets what was observed of the first files.
    pub fn set_observed(&mut self, seen: Observed<'_>) {
        for i in &self.first {
            if let Some(file) = self.scan.files.get_mut(*i) {
                file.set_observed(seen);
            }
        }
    }

    /// A time since which the trees of all first files were read.
    pub fn oldest(&self) -> Nanos {
        self.last_turn
    }

    fn first(&self) -> impl Iterator<Item = &FileUse> {
        self.first.iter().filter_map(|i| self.scan.files.get(*i))
    }

    fn nr_files(&self) -> u64 {
        self.scan.files.len() as u64 + self.scan.rest.files
    }

    /// The sum of all files.
    pub fn total(&self) -> Row<'static> {
        let mut pages = self.others;
        self.first().for_each(|file| pages.add(&file.pages));
        Row { name: "total".into(), files: self.nr_files(), pages }
    }

    /// The first rows.
    pub fn first_rows(&self) -> FirstRows<'_> {
        if self.order.by != By::File {
            return self.groups.clone();
        }
        let (files, RowOrder { sort, limit, .. }) = (&self.scan.files, self.order);
        let places = first_files(files, self.first.iter().copied(), sort, limit).into_iter();
        let rows: Vec<_> = places.filter_map(|i| files.get(i)).map(of_file).collect();
        let all_bytes = self.total().pages.resident_bytes;
        FirstRows { nr_rows: self.nr_files(), rest_bytes: all_bytes - resident(&rows), rows }
    }
}

impl<'a> FirstRows<'a> {
    fn of(mut rows: Vec<Row<'a>>, order: &RowOrder) -> Self {
        let (nr_rows, all_bytes) = (rows.len() as u64, resident(&rows));
        sort_first(&mut rows, order.sort, order.limit);
        FirstRows { nr_rows, rest_bytes: all_bytes - resident(&rows), rows }
    }
}

fn resident(rows: &[Row<'_>]) -> u64 {
    rows.iter().map(|row| row.pages.resident_bytes).sum()
}
