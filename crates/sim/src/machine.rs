//! The machine: a clock, and the address spaces that depend on it.

use std::collections::BTreeMap;
use std::time::Duration;

use isotherm_core::{AddrRange, Nanos, PAGE_SIZE, TargetId, Unknown};

use crate::access::LaidPattern;
use crate::area::MappingSpec;
use crate::pattern::TouchPattern;
use crate::random::mix;
use crate::space::AddressSpace;
use crate::truth::Truth;

/// Why the machine refused a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// the target was never spawned
    #[error("target {0:?} was never spawned on this machine")]
    NoTarget(TargetId),
    /// the target has ended
    #[error("target {0:?} has ended")]
    Gone(TargetId),
    /// the range is empty or not page-aligned
    #[error("{0:?} is empty or does not begin and end at multiples of 4096")]
    Unaligned(AddrRange),
    /// part of the range is already mapped
    #[error("in {0:?} something is mapped already: unmap it first")]
    Taken(AddrRange),
    /// part of the range is not mapped
    #[error("not all of {0:?} is mapped")]
    Unmapped(AddrRange),
    /// a mapping would shrink
    #[error("{0:?} does not hold all of the mapping that is to grow")]
    Shrinks(AddrRange),
}

/// A simulated machine: owns the virtual clock and the address spaces.
///
/// Time passes only by [`Machine::advance`]; looking and acting take none.
#[derive(Debug)]
pub struct Machine {
    now: Nanos,
    seed: u64,
    patterns: u64,
    spaces: BTreeMap<TargetId, AddressSpace>,
}

impl Machine {
    /// An empty machine at time 0. The same seed and the same calls cause the same accesses.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Machine { now: Nanos(0), seed, patterns: 0, spaces: BTreeMap::new() }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Advances the time by `by`.
    pub fn advance(&mut self, by: Duration) {
        self.now = self.now + by;
    }

    /// Advances the time to `time`, unless that is in the past.
    pub fn advance_to(&mut self, time: Nanos) {
        self.now = self.now.max(time);
    }

    /// A new target without mappings.
    pub fn spawn(&mut self) -> TargetId {
        let id = TargetId(u32::try_from(self.spaces.len()).unwrap_or(u32::MAX));
        self.spaces.insert(id, AddressSpace::new(self.now));
        id
    }

    /// Maps `range`, in which nothing may be mapped yet.
    ///
    /// # Errors
    /// If the target is not alive, or the range is unaligned or partly mapped.
    pub fn map(
        &mut self,
        target: TargetId,
        range: AddrRange,
        memory: MappingSpec,
    ) -> Result<(), SimError> {
        let now = self.now;
        self.alive(target, range)?.map(range, memory, now)
    }

    /// Unmaps all memory in `range`, ends the patterns in it, and removes its truth.
    ///
    /// # Errors
    /// If the target is not alive or the range unaligned.
    pub fn unmap(&mut self, target: TargetId, range: AddrRange) -> Result<(), SimError> {
        self.alive(target, range)?.unmap(range);
        Ok(())
    }

    /// Extends the mapping that contains `addr` to all of `range`, up or down.
    ///
    /// # Errors
    /// If the target is not alive, nothing is mapped at `addr`, another mapping is in `range`, or the mapping
    /// would shrink.
    pub fn grow(&mut self, target: TargetId, addr: u64, range: AddrRange) -> Result<(), SimError> {
        let now = self.now;
        self.alive(target, range)?.grow(addr, range, now)
    }

    /// Starts a pattern over `range`, in addition to those already there.
    ///
    /// # Errors
    /// If the target is not alive or not all of the range is mapped.
    pub fn touch(
        &mut self,
        target: TargetId,
        range: AddrRange,
        pattern: TouchPattern,
    ) -> Result<(), SimError> {
        let key = mix(mix(self.seed, target.0.into()), self.patterns);
        let access = LaidPattern::new(range, pattern, key, self.now);
        self.alive(target, range)?.touch(access)?;
        self.patterns += 1;
        Ok(())
    }

    /// Ends all patterns in `range`.
    ///
    /// # Errors
    /// If the target is not alive or the range unaligned.
    pub fn rest(&mut self, target: TargetId, range: AddrRange) -> Result<(), SimError> {
        let now = self.now;
        self.alive(target, range)?.rest(range, now);
        Ok(())
    }

    /// Sets the reason why accesses in `range` cannot be observed, or makes them observable.
    ///
    /// # Errors
    /// If the target is not alive or the range unaligned.
    pub fn set_unknown(
        &mut self,
        target: TargetId,
        range: AddrRange,
        why: Option<Unknown>,
    ) -> Result<(), SimError> {
        self.alive(target, range)?.set_unknown(range, why);
        Ok(())
    }

    /// Gives the target a new, empty address space.
    ///
    /// # Errors
    /// If the target is not alive.
    pub fn exec(&mut self, target: TargetId) -> Result<(), SimError> {
        self.living(target)?.exec();
        Ok(())
    }

    /// Ends the target.
    ///
    /// # Errors
    /// If the target is not alive.
    pub fn end(&mut self, target: TargetId) -> Result<(), SimError> {
        let now = self.now;
        self.living(target)?.end(now);
        Ok(())
    }

    /// The address space of a target.
    ///
    /// # Errors
    /// If it was never spawned.
    pub fn space(&self, target: TargetId) -> Result<&AddressSpace, SimError> {
        self.spaces.get(&target).ok_or(SimError::NoTarget(target))
    }

    /// The true accesses of a target.
    ///
    /// # Errors
    /// If it was never spawned.
    pub fn truth(&self, target: TargetId) -> Result<Truth<'_>, SimError> {
        self.space(target).map(Truth::new)
    }

    pub(crate) fn space_mut(&mut self, target: TargetId) -> Result<&mut AddressSpace, SimError> {
        self.spaces.get_mut(&target).ok_or(SimError::NoTarget(target))
    }

    fn living(&mut self, target: TargetId) -> Result<&mut AddressSpace, SimError> {
        let space = self.space_mut(target)?;
        if space.is_gone() { Err(SimError::Gone(target)) } else { Ok(space) }
    }

    fn alive(&mut self, target: TargetId, range: AddrRange) -> Result<&mut AddressSpace, SimError> {
        let aligned = range.start.is_multiple_of(PAGE_SIZE) && range.end.is_multiple_of(PAGE_SIZE);
        if range.is_empty() || !aligned {
            return Err(SimError::Unaligned(range));
        }
        self.living(target)
    }
}
