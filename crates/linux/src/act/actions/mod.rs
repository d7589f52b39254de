//! The actions. Each is one type that implements [`Operation`].

mod huge_pages;
mod migrate;
mod reclaim;

use isotherm_core::{Action, OpsError};

pub(super) use self::huge_pages::huge_pages;
use self::huge_pages::{HugePage, NoHugePage};
use self::migrate::Migrate;
pub(super) use self::migrate::weights;
use self::reclaim::{Cold, LruPrio, PageOut, Stat, WillNeed};
use super::operation::Operation;

/// The operation of an action.
pub(super) fn operation(action: &Action) -> Result<Box<dyn Operation>, OpsError> {
    Ok(match action {
        Action::PageOut => Box::new(PageOut),
        Action::Cold | Action::LruDeprio => Box::new(Cold),
        Action::WillNeed => Box::new(WillNeed),
        Action::HugePage => Box::new(HugePage),
        Action::NoHugePage => Box::new(NoHugePage),
        Action::LruPrio => Box::new(LruPrio),
        Action::MigrateHot(to) | Action::MigrateCold(to) => {
            Box::new(Migrate(weights(to).map_err(OpsError::Failed)?))
        }
        Action::Stat => Box::new(Stat),
        other => return Err(OpsError::Failed(format!("{} is not known here", other.name()))),
    })
}
