//! Calls that the kernel must refuse, with the expected error numbers.

use std::io;

use isotherm_core::AddrRange;
use isotherm_linux::sys::{self, Existing, NodeMask, PolicyMode, bind, set_policy};
use rustix::io::Errno;

use crate::memory::{BasePages, even, mask, policy};
use crate::{Bench, Outcome};

/// A node number that does not exist on any current machine.
const ABSENT: u32 = 1000;

fn refused(what: &str, result: io::Result<()>, wanted: Errno) -> Outcome {
    match result.as_ref().err().and_then(io::Error::raw_os_error) {
        Some(e) if e == wanted.raw_os_error() => Ok(()),
        _ => Err(format!("{what}: {result:?}, and not {wanted:?}")),
    }
}

pub fn task(bench: &Bench) -> Outcome {
    let (here, none) = (mask(&bench.nodes), NodeMask::default());
    let mut modes = vec![PolicyMode::BIND, PolicyMode::INTERLEAVE, PolicyMode::PREFERRED_MANY];
    modes.extend(bench.weighted.then_some(PolicyMode::WEIGHTED_INTERLEAVE));
    for mode in modes {
        refused("no nodes", set_policy(mode, &none), Errno::INVAL)?;
        refused("a node that is not there", set_policy(mode, &mask(&[ABSENT])), Errno::INVAL)?;
        let both = mode.static_and_relative();
        refused("static and relative nodes", set_policy(both, &here), Errno::INVAL)?;
    }
    let unreadable = sys::set_policy_unreadable(PolicyMode::BIND);
    refused("nodes that cannot be read", unreadable, Errno::FAULT)?;
    refused("an unknown mode", set_policy(PolicyMode(99), &here), Errno::INVAL)?;
    refused("no mode", set_policy(PolicyMode(-1), &here), Errno::INVAL)?;
    refused("the default, of nodes", set_policy(PolicyMode::DEFAULT, &here), Errno::INVAL)
}

pub fn range(bench: &Bench) -> Outcome {
    let m = BasePages::new(4)?;
    let here = mask(&bench.nodes);
    let mut modes = vec![PolicyMode::BIND, PolicyMode::INTERLEAVE];
    modes.extend(bench.weighted.then_some(PolicyMode::WEIGHTED_INTERLEAVE));
    for mode in modes {
        let on = |range| bind(range, mode, &here, Existing::Leave);
        let odd = AddrRange::new(m.range().start + 1, m.range().end);
        refused("a start within a page", on(odd), Errno::INVAL)?;
        refused("a hole", on(AddrRange::new(4096, 8192)), Errno::FAULT)?;
        let unknown = bind(m.range(), mode, &here, Existing::Invalid);
        refused("an unknown flag", unknown, Errno::INVAL)?;
        let unreadable = sys::bind_unreadable(m.range(), mode);
        refused("nodes that cannot be read", unreadable, Errno::FAULT)?;
        let none = bind(m.range(), mode, &NodeMask::default(), Existing::Leave);
        refused("no nodes", none, Errno::INVAL)?;
        let absent = bind(m.range(), mode, &mask(&[ABSENT]), Existing::Leave);
        refused("a node that is not there", absent, Errno::INVAL)?;
        on(AddrRange::new(m.range().start, m.range().start))
            .map_err(|e| format!("an empty range is refused: {e}"))?;
    }
    let unknown = bind(m.range(), PolicyMode(99), &here, Existing::Leave);
    refused("an unknown mode", unknown, Errno::INVAL)?;
    let unknown = bind(m.range(), PolicyMode::DEFAULT, &NodeMask::default(), Existing::Invalid);
    refused("the default, with an unknown flag", unknown, Errno::INVAL)?;
    let default = bind(m.range(), PolicyMode::DEFAULT, &here, Existing::Leave);
    refused("the default, of nodes", default, Errno::INVAL)
}

/// The kernel refuses to bind strictly (`MPOL_MF_STRICT`) memory that is already on another node.
pub fn strict(bench: &Bench) -> Outcome {
    let [first, second, ..] = bench.nodes[..] else { return Err("there is one node".into()) };
    let m = BasePages::new(4)?;
    policy(PolicyMode::BIND, &[first])?;
    m.lies_by(&even(&[first])?)?;
    let mut modes = vec![PolicyMode::BIND, PolicyMode::PREFERRED, PolicyMode::INTERLEAVE];
    modes.extend(bench.weighted.then_some(PolicyMode::WEIGHTED_INTERLEAVE));
    for mode in modes {
        let strict = bind(m.range(), mode, &mask(&[second]), Existing::Strict);
        refused("pages elsewhere", strict, Errno::IO)?;
    }
    Ok(())
}

pub fn reported_task_policy(bench: &Bench) -> Outcome {
    policy(PolicyMode::WEIGHTED_INTERLEAVE, &bench.nodes)?;
    let reported = sys::policy().map_err(|e| e.to_string())?;
    let wanted = (PolicyMode::WEIGHTED_INTERLEAVE, mask(&bench.nodes));
    if reported == wanted { Ok(()) } else { Err(format!("{:?}", reported.0)) }
}
