//! Tests of reductions in place against reductions of slices, and of memory that is gone.

use std::time::Duration;

use rdma_core::error::ReachError;
use rdma_core::{Access, Deadline, Device, ProtectionDomain, SoftOptions, Worker, WorkerOptions, loopback};

use super::super::Vectors;
use super::*;
use crate::collective::ReduceError;
use crate::collective::Reduction;

const OPEN: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ);
/// No whole number of tiles, of lines or of words.
const LENGTHS: [usize; 5] = [8, 120, 3 * TILE, 3 * TILE + 8, 40 * TILE + 56];

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

fn device() -> (ProtectionDomain, Worker) {
    let context = Device::soft(SoftOptions::default()).open().unwrap();
    (context.alloc_pd().unwrap(), context.worker(WorkerOptions::default()).unwrap())
}

/// Whole numbers, which are exact in any type and order.
fn operands(len: usize) -> [Vec<u8>; 2] {
    let of = |seed: usize| (0..len).map(|at| ((at * 7 + seed) % 61) as u8).collect();
    [of(3), of(40)]
}

/// The operands in regions that begin at any byte.
fn regions(pd: &ProtectionDomain, operands: &[Vec<u8>; 2], at: usize) -> [Region; 2] {
    operands.each_ref().map(|operand| {
        let region = pd.alloc_region(operand.len() + at, OPEN).unwrap();
        region.copy_in(at, operand).unwrap();
        region
    })
}

fn read(region: &Region, at: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    region.copy_out(at, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_peer_and_a_region_are_reduced_where_they_lie_at_any_address_with_the_same_bits_on_both_sides() {
    let (pd, mut worker) = device();
    let (left_qp, _right_qp) = loopback(&mut worker, &pd).unwrap();
    for (len, at) in LENGTHS.into_iter().zip([0, 1, 3, 64, 9]) {
        let slices = operands(len);
        for vectors in Vectors::all() {
            let subtle = Reduction::new(DataType::Bf16, ReduceOp::Prod).with(vectors);
            let mut expected = vec![0; len];
            subtle.reduce(&mut expected, &[&slices[0], &slices[1]]).unwrap();
            for own in [0, 1] {
                let regions = regions(&pd, &slices, at);
                let (own, theirs) = (&regions[own], &regions[1 - own]);
                let mut peer = worker.peer_slice(&left_qp, theirs.remote(), soon());
                let mut out = vec![0; len];
                subtle.reduce_peer(&mut out, Operand::Region(own, at), (&mut peer, at)).unwrap();
                assert!(out == expected, "{len} bytes by {vectors}");
                assert_eq!(
                    [read(&regions[0], at, len), read(&regions[1], at, len)],
                    slices,
                    "{len} bytes by {vectors}"
                );
                let (made, done) = subtle.reduce_both((own, at), (&mut peer, at), len);
                assert!(made && done.is_ok());
                for region in &regions {
                    assert!(read(region, at, len) == expected, "{len} bytes by {vectors}");
                    assert!(read(region, 0, at) == vec![0; at], "before it");
                }
            }
        }
    }
}

#[test]
fn what_lies_in_a_window_is_reduced_onto_a_slice_and_with_another_once_though_it_is_run_again() {
    let (pd, mut worker) = device();
    let (left_qp, _right_qp) = loopback(&mut worker, &pd).unwrap();
    for (len, at) in LENGTHS.into_iter().zip([0, 1, 3, 64, 9]) {
        let [own, left] = operands(len);
        let window = pd.alloc_window(len + at).unwrap();
        let theirs = worker.peer_window(&left_qp, window.remote(), soon()).unwrap();
        window.copy_in(at, &left).unwrap();
        for (vectors, data_type) in
            Vectors::all().flat_map(|vectors| [DataType::F16, DataType::U64].map(|of| (vectors, of)))
        {
            let sum = Reduction::new(data_type, ReduceOp::Sum).with(vectors);
            let mut expected = vec![0; len];
            sum.reduce(&mut expected, &[&own, &left]).unwrap();
            let (mut out, mut apart) = (own.clone(), vec![0; len]);
            let mut onto = sum.onto(&mut out, None).unwrap();
            theirs.run(at, len, &mut onto).unwrap();
            // As where a peer has replaced pages meanwhile.
            theirs.run(at, len, &mut onto).unwrap();
            window.run(at, len, &mut sum.onto(&mut apart, Some(&own)).unwrap()).unwrap();
            assert!(out == expected && apart == expected, "{len} bytes of {data_type} by {vectors}");
        }
        let mut read = vec![0; len];
        window.copy_out(at, &mut read).unwrap();
        assert!(read == left);
        let shorter = Reduction::new(DataType::U8, ReduceOp::Sum).onto(&mut read, Some(&own[1..])).err();
        assert!(matches!(shorter, Some(ReduceError::LengthsDiffer { .. })));
    }
}

#[test]
fn what_is_made_in_place_is_made_once_though_it_is_run_again() {
    let (pd, _) = device();
    for len in LENGTHS {
        let slices = operands(len);
        let [own, theirs] = regions(&pd, &slices, 0);
        let how = KernelChoice {
            vectors: Vectors::all().last().unwrap(),
            data_type: DataType::U64,
            op: ReduceOp::Sum,
        };
        let mut expected = slices[0].clone();
        Reduction::new(DataType::U64, ReduceOp::Sum).reduce_into(&mut expected, &[&slices[1]]).unwrap();
        let mut both = MutualReduction::new((&own, 0), len, how).unwrap();
        assert!(!both.is_made());
        for _ in 0..2 {
            let at = theirs.address_of(0, len).unwrap().as_ptr();
            // SAFETY: `at` is valid for `len` bytes, because `address_of` has checked the region's length.
            unsafe { both.run(at, 0..len) };
            assert!(both.is_made());
            assert!(read(&own, 0, len) == expected && read(&theirs, 0, len) == expected, "{len} bytes");
            // The pages that it was in are others.
            theirs.copy_in(0, &slices[1]).unwrap();
        }
    }
}

#[test]
fn nothing_is_made_of_memory_that_is_not_there() {
    let (pd, mut worker) = device();
    let (left_qp, _right_qp) = loopback(&mut worker, &pd).unwrap();
    let sum = Reduction::new(DataType::U8, ReduceOp::Sum);
    let slices = operands(64);
    let [own, theirs] = regions(&pd, &slices, 0);
    let told = theirs.remote();
    let mut out = [0; 64];
    assert!(
        sum.reduce_near(&mut out, Some(Operand::Slice(&slices[0])), Operand::Slice(&slices[1][1..])).is_err()
    );
    assert!(sum.reduce_near(&mut out, Some(Operand::Region(&own, 1)), Operand::Slice(&slices[1])).is_err());
    let mut peer = worker.peer_slice(&left_qp, told, soon());
    let beyond = sum.reduce_both((&own, 0), (&mut peer, 1), 64);
    assert!(matches!(beyond, (false, Err(ReachError::Range(_)))), "{beyond:?}");
    theirs.deregister().unwrap();
    let mut peer = worker.peer_slice(&left_qp, told, soon());
    let gone = sum.reduce_both((&own, 0), (&mut peer, 0), 64);
    assert!(matches!(gone, (false, Err(ReachError::Revoked))), "{gone:?}");
    assert!(read(&own, 0, 64) == slices[0] && out == [0; 64]);
}
