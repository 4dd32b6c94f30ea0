//! Strict links: prefill reaches the blocks of its grants alone, and only as long as they stand.

use std::sync::atomic::{AtomicBool, Ordering};

use rdma_core::{PeerAccess, RemoteKey};

use super::*;
use crate::kv::message::{BEGIN, Begin};
use crate::tests::soak::Sample;

/// The bytes of a block in a layer, which lie side by side.
const BLOCK: u64 = 32;

pub(super) fn strict(scene: &Scene) -> (Prefill, Decode) {
    let options = LinkOptions { strict: true, ..LinkOptions::default() };
    link_of(&options, (&scene.prefills, &scene.source), (&scene.decodes, &scene.pool))
}

/// The pool of decode with the key of the grant that has arrived.
pub(super) fn granted(prefill: &Prefill) -> RemoteMemory {
    wait_for_grant(prefill);
    let memory = prefill.shared().lock().granted_memory(0).unwrap();
    *memory.iter().next().unwrap()
}

/// The first bytes of a block in a layer.
pub(super) fn block(whole: RemoteMemory, layer: u32, block: u32) -> RemoteMemory {
    let extent = layout().extents(layer, block).unwrap().next().unwrap();
    RemoteMemory { addr: whole.addr + extent.offset, len: LEN, ..whole }
}

/// Posts a write that the process of decode does not notice, if the lane has room. Returns whether the lane stands.
pub(super) fn write_silently((engine, lane): (&Engine, LaneId), to: RemoteMemory) -> bool {
    let mut buffer = engine.alloc_local(to.len as usize).unwrap();
    buffer.fill(EVIL);
    engine.lock_with(|core| match core.lane(lane) {
        Some(lane) if lane.ended().is_none() => {
            if lane.room_for_reads() > 0 {
                lane.write_silently(buffer, to);
            }
            true
        }
        _ => false,
    })
}

/// All bytes of a block.
pub(super) fn bytes_of(pool: &Pool, of: u32) -> Vec<u8> {
    let mut bytes = vec![0; 2 * BLOCK as usize];
    for (layer, bytes) in (0..).zip(bytes.chunks_mut(BLOCK as usize)) {
        pool.read(layer, of, 0, bytes).unwrap();
    }
    bytes
}

pub(super) fn fill(pool: &Pool, of: u32, byte: u8) {
    (0..2).for_each(|layer| pool.write(layer, of, 0, &[byte; BLOCK as usize]).unwrap());
}

#[test]
fn a_strict_prefill_reaches_no_block_that_is_not_granted_and_no_byte_outside_its_pool() {
    let elsewhere: [fn(RemoteMemory) -> RemoteMemory; 6] = [
        |whole| block(whole, 0, 0),
        |whole| block(whole, 1, 2),
        // The last bytes of the granted block, and the first of the next one.
        |whole| RemoteMemory { addr: block(whole, 0, 2).addr - LEN / 2, len: LEN, ..whole },
        |whole| RemoteMemory { addr: whole.addr - 1, len: LEN, ..whole },
        |whole| RemoteMemory { addr: whole.addr + whole.len, len: LEN, ..whole },
        // Without the key of a grant.
        |whole| RemoteMemory { rkey: RemoteKey(0), ..block(whole, 0, 1) },
    ];
    for wire in WIRES {
        let scene = Scene::new(wire);
        for (round, elsewhere) in (1..).zip(elsewhere) {
            let (prefill, decode) = strict(&scene);
            assert!(prefill.has_own_keys() && decode.has_own_keys());
            assert_eq!(of_decode(&prefill).rkey, RemoteKey(0));
            let grant = decode.grant(1, &[1], soon()).unwrap();
            assert!(write_silently(at_prefill(&prefill), elsewhere(granted(&prefill))));
            assert_refused(&scene.decodes, round);
            let error = grant.wait().unwrap_err();
            assert!(matches!(*error.cause, KvError::PeerFailed { .. }), "{wire:?}: {error}");
        }
        assert_untouched(&scene.region);
    }
}

#[test]
fn a_strict_prefill_may_not_read_and_writes_nothing_after_it_was_told_that_all_has_arrived() {
    for (wire, checksums) in WIRES.into_iter().flat_map(|wire| [(wire, false), (wire, true)]) {
        let scene = Scene::new(wire);
        (0..4).for_each(|of| fill(&scene.source, of, of as u8 + 1));
        // Packed writes go to staging memory, and the others straight to the blocks.
        let pack_bytes = if checksums { 4096 } else { 0 };
        let options = LinkOptions { strict: true, checksums, pack_bytes, ..LinkOptions::default() };
        let ends = ((&scene.prefills, &scene.source), (&scene.decodes, &scene.pool));
        let (prefill, decode) = link_of(&options, ends.0, ends.1);
        let grant = decode.grant(1, &[1, 3], soon()).unwrap();
        let former = granted(&prefill);
        let push = prefill.push(1, &[0, 2], soon()).unwrap();
        assert!(grant.wait().unwrap().verdicts.all_valid());
        push.wait().unwrap();
        assert_eq!(scene.decodes.context().refused_requests().unwrap(), Some(0), "a peer that is honest");
        // The next grant has another key, and the former one reaches not even the same block.
        let grant = decode.grant(2, &[1], soon()).unwrap();
        let next = granted(&prefill);
        assert_ne!(former.rkey, next.rkey);
        read(at_prefill(&prefill), block(next, 0, 1));
        assert_refused(&scene.decodes, 1);
        grant.wait().unwrap_err();
        let (prefill, _decode) = link_of(&options, ends.0, ends.1);
        write_silently(at_prefill(&prefill), block(former, 0, 3));
        assert_refused(&scene.decodes, 2);
        let expected = [(0, 0), (1, 1), (2, 0), (3, 3)];
        expected.iter().for_each(|(of, byte)| assert_eq!(bytes_of(&scene.pool, *of), [*byte; 64]));
    }
}

#[test]
fn a_strict_prefill_that_says_it_has_stopped_and_writes_on_changes_no_byte_of_blocks_that_are_used_again() {
    for wire in WIRES {
        let scene = Scene::new(wire);
        let (mut sample, mut refused) = (Sample::one_of(331), 0);
        for round in 0..10_000 {
            if sample.leaves_out() {
                continue;
            }
            let (prefill, decode) = strict(&scene);
            let blocks = [round % 4, (round + 1) % 4];
            blocks.iter().for_each(|of| fill(&scene.pool, *of, 0));
            let grant = decode.grant(1, &blocks, soon()).unwrap();
            let (whole, stopped) = (granted(&prefill), AtomicBool::new(false));
            thread::scope(|scope| {
                let attacker = scope.spawn(|| {
                    let targets =
                        blocks.into_iter().flat_map(|of| [block(whole, 0, of), block(whole, 1, of)]);
                    let mut stands = targets.cycle().map(|to| write_silently(at_prefill(&prefill), to));
                    // Bounded, so that a defect is a failure of the test and no hang.
                    let until = Deadline::after(Duration::from_secs(40));
                    while !stopped.load(Ordering::Relaxed) && !until.expired() && stands.next() == Some(true)
                    {
                        std::hint::spin_loop();
                    }
                });
                let started = Instant::now();
                while !blocks.iter().any(|of| bytes_of(&scene.pool, *of).contains(&EVIL)) {
                    assert!(started.elapsed() < Duration::from_secs(20), "{wire:?}: the key gives no right");
                }
                // The state machine of prefill answers that it has posted nothing.
                grant.revoke(soon()).unwrap();
                blocks.iter().for_each(|of| fill(&scene.pool, *of, 0x11));
                refused += 1;
                assert_refused(&scene.decodes, refused);
                stopped.store(true, Ordering::Relaxed);
                attacker.join().unwrap();
            });
            blocks
                .iter()
                .for_each(|of| assert_eq!(bytes_of(&scene.pool, *of), [0x11; 64], "{wire:?} {round}"));
        }
        assert!(refused > 0);
    }
}

#[test]
fn the_key_of_a_strict_grant_ends_with_its_link_its_deadline_and_its_refusal() {
    for wire in WIRES {
        let scene = Scene::new(wire);
        let mut refused = 0;
        let mut attack = |former: RemoteMemory| {
            let (prefill, _decode) = strict(&scene);
            write_silently(at_prefill(&prefill), block(former, 0, 1));
            refused += 1;
            assert_refused(&scene.decodes, refused);
        };
        let (prefill, decode) = strict(&scene);
        let short = Deadline::after(Duration::from_millis(200));
        let late = decode.grant(1, &[1], short).unwrap();
        let former = granted(&prefill);
        late.wait().unwrap_err();
        attack(former);
        let grant = decode.grant(2, &[1], soon()).unwrap();
        let former = granted(&prefill);
        // Another number of blocks than were granted.
        prefill.push(2, &[0, 1, 2], soon()).unwrap().wait().unwrap_err();
        grant.wait().unwrap_err();
        attack(former);
        let _grant = decode.grant(3, &[1], soon()).unwrap();
        let former = granted(&prefill);
        drop(decode);
        attack(former);
        assert_untouched(&scene.region);
    }
}

#[test]
fn a_strict_prefill_whose_count_lies_changes_its_own_blocks_alone() {
    for wire in WIRES {
        let scene = Scene::new(wire);
        let (prefill, decode) = strict(&scene);
        let grant = decode.grant(1, &[1, 2], soon()).unwrap();
        let whole = granted(&prefill);
        let begin = Begin {
            grant: 1,
            lease: 1,
            writes: 2,
            write_bytes_max: 1 << 20,
            pack_bytes: 0,
            slots: 0,
            by_layer: false,
            tokens: false,
            note: false,
        };
        let (engine, lane) = at_prefill(&prefill);
        // As many writes and bytes as were announced, all of them to the first layer.
        engine.lock_with(|core| {
            let told =
                prefill.shared().lock().link.send(core, BEGIN, |body| begin.write(body, &[0, 1], 0, 9));
            assert!(told);
            for index in 0..2 {
                let mut buffer = engine.alloc_local(2 * BLOCK as usize).unwrap();
                buffer.fill(EVIL);
                let to = RemoteMemory { len: 2 * BLOCK, ..block(whole, 0, 1) };
                let imm = Imm::Block { transfer: 0, index };
                core.lane(lane).unwrap().write_owned(buffer, to, imm, true);
            }
        });
        assert!(grant.wait().unwrap().verdicts.all_valid(), "decode has no other word than prefill's");
        let halves = [[EVIL; 32], [0; 32]].concat();
        let expected = [vec![0; 64], halves.clone(), halves, vec![0; 64]];
        (0..4).zip(expected).for_each(|(of, bytes)| assert_eq!(bytes_of(&scene.pool, of), bytes));
        assert_eq!(scene.decodes.context().refused_requests().unwrap(), Some(0));
    }
}

#[test]
fn blocks_of_a_strict_grant_are_quarantined_when_the_device_does_not_end_its_key() {
    let refusing = FaultPlan::seeded(1).with(Rule::new(Fault::RefuseDeregistration).nth(1));
    let (prefills, decodes) = (engine(Wire::Local, None), engine(Wire::Local, Some(refusing)));
    let source = Pool::allocate(&prefills, &layout(), PoolUse::Source).unwrap();
    let pool = Pool::allocate(&decodes, &layout(), PoolUse::Destination).unwrap();
    let options = LinkOptions { strict: true, ..LinkOptions::default() };
    let (prefill, decode) = link_of(&options, (&prefills, &source), (&decodes, &pool));
    let grant = decode.grant(1, &[2, 1], soon()).unwrap();
    let former = granted(&prefill);
    let error = grant.revoke(soon()).unwrap_err();
    assert!(matches!(error, KvError::Quarantined { request, .. } if request == 1.into()), "{error}");
    assert_eq!(pool.held(1), Some(HoldKind::Quarantined));
    // Forgetting the grant asks the device again, which ends the key now.
    write_silently(at_prefill(&prefill), block(former, 0, 1));
    assert_refused(&decodes, 1);
}

#[test]
fn a_strict_pool_has_a_key_for_each_of_its_regions() {
    let engine = engine(Wire::Local, None);
    let shape = Shape { layers: 4, ..Model::LLAMA_3_1_8B.shape(16, 8, Order::LayerPartBlock) };
    let layout = Layout::of([Group::new(shape).in_tensors(Tensors::PerLayer)]).unwrap();
    let each = layout.tensors().next().unwrap().len as usize;
    let region =
        |bytes| engine.register(Memory::allocate(bytes).unwrap(), PoolUse::Destination.access()).unwrap();
    let (one, two) = (region(4 * each), region(each));
    let tensors = [(one.clone(), each), (one.clone(), 2 * each), (two.clone(), 0), (one.clone(), 0)];
    let pool = Pool::in_regions(&engine, &tensors, &layout, PoolUse::Destination).unwrap();
    let (mut keys, told) = pool.open_blocks(engine.pd(), pool.bytes_of(&[7, 2, 3])).unwrap();
    assert!(told[0] == told[1] && told[1] == told[3] && told[2] != told[0] && !told.contains(&0), "{told:?}");
    keys.end().unwrap();
    drop((pool, tensors));
    one.deregister().unwrap();
    two.deregister().unwrap();
}

#[test]
fn memory_that_a_pool_registers_gives_peers_no_right_by_itself() {
    let engine = engine(Wire::Mapped, None);
    let (layout, purpose) = (layout(), PoolUse::Destination);
    let tensors = layout.tensors().map(|of| Memory::from(vec![0; of.len as usize])).collect();
    let pools = [
        Pool::allocate(&engine, &layout, purpose).unwrap(),
        Pool::register_tensors(&engine, tensors, &layout, purpose).unwrap(),
    ];
    for region in pools.into_iter().flat_map(|pool| pool.close(soon()).unwrap()) {
        assert_eq!(region.access(), Access::LOCAL_WRITE);
    }
}

#[test]
fn a_strict_link_of_one_host_goes_over_tcp_and_a_source_ignores_the_option() {
    let scene = Scene::new(Wire::Mapped);
    fill(&scene.source, 3, 9);
    let options = LinkOptions { strict: true, ..LinkOptions::default() };
    let mut prefill = Prefill::prepare(&scene.prefills, &scene.source, &TOKEN, &options).unwrap();
    let mut decode = Decode::prepare(&scene.decodes, &scene.pool, &TOKEN, &LinkOptions::default()).unwrap();
    let (to_decode, to_prefill) = (prefill.export().to_vec(), decode.export().to_vec());
    let (prefill, decode) = thread::scope(|scope| {
        let prefill = scope.spawn(|| prefill.connect(&to_prefill, soon()).unwrap());
        let decode = decode.connect(&to_decode, soon()).unwrap();
        (prefill.join().unwrap(), decode)
    });
    assert_ne!(of_decode(&prefill).rkey, RemoteKey(0));
    drop((prefill, decode));
    // Packed writes go to staging memory, which prefill maps.
    let options = LinkOptions { pack_bytes: 0, ..options };
    let (prefill, decode) =
        link_of(&options, (&scene.prefills, &scene.source), (&scene.decodes, &scene.pool));
    let access = || {
        let (engine, lane) = at_prefill(&prefill);
        engine.lock_with(|core| core.peer_access(lane).unwrap())
    };
    assert_eq!(access(), PeerAccess::Mapped);
    let grant = decode.grant(1, &[0], soon()).unwrap();
    let push = prefill.push(1, &[3], soon()).unwrap();
    assert!(grant.wait().unwrap().verdicts.all_valid());
    push.wait().unwrap();
    assert_eq!((access(), bytes_of(&scene.pool, 0)), (PeerAccess::Stream, vec![9; 64]));
}
