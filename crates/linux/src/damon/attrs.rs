//! Monitoring attributes of a kdamond.

use std::time::Duration;

use isotherm_core::{Attrs, IntervalsGoal};

use super::error::DamonError;
use super::sysfs::{self, Bounds, Intervals, MonitoringAttrs};

/// Attributes of a kdamond: those of [`Attrs`] that DAMON has, and some of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KdamondAttrs {
    /// intervals and limits of regions; the other attributes describe the fixed behaviour of DAMON
    pub attrs: Attrs,
    /// lets the kernel tune the intervals (since Linux 6.15)
    pub intervals_goal: Option<IntervalsGoal>,
    /// bytes per step of a physical address (since Linux 6.18)
    pub addr_unit: Option<u64>,
}

impl From<Attrs> for KdamondAttrs {
    fn from(attrs: Attrs) -> Self {
        let attrs = attrs.by_the_kernels_rules();
        KdamondAttrs { attrs, intervals_goal: None, addr_unit: None }
    }
}

impl KdamondAttrs {
    /// Returns the attributes if the kernel accepts them.
    ///
    /// # Errors
    /// Which attribute the kernel does not accept, and which values it would accept.
    pub fn checked(self) -> Result<Self, DamonError> {
        let attrs = self.attrs.checked()?;
        if let Some(goal) = &self.intervals_goal {
            goal.check(&attrs)?;
        }
        match self.addr_unit {
            Some(unit) if !unit.is_power_of_two() => Err(DamonError::AddrUnit(unit)),
            _ => Ok(KdamondAttrs { attrs, ..self }),
        }
    }

    pub(super) fn monitoring_attrs(&self) -> MonitoringAttrs {
        let Attrs { sample, aggr, update, min_regions, max_regions, .. } = self.attrs;
        MonitoringAttrs {
            intervals: Intervals {
                sample_us: micros(sample),
                aggr_us: micros(aggr),
                update_us: micros(update),
                intervals_goal: self.intervals_goal.map(|goal| sysfs::IntervalsGoal {
                    access_bp: goal.access_bp.into(),
                    aggrs: goal.aggrs.into(),
                    min_sample_us: micros(goal.min_sample),
                    max_sample_us: micros(goal.max_sample),
                }),
            },
            nr_regions: Bounds { min: min_regions.into(), max: max_regions.into() },
        }
    }
}

fn micros(d: Duration) -> u64 {
    u64::try_from(d.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use isotherm_core::AttrsError;

    use super::*;

    #[test]
    fn invalid_attributes_are_refused_before_the_kernel() {
        let asked = || KdamondAttrs::from(Attrs::default());
        assert_eq!(asked().checked().unwrap(), asked());
        let sample = asked().attrs.sample;
        let one = Duration::from_micros(1);
        let goal = |min_sample, max_sample| {
            let goal = IntervalsGoal { access_bp: 400, aggrs: 3, min_sample, max_sample };
            KdamondAttrs { intervals_goal: Some(goal), ..asked() }.checked()
        };
        assert!(goal(sample, sample).is_ok());
        let out = [goal(sample + one, sample * 2), goal(one, sample - one)];
        assert!(
            out.iter().all(|r| matches!(r, Err(DamonError::Attrs(AttrsError::OutOfGoal { .. }))))
        );
        let unit = |n| KdamondAttrs { addr_unit: Some(n), ..asked() }.checked();
        assert!(unit(1).is_ok() && unit(4096).is_ok());
        assert!([0, 3, 4097].iter().all(|&n| matches!(unit(n), Err(DamonError::AddrUnit(_)))));
    }
}
