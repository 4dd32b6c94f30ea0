//! Names of every kind of call.

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
