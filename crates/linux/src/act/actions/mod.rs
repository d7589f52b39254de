//! The actions. Each is one type that implements [`Operation`].

mod huge_pages;
mod migrate;
mod reclaim;

use isotherm_core::{Action, OpsError};

use self::huge_pages::HugePage;
pub(super) use self::huge_pages::{NoHugePage, huge_pages};
use self::migrate::Migrate;
pub(super) use self::migrate::weights;
pub(super) use self::reclaim::PageOut;
use self::reclaim::{Cold, LruPrio, Stat, WillNeed};
use super::operation::Operation;

/// The operation of an action, except [`NoHugePage`], which [`super::demote`] performs in two walks.
pub(super) fn operation(action: &Action) -> Result<Box<dyn Operation>, OpsError> {
    Ok(match action {
        Action::PageOut => Box::new(PageOut::default()),
        Action::Cold | Action::LruDeprio => Box::new(Cold),
        Action::WillNeed => Box::new(WillNeed),
        Action::HugePage => Box::new(HugePage),
        Action::LruPrio => Box::new(LruPrio),
        Action::MigrateHot(to) | Action::MigrateCold(to) => {
            Box::new(Migrate(weights(to).map_err(OpsError::Failed)?))
        }
        Action::Stat => Box::new(Stat),
        other => return Err(OpsError::Failed(format!("{} is not known here", other.name()))),
    })
}
