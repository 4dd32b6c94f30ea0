//! Links that are not strict: one key over the pool, or one for each run of tensors, as long as the link.

use super::*;

#[test]
fn a_prefill_reaches_no_byte_of_the_region_outside_its_pool() {
    for wire in WIRES {
        let Scene { prefills, decodes, source, region, pool, _other } = Scene::new(wire);
        let outside: [fn(RemoteMemory) -> RemoteMemory; 3] = [
            // The first bytes of the other pool, bytes of both, and bytes before.
            |whole| RemoteMemory { addr: whole.addr + whole.len, len: LEN, ..whole },
            |whole| RemoteMemory { addr: whole.addr + whole.len - 1, len: LEN, ..whole },
            |whole| RemoteMemory { addr: whole.addr - 1, len: LEN, ..whole },
        ];
        for (round, outside) in (1..).zip(outside) {
            let (prefill, decode) = link((&prefills, &source), (&decodes, &pool));
            assert!(prefill.has_own_keys() && decode.has_own_keys());
            let grant = decode.grant(1, &[0, 1], soon()).unwrap();
            write(at_prefill(&prefill), outside(of_decode(&prefill)));
            assert_refused(&decodes, round);
            let error = grant.wait().unwrap_err();
            assert!(matches!(*error.cause, KvError::PeerFailed { .. }), "{wire:?}: {error}");
        }
        assert_untouched(&region);
    }
}

#[test]
fn a_prefill_writes_with_its_key_inside_its_pool_alone_and_may_not_read() {
    for wire in WIRES {
        let Scene { prefills, decodes, source, region, pool, _other } = Scene::new(wire);
        let (prefill, _decode) = link((&prefills, &source), (&decodes, &pool));
        let whole = of_decode(&prefill);
        assert_ne!(whole.rkey, region.rkey());
        assert_eq!((whole.addr, whole.len), (region.remote().addr + 64, layout().bytes()));
        // Any block of the pool, whether or not it is granted: the key is for all of them.
        write(at_prefill(&prefill), RemoteMemory { len: LEN, ..whole });
        let (mut byte, started) = ([0], Instant::now());
        while byte[0] != EVIL && started.elapsed() < Duration::from_secs(20) {
            region.copy_out(64 + LEN as usize - 1, &mut byte).unwrap();
        }
        assert_eq!((byte[0], decodes.context().refused_requests().unwrap()), (EVIL, Some(0)));
        let (prefill, _decode) = link((&prefills, &source), (&decodes, &pool));
        let whole = of_decode(&prefill);
        read(at_prefill(&prefill), RemoteMemory { len: LEN, ..whole });
        assert_refused(&decodes, 1);
    }
}

/// Ends a link, and returns the ends that are left of it.
type Ending = fn(Prefill, Decode) -> (Option<Prefill>, Option<Decode>);

/// The ways in which a link ends: decode's end is dropped, prefill's end is, or prefill breaks the protocol.
const ENDS: [Ending; 3] = [
    |prefill, decode| {
        drop(decode);
        (Some(prefill), None)
    },
    |prefill, decode| {
        // The grant ends with the link.
        let grant = decode.grant(1, &[0], soon()).unwrap();
        drop(prefill);
        grant.wait().unwrap_err();
        (None, Some(decode))
    },
    |prefill, decode| {
        let grant = decode.grant(1, &[0], soon()).unwrap();
        prefill.shared().engine.lock_with(|core| {
            prefill.shared().lock().link.lane(core).unwrap().note(Imm::Block { transfer: 9, index: 0 });
        });
        grant.wait().unwrap_err();
        (Some(prefill), Some(decode))
    },
];

#[test]
fn the_key_of_a_link_ends_with_it_however_it_ends() {
    for wire in WIRES {
        let Scene { prefills, decodes, source, region, pool, _other } = Scene::new(wire);
        for (round, end) in (1..).zip(ENDS) {
            let ends = ((&prefills, &source), (&decodes, &pool));
            let ((first, at_first), (second, at_second)) = (link(ends.0, ends.1), link(ends.0, ends.1));
            let (former, own) = (of_decode(&first), of_decode(&second));
            assert_eq!((former.addr, former.len), (own.addr, own.len));
            assert_ne!(former.rkey, own.rkey, "two links have one key");
            let _ended = end(first, at_first);
            // Another queue pair of the same process, which may use the same domain.
            write(at_prefill(&second), RemoteMemory { len: LEN, ..former });
            assert_refused(&decodes, round);
            drop((second, at_second));
        }
        assert_untouched(&region);
    }
}

#[test]
fn the_key_of_a_prepared_end_ends_with_it() {
    for wire in WIRES {
        let Scene { prefills, decodes, source, region, pool, _other } = Scene::new(wire);
        let options = LinkOptions::default();
        let prepared = Decode::prepare(&decodes, &pool, &TOKEN, &options).unwrap();
        let former = *told(prepared.export()).unwrap().iter().next().unwrap();
        drop(prepared);
        let (prefill, _decode) = link((&prefills, &source), (&decodes, &pool));
        write(at_prefill(&prefill), RemoteMemory { len: LEN, ..former });
        assert_refused(&decodes, 1);
        // An end that is used up by a failed set-up, too.
        let mut used_up = Decode::prepare(&decodes, &pool, &TOKEN, &options).unwrap();
        let former = *told(used_up.export()).unwrap().iter().next().unwrap();
        let silent = Prefill::prepare(&prefills, &source, &TOKEN, &options).unwrap();
        used_up.connect(silent.export(), Deadline::after(Duration::from_millis(50))).unwrap_err();
        let (prefill, _decode) = link((&prefills, &source), (&decodes, &pool));
        write(at_prefill(&prefill), RemoteMemory { len: LEN, ..former });
        assert_refused(&decodes, 2);
        assert_untouched(&region);
    }
}

#[test]
fn a_decode_may_read_what_can_be_pulled_and_write_nothing_and_a_source_gives_no_key() {
    for wire in WIRES {
        let (prefills, decodes) = (engine(wire, None), engine(wire, None));
        let closed = Pool::allocate(&prefills, &layout(), PoolUse::Source).unwrap();
        let open = Pool::allocate(&prefills, &layout(), PoolUse::SourceToPull).unwrap();
        let destination = Pool::allocate(&decodes, &layout(), PoolUse::Destination).unwrap();
        let options = LinkOptions::default();
        let prepared = Prefill::prepare(&prefills, &closed, &TOKEN, &options).unwrap();
        assert!(told(prepared.export()).is_none());
        let (prefill, decode) = link((&prefills, &open), (&decodes, &destination));
        let whole = of_prefill(&decode);
        write(at_decode(&decode), RemoteMemory { len: LEN, ..whole });
        assert_refused(&prefills, 1);
        let mut bytes = vec![EVIL; LEN as usize];
        open.copy_out(0, &mut bytes).unwrap();
        assert_eq!(bytes, [0; LEN as usize]);
        drop((prefill, decode));
    }
}

#[test]
fn what_could_be_pulled_cannot_be_read_after_the_link() {
    for wire in WIRES {
        let (prefills, decodes) = (engine(wire, None), engine(wire, None));
        let source = Pool::allocate(&prefills, &layout(), PoolUse::SourceToPull).unwrap();
        let destination = Pool::allocate(&decodes, &layout(), PoolUse::Destination).unwrap();
        source.write(0, 0, 0, &[1; LEN as usize]).unwrap();
        let ends = ((&prefills, &source), (&decodes, &destination));
        let ((prefill, decode), (_other, second)) = (link(ends.0, ends.1), link(ends.0, ends.1));
        let former = RemoteMemory { len: LEN, ..of_prefill(&decode) };
        assert_ne!(former.rkey, of_prefill(&second).rkey);
        let (bytes, started) = (read(at_decode(&decode), former), Instant::now());
        let mut byte = [0];
        while byte[0] != 1 && started.elapsed() < Duration::from_secs(20) {
            bytes.copy_out(LEN as usize - 1, &mut byte).unwrap();
        }
        assert_eq!(byte, [1], "what the link may read can be read");
        drop(prefill);
        let bytes = read(at_decode(&second), former);
        assert_refused(&prefills, 1);
        assert_untouched(&bytes);
    }
}

#[test]
fn blocks_are_quarantined_when_the_device_does_not_end_the_key_of_their_link() {
    // A link without staging memory deregisters the buffers of its control messages, and then its key.
    let refusing = FaultPlan::seeded(1).with(Rule::new(Fault::RefuseDeregistration).nth(2));
    let (prefills, decodes) = (engine(Wire::Local, None), engine(Wire::Local, Some(refusing)));
    let source = Pool::allocate(&prefills, &layout(), PoolUse::Source).unwrap();
    let pool = Pool::allocate(&decodes, &layout(), PoolUse::Destination).unwrap();
    let (prefill, decode) = link((&prefills, &source), (&decodes, &pool));
    let former = of_decode(&prefill);
    let grant = decode.grant(1, &[2, 1], soon()).unwrap();
    // A message that is under way keeps its buffer registered until after the key.
    wait_for_grant(&prefill);
    drop(prefill);
    let error = grant.wait().unwrap_err();
    assert!(matches!(*error.cause, KvError::Quarantined { request, .. } if request == 1.into()), "{error}");
    assert_eq!([0, 1, 2].map(|block| pool.held(block).is_some()), [false, true, true]);
    assert_eq!(pool.held(1), Some(HoldKind::Quarantined));
    // Dropping the end asks the device again, which ends the key now.
    drop(decode);
    let (prefill, _decode) = link((&prefills, &source), (&decodes, &pool));
    write(at_prefill(&prefill), RemoteMemory { len: LEN, ..former });
    assert_refused(&decodes, 1);
}

#[test]
fn tensors_side_by_side_have_one_key_and_others_one_each() {
    let engine = engine(Wire::Local, None);
    let shape = Shape { layers: 4, ..Model::LLAMA_3_1_8B.shape(16, 2, Order::LayerPartBlock) };
    let layout = Layout::of([Group::new(shape).in_tensors(Tensors::PerLayer)]).unwrap();
    let each = layout.tensors().next().unwrap().len as usize;
    let region =
        |bytes| engine.register(Memory::allocate(bytes).unwrap(), PoolUse::Destination.access()).unwrap();
    let (one, two) = (region(4 * each), region(each));
    // Two side by side, a gap, one that would be next but for another region, and one before all.
    let tensors = [(one.clone(), each), (one.clone(), 2 * each), (two.clone(), 0), (one.clone(), 0)];
    let pool = Pool::in_regions(&engine, &tensors, &layout, PoolUse::Destination).unwrap();
    let (memory, mut keys) = pool.open_to_peer(engine.pd(), pool.purpose()).unwrap();
    let memory: Vec<_> = memory.unwrap().iter().copied().collect();
    let key = |at: usize| memory[at].rkey;
    assert!(key(0) == key(1) && key(1) != key(2) && key(2) != key(3) && key(3) != key(0));
    for (piece, (region, offset)) in memory.iter().zip(&tensors) {
        assert_eq!((piece.addr, piece.len), (region.remote().addr + *offset as u64, each as u64));
        assert_ne!(piece.rkey, region.rkey());
    }
    keys.end().unwrap();
    drop((pool, tensors));
    // Nothing of the link keeps the memory.
    one.deregister().unwrap();
    two.deregister().unwrap();
}
