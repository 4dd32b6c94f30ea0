//! What calls are named in errors and at INFO.

use crate::collective::OperationName;
use crate::collective::operation::Header;
use crate::collective::{DataType, ReduceOp};

/// The collective of a number.
pub(super) const fn name_of(code: u8) -> &'static str {
    match code {
        1 => "all-reduce",
        2 => "all-gather",
        3 => "reduce-scatter",
        4 => "broadcast",
        5 => "reduce",
        6 => "barrier",
        7 => "gather",
        8 => "scatter",
        9 => "all-to-all",
        10 => "connect",
        11 => "send",
        12 => "receive",
        13 => "split",
        14 => "all-to-all-v",
        15 => "gather-v",
        16 => "scatter-v",
        17 => "all-gather-v",
        _ => "an unknown operation",
    }
}

/// Whether it is of two ranks alone: its number is no operation's of all of them.
pub(in crate::collective) const fn is_of_two(header: &Header) -> bool {
    matches!(header.collective, 11 | 12)
}

/// What a rank has called, by what it told of it.
pub(in crate::collective) fn name(header: &Header) -> OperationName {
    let Header { sequence, count, collective, data_type, reduction, root, .. } = *header;
    let known = (DataType::of_code(data_type), ReduceOp::of_code(reduction));
    let of = match (collective, known, reduction, root) {
        (1 | 3, (Some(data_type), Some(op)), _, 0) => format!("{data_type} ({op})"),
        (2 | 6 | 9 | 10 | 13 | 14 | 17, (Some(data_type), _), 0, 0) => data_type.to_string(),
        (4 | 8 | 12 | 16, (Some(data_type), _), 0, root) => format!("{data_type} from rank {root}"),
        (7 | 11 | 15, (Some(data_type), _), 0, root) => format!("{data_type} to rank {root}"),
        (5, (Some(data_type), Some(op)), _, root) => format!("{data_type} ({op}) to rank {root}"),
        _ => format!("elements of type {data_type} (operation {reduction}, root {root})"),
    };
    OperationName { sequence, collective: name_of(collective), count, of }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::call::{Call, Collective};
    use crate::collective::uneven::Uneven;

    #[test]
    fn names_say_what_was_called() {
        let sum = ReduceOp::Sum;
        let named = [
            (Collective::AllReduce(sum), "all-reduce 7 of 3 float (sum)"),
            (Collective::AllGather, "all-gather 7 of 3 float"),
            (Collective::ReduceScatter(sum), "reduce-scatter 7 of 3 float (sum)"),
            (Collective::Broadcast { root: 2 }, "broadcast 7 of 3 float from rank 2"),
            (Collective::Reduce { op: sum, root: 0 }, "reduce 7 of 3 float (sum) to rank 0"),
            (Collective::Barrier, "barrier 7 of 3 float"),
            (Collective::Gather { root: 2 }, "gather 7 of 3 float to rank 2"),
            (Collective::Scatter { root: 2 }, "scatter 7 of 3 float from rank 2"),
            (Collective::AllToAll, "all-to-all 7 of 3 float"),
            (Collective::Connect, "connect 7 of 3 float"),
            (Collective::Split, "split 7 of 3 float"),
            (Collective::Uneven(Uneven::AllToAll), "all-to-all-v 7 of 3 float"),
            (Collective::Uneven(Uneven::Gather { root: 2 }), "gather-v 7 of 3 float to rank 2"),
            (Collective::Uneven(Uneven::Scatter { root: 2 }), "scatter-v 7 of 3 float from rank 2"),
            (Collective::Uneven(Uneven::AllGather), "all-gather-v 7 of 3 float"),
            (Collective::Send { to: 2 }, "send 7 of 3 float to rank 2"),
            (Collective::Receive { from: 2 }, "receive 7 of 3 float from rank 2"),
        ];
        for (collective, expected) in named {
            let header = Call { collective, count: 3, data_type: DataType::F32 }.header(1, 7);
            assert_eq!(name(&header).to_string(), expected);
            // What it cannot have is told as it came.
            let odd = name(&Header { data_type: 99, ..header });
            assert!(odd.to_string().contains("type 99"), "{odd}");
        }
        // Of counts that are each rank's own.
        let collective = Collective::Uneven(Uneven::AllToAll);
        let header = Call { collective, count: 0, data_type: DataType::F32 }.header(1, 7);
        assert_eq!(name(&header).to_string(), "all-to-all-v 7 of float");
        let unknown =
            Header { rank: 0, sequence: 1, count: 2, collective: 99, data_type: 1, reduction: 1, root: 5 };
        assert_eq!(
            name(&unknown).to_string(),
            "an unknown operation 1 of 2 elements of type 1 (operation 1, root 5)"
        );
    }
}
