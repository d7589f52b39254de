//! Blocks must say of our own pages what windows say.

use isotherm_core::AddrRange;

use super::{View, mismatch, order0};
use crate::walker::{Plain, Span, SpanReader, WalkError, Walker, own_pid, pages_in_block};
use crate::x86::Level;

/// A page as the bits of a block describe it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bits {
    huge: bool,
    resident: bool,
    young: bool,
    plain: bool,
}

/// Compares the bits of the pages of `range`, which lie in one block, with the entries that were `seen`
/// by windows. `zero` is the frame of the zero page, which is no memory of a process.
pub(super) fn agree(
    page: &'static str,
    walker: &mut Walker,
    range: AddrRange,
    seen: &[View],
    zero: Option<u64>,
) -> Result<(), WalkError> {
    let expected: Vec<Bits> = seen.iter().map(|view| bits_of(view, zero)).collect();
    let found = read(walker, range, seen.len())?;
    if found == expected {
        Ok(())
    } else {
        Err(mismatch(page, &format!("{expected:?}"), &found).into())
    }
}

fn bits_of(view: &View, zero: Option<u64>) -> Bits {
    let resident = view.resident && Some(view.frame) != zero;
    Bits {
        huge: view.level == Level::Pmd,
        resident,
        young: resident && view.young,
        plain: resident
            && match view.level {
                Level::Pmd => view.folio.is_some_and(|f| f.mapped == 1),
                _ => view.folio == order0(),
            },
    }
}

fn read(walker: &mut Walker, range: AddrRange, pages: usize) -> Result<Vec<Bits>, WalkError> {
    let spans = [Span { range, plain: Plain::Everywhere }];
    let mut blocks = Vec::new();
    let mut reader = SpanReader::new(&spans);
    while reader.run(walker, own_pid(), &mut blocks)?.is_some() {}
    // The reader returns no block if its table changed during the read.
    let [block] = blocks[..] else { return Ok(Vec::new()) };
    let asked = pages_in_block(block.start, range);
    let plain = block.plain.unwrap_or_default();
    let bits = |page| Bits {
        huge: block.huge,
        resident: block.resident.contains(page),
        young: block.young.contains(page),
        plain: plain.contains(page),
    };
    Ok(asked.iter().take(pages).map(bits).collect())
}
