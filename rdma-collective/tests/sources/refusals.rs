//! Links that do not bring whole blocks together are refused, by name.

use rdma_collective::kv::{KvError, Pool, PoolUse, Sources, SourcesError};
use rdma_core::Wire;

use super::common::long;
use super::pair::{engine, link};
use super::ranks::{links, room, source};

#[test]
fn a_link_that_brings_a_part_of_a_block_grants_and_pulls_nothing_by_itself() {
    let engine = engine(Wire::Local, None);
    let room = room(&engine);
    let (_prefills, decodes) = links(&engine, &room, 4);
    let refused = decodes[1].grant(1, &[3], long()).unwrap_err();
    assert!(matches!(refused, KvError::PartOfBlocks { layer: 0, head: 0, .. }), "{refused}");
    let refused = decodes[0].pull(1, &[3], long()).unwrap_err();
    assert!(matches!(refused, KvError::PartOfBlocks { layer: 0, head: 2, .. }), "{refused}");
    assert!(refused.to_string().contains("make kv::Sources of the links to all ranks"), "{refused}");
    assert_eq!(room.held(3), None);
}

#[test]
fn two_prefill_ranks_that_claim_one_head_are_refused() {
    let engine = engine(Wire::Local, None);
    let room = room(&engine);
    let (_prefills, mut decodes) = links(&engine, &room, 2);
    let replica = source(&engine, 1, 2);
    let (_prefill, decode) = link((&engine, &replica), (&engine, &room), &Default::default());
    let peer = decode.peer();
    decodes.push(decode);
    let refused = Sources::new(decodes).unwrap_err();
    let twice = SourcesError::Twice { layer: 0, head: 4, first: refused.object[1].peer(), second: peer };
    assert_eq!(refused.error, twice);
    // The links are as good as before.
    let mut decodes = refused.object;
    decodes.pop();
    Sources::new(decodes).unwrap();
}

#[test]
fn a_rank_that_is_left_out_is_missed() {
    let engine = engine(Wire::Local, None);
    let room = room(&engine);
    let (_prefills, mut decodes) = links(&engine, &room, 4);
    drop(decodes.remove(2));
    let refused = Sources::new(decodes).unwrap_err().error;
    assert_eq!(refused, SourcesError::Missing { layer: 0, head: 4 });
    assert_eq!(Sources::new(Vec::new()).unwrap_err().error, SourcesError::None);
}

#[test]
fn links_of_two_pools_are_refused() {
    let engine = engine(Wire::Local, None);
    let (room, other) = (room(&engine), room(&engine));
    let (_prefills, mut decodes) = links(&engine, &room, 2);
    let (_others, theirs) = links(&engine, &other, 2);
    decodes.truncate(1);
    decodes.extend(theirs.into_iter().skip(1));
    let refused = Sources::new(decodes).unwrap_err().error;
    assert!(matches!(refused, SourcesError::OtherPool { .. }), "{refused}");
}

/// Tensor parallelism of decode alone needs no sources: each of its ranks hears one.
#[test]
fn a_rank_of_decode_that_hears_one_rank_needs_no_others() {
    let engine = engine(Wire::Local, None);
    let whole = source(&engine, 0, 1);
    let room = Pool::allocate(&engine, &super::ranks::layout(1, 2), PoolUse::Destination).unwrap();
    let (prefill, decode) = link((&engine, &whole), (&engine, &room), &Default::default());
    let (grant, push) = (decode.grant(1, &[3], long()).unwrap(), prefill.push(1, &[9], long()).unwrap());
    assert!(grant.wait().unwrap().verdicts.all_valid());
    assert_eq!(push.wait().unwrap().bytes, room.layout().block_bytes());
}
