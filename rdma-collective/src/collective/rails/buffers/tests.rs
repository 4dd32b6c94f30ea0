//! Elements of a piece, and the buffers that only the root of an operation has.

use super::*;
use crate::collective::ReduceOp;
use crate::collective::call::Collective;

/// Fills a piece with bytes 1..3 of each part of 4 bytes, adds 100 to each, and writes the piece back.
fn through(request: impl Into<Request>, rank: u32, mut buffers: Buffers<'_>) -> Vec<u8> {
    let shape = Shape::new(request.into(), RankOf { rank, size: 2 }, 4);
    let mut memory = vec![0; shape.parts() * 2];
    shape.fill(&mut memory, &buffers, 1..3);
    let filled = memory.clone();
    memory.iter_mut().for_each(|byte| *byte += 100);
    shape.give_back(&memory, &mut buffers, 1..3);
    filled
}

#[test]
fn a_piece_has_its_elements_of_every_part() {
    let whole: Vec<u8> = (0..8).collect();
    for (request, rank, filled, given_back) in [
        (Collective::AllGather.into(), 1, [0, 0, 5, 6], vec![0, 100, 100, 3, 4, 105, 106, 7]),
        (Collective::ReduceScatter.by(ReduceOp::Sum), 1, [1, 2, 5, 6], vec![0, 1, 2, 3, 4, 105, 106, 7]),
        (Collective::AllToAll.into(), 1, [1, 2, 5, 6], vec![0, 101, 102, 3, 4, 105, 106, 7]),
        (Collective::Gather.at(1), 1, [0, 0, 5, 6], vec![0, 100, 100, 3, 4, 105, 106, 7]),
        (Collective::Gather.at(0), 1, [0, 0, 5, 6], whole.clone()),
        (Collective::Scatter.at(1), 1, [1, 2, 5, 6], vec![0, 1, 2, 3, 4, 105, 106, 7]),
        (Collective::Scatter.at(0), 1, [0; 4], vec![0, 1, 2, 3, 4, 100, 100, 7]),
    ] {
        let mut data = whole.clone();
        assert_eq!(through(request, rank, Buffers::InPlace(&mut data)), filled);
        assert_eq!(data, given_back);
    }
    let mut output = vec![0; 8];
    let apart = Buffers::OutOfPlace { input: &whole[..4], output: &mut output };
    assert_eq!(through(Collective::AllGather, 1, apart), [0, 0, 1, 2]);
    assert_eq!(output, [0, 100, 100, 0, 0, 101, 102, 0]);
    let mut output = vec![0; 4];
    let apart = Buffers::OutOfPlace { input: &whole, output: &mut output };
    assert_eq!(through(Collective::ReduceScatter.by(ReduceOp::Sum), 1, apart), [1, 2, 5, 6]);
    assert_eq!(output, [0, 105, 106, 0]);
}

#[test]
fn what_a_root_alone_has_others_may_leave_out() {
    let (gather, scatter) = (Collective::Gather.at(0), Collective::Scatter.at(0));
    let apart = Buffers::OutOfPlace { input: &[0, 1, 2, 3], output: &mut [] };
    assert_eq!(through(gather, 1, apart), [0, 0, 1, 2]);
    let mut output = vec![0; 4];
    assert_eq!(through(scatter, 1, Buffers::OutOfPlace { input: &[], output: &mut output }), [0; 4]);
    assert_eq!(output, [0, 100, 100, 0]);
    let reduce = Collective::Reduce.by(ReduceOp::Sum).at(0);
    assert_eq!(through(reduce, 1, Buffers::OutOfPlace { input: &[0, 1, 2, 3], output: &mut [] }), [1, 2]);
    let mut output = vec![0; 4];
    let apart = Buffers::OutOfPlace { input: &[], output: &mut output };
    assert_eq!(through(Collective::Broadcast.at(0), 1, apart), [0, 0]);
    assert_eq!(output, [0, 100, 100, 0]);
}

#[test]
fn of_a_root_only_what_is_its() {
    let reduce = Collective::Reduce.by(ReduceOp::Sum).at(0);
    for (request, rank, filled, given_back) in [
        (Collective::Broadcast.at(0), 0, [1, 2], [0, 101, 102, 3]),
        (Collective::Broadcast.at(0), 1, [0, 0], [0, 100, 100, 3]),
        (reduce, 0, [1, 2], [0, 101, 102, 3]),
        (reduce, 1, [1, 2], [0, 1, 2, 3]),
    ] {
        let mut data = vec![0, 1, 2, 3];
        assert_eq!(through(request, rank, Buffers::InPlace(&mut data)), filled);
        assert_eq!(data, given_back);
    }
}
