//! Names of calls in errors and at INFO.

use super::Collective;
use crate::collective::OperationName;
use crate::collective::operation::Header;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::call::Request;

    #[test]
    fn names_say_what_was_called() {
        let sum = ReduceOp::Sum;
        let named = [
            (Collective::AllReduce.by(sum), "all-reduce 7 of 3 float (sum)"),
            (Collective::AllGather.into(), "all-gather 7 of 3 float"),
            (Collective::ReduceScatter.by(sum), "reduce-scatter 7 of 3 float (sum)"),
            (Collective::Broadcast.at(2), "broadcast 7 of 3 float from rank 2"),
            (Collective::Reduce.by(sum).at(0), "reduce 7 of 3 float (sum) to rank 0"),
            (Collective::Barrier.into(), "barrier 7 of 3 float"),
            (Collective::Gather.at(2), "gather 7 of 3 float to rank 2"),
            (Collective::Scatter.at(2), "scatter 7 of 3 float from rank 2"),
            (Collective::AllToAll.into(), "all-to-all 7 of 3 float"),
            (Collective::Connect.into(), "connect 7 of 3 float"),
            (Collective::Split.into(), "split 7 of 3 float"),
            (Collective::AllToAllV.into(), "all-to-all-v 7 of 3 float"),
            (Collective::GatherV.at(2), "gather-v 7 of 3 float to rank 2"),
            (Collective::ScatterV.at(2), "scatter-v 7 of 3 float from rank 2"),
            (Collective::AllGatherV.into(), "all-gather-v 7 of 3 float"),
            (Collective::Send.at(2), "send 7 of 3 float to rank 2"),
            (Collective::Receive.at(2), "receive 7 of 3 float from rank 2"),
        ];
        for (request, expected) in named {
            let request: Request = request;
            let header = request.of(3, DataType::F32).header(1, 7);
            assert_eq!(name(&header).to_string(), expected);
            // A value that the call cannot have is printed as it came.
            let odd = name(&Header { data_type: 99, ..header });
            assert!(odd.to_string().contains("type 99"), "{odd}");
        }
        // Counts that differ between ranks are not printed.
        let header = Request::from(Collective::AllToAllV).of(0, DataType::F32).header(1, 7);
        assert_eq!(name(&header).to_string(), "all-to-all-v 7 of float");
        let unknown =
            Header { rank: 0, sequence: 1, count: 2, collective: 99, data_type: 1, reduction: 1, root: 5 };
        assert_eq!(
            name(&unknown).to_string(),
            "an unknown operation 1 of 2 elements of type 1 (operation 1, root 5)"
        );
    }
}
