//! Names of calls in errors and at INFO.

use super::Collective;
use crate::collective::operation::Header;
use crate::collective::{CollectiveError, OperationName};
use crate::collective::{DataType, ReduceOp};

/// Whether the call is a send or receive. Two ranks alone take part, so its number is not one of the operations of all
/// ranks.
pub(in crate::collective) const fn is_of_two(header: &Header) -> bool {
    header.collective == Collective::Send.code() || header.collective == Collective::Receive.code()
}

/// Name of the call that a rank made, from its header. The header may be another release's or damaged, so every field
/// is checked.
pub(in crate::collective) fn name(header: &Header) -> OperationName {
    let Header { sequence, count, data_type, reduction, root, .. } = *header;
    let collective = Collective::of_code(header.collective);
    // Name the fields only if they fit together; otherwise print the numbers, because a wrong name would mislead.
    let known = collective.zip(DataType::of_code(data_type)).filter(|(collective, _)| {
        let reduces = ReduceOp::of_code(reduction).is_some();
        collective.properties().reduces == reduces
            && (reduces || reduction == 0)
            && (collective.has_root() || root == 0)
    });
    let of = match known {
        Some((collective, data_type)) => {
            let by = ReduceOp::of_code(reduction).map(|op| format!(" ({op})")).unwrap_or_default();
            let with = if collective.properties().from_root {
                format!(" from rank {root}")
            } else if collective.properties().to_root {
                format!(" to rank {root}")
            } else {
                String::new()
            };
            format!("{data_type}{by}{with}")
        }
        None => format!("elements of type {data_type} (operation {reduction}, root {root})"),
    };
    let collective = collective.map_or("an unknown operation", Collective::name);
    OperationName { sequence, collective, count, of }
}

/// The error of rank `rank` whose call and another rank's differ.
pub(in crate::collective) fn mismatch(rank: u32, [ours, theirs]: [Header; 2]) -> CollectiveError {
    CollectiveError::Mismatch { rank, peer: theirs.rank, ours: name(&ours), theirs: name(&theirs) }
}

#[cfg(test)]
mod tests;
