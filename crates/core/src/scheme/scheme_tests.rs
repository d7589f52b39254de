//! Invalid schemes are rejected, with their name.

use super::*;
use crate::act::Destination;
use crate::scheme::Engine;

fn scheme(action: Action) -> Scheme {
    Scheme::new("mine", Pattern::default(), action)
}

fn refused(scheme: &Scheme) -> SchemeError {
    match scheme.check() {
        Err(SchemeError::Scheme { name, why }) if name == "mine" => *why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn invalid_values_are_refused() {
    assert_eq!(scheme(Action::PageOut).check(), Ok(()));
    let to = |nodes: &[(u32, u32)]| {
        let nodes = nodes.iter().map(|&(node, weight)| Destination { node, weight });
        scheme(Action::MigrateCold(Destinations(nodes.collect())))
    };
    assert_eq!(to(&[(1, 1)]).check(), Ok(()));
    assert_eq!(refused(&to(&[])), SchemeError::Destinations("migrate_cold"));
    assert_eq!(refused(&to(&[(0, 1), (1, 0)])), SchemeError::Destinations("migrate_cold"));
    let kind = PageKind::HugePage { min: 2, max: 1 };
    let page_filters = vec![PageFilter { kind, matching: true, allow: true }];
    let folio = Scheme { page_filters, ..scheme(Action::Stat) };
    assert_eq!(refused(&folio), SchemeError::Folio { min: 2, max: 1 });
    let late = Scheme { recheck: Some(Duration::from_secs(2)), ..scheme(Action::Stat) };
    assert_eq!(refused(&late), SchemeError::Recheck(Duration::from_secs(2)));
    let quota = Quota { bytes: Some(PAGE_SIZE), ..Quota::default() };
    let small = Scheme { quota, ..scheme(Action::HugePage) };
    assert!(matches!(refused(&small), SchemeError::SmallQuota { .. }));
}

#[test]
fn an_engine_accepts_unique_names_and_a_limited_number_of_schemes() {
    let two = vec![scheme(Action::Stat), scheme(Action::Cold)];
    assert_eq!(Engine::new(two).unwrap_err(), SchemeError::SameName("mine".into()));
    let many = (0..65).map(|i| Scheme { name: i.to_string().into(), ..scheme(Action::Stat) });
    let many = Engine::new(many.collect()).unwrap_err();
    assert_eq!(many, SchemeError::TooMany { what: "schemes", limit: 64 });
}
