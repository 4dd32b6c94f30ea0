//! Strict links whose decode has some of the blocks of a grant: prefill does not reach those.

use super::strict::{block, bytes_of, fill, granted, strict, write_silently};
use super::*;
use rdma_core::RemoteKey;

use crate::kv::Blocks;

/// The byte in the block that decode has.
const HAD: u8 = 0x22;

#[test]
fn a_strict_prefill_reaches_no_block_that_decode_has() {
    for wire in WIRES {
        let scene = Scene::new(wire);
        fill(&scene.pool, 2, HAD);
        fill(&scene.source, 0, 7);
        let blocks = Blocks::new(&[1, 2]).having(&[2]);
        for (round, layer) in (1..).zip([0, 1]) {
            let (prefill, decode) = strict(&scene);
            let grant = decode.grant(1, blocks, soon()).unwrap();
            assert!(write_silently(at_prefill(&prefill), block(granted(&prefill), layer, 2)));
            assert_refused(&scene.decodes, round);
            grant.wait().unwrap_err();
        }
        assert_eq!(bytes_of(&scene.pool, 2), [HAD; 64]);
        let (prefill, decode) = strict(&scene);
        let grant = decode.grant(1, blocks, soon()).unwrap();
        prefill.push(1, &[0, 3], soon()).unwrap().wait().unwrap();
        assert!(grant.wait().unwrap().verdicts.all_valid());
        assert_eq!((bytes_of(&scene.pool, 1), bytes_of(&scene.pool, 2)), (vec![7; 64], vec![HAD; 64]));
        assert_eq!(scene.decodes.context().refused_requests().unwrap(), Some(2), "a peer that is honest");
    }
}

#[test]
fn a_strict_prefill_fills_a_block_that_decode_had_before_it_changed() {
    for wire in WIRES {
        let scene = Scene::new(wire);
        fill(&scene.source, 0, 7);
        fill(&scene.source, 3, 8);
        let (prefill, decode) = strict(&scene);
        let grant = decode.grant(1, Blocks::new(&[1, 2]).having(&[2]), soon()).unwrap();
        let verdicts = grant.revoke(soon()).unwrap();
        fill(&scene.pool, 2, HAD);
        let grant = decode.grant_missing(2, &verdicts, soon()).unwrap();
        prefill.push(2, &[0, 3], soon()).unwrap().wait().unwrap();
        assert!(grant.wait().unwrap().verdicts.all_valid());
        assert_eq!((bytes_of(&scene.pool, 1), bytes_of(&scene.pool, 2)), (vec![7; 64], vec![8; 64]));
        assert_eq!(scene.decodes.context().refused_requests().unwrap(), Some(0));
    }
}

#[test]
fn a_strict_prefill_reaches_no_block_that_a_resumed_transfer_has() {
    for (wire, is_changed) in WIRES.into_iter().flat_map(|wire| [(wire, false), (wire, true)]) {
        let scene = Scene::new(wire);
        fill(&scene.source, 0, 7);
        fill(&scene.source, 3, 8);
        let (prefill, decode) = strict(&scene);
        let grant = decode.grant(1, &[1, 2], soon()).unwrap();
        prefill.push(1, &[0, 3], soon()).unwrap().wait().unwrap();
        let verdicts = grant.wait().unwrap().verdicts;
        if is_changed {
            fill(&scene.pool, 1, HAD);
        }
        let grant = decode.grant_missing(2, &verdicts, soon()).unwrap();
        let to = block(granted(&prefill), 0, 2);
        assert_eq!(to.rkey == RemoteKey(0), !is_changed, "a key of the blocks that are wanted alone");
        assert!(write_silently(at_prefill(&prefill), to));
        assert_refused(&scene.decodes, 1);
        grant.wait().unwrap_err();
        assert_eq!(bytes_of(&scene.pool, 2), [8; 64]);
    }
}
