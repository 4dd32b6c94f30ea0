//! Layers that are sent: their bytes are at the peer, and their memory at prefill is used for something else.

use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{WIRES, block_on, long};
use crate::pair::{CANARY, Pair, SHAPE, Setup, engine, link, pool, source_byte};
use rdma_collective::kv::layout::Layout;
use rdma_collective::kv::{KvError, LinkOptions, PlanError, Pool, PoolUse, Prefill};
use rdma_core::fault::{Fault, FaultPlan, Messages, Rule};
use rdma_core::{Deadline, Wire};

fn soon() -> Deadline {
    Deadline::after(Duration::from_millis(30))
}

/// The order in which layers are announced and waited for.
const ORDER: [u32; 3] = [2, 0, 1];

/// A link whose prefill computes into memory that it has besides its pool: the pool refuses writes to leased blocks.
fn computed(wire: Wire) -> (Pair, impl Fn(u32, u8)) {
    let (at_prefill, at_decode) = (engine(wire, None), engine(wire, None));
    let layout = Layout::new(SHAPE).unwrap();
    let region = at_prefill
        .register(rdma_core::Memory::allocate(layout.bytes() as usize).unwrap(), PoolUse::Source.access())
        .unwrap();
    let source = Pool::in_region(&at_prefill, &region, 0, &layout, PoolUse::Source).unwrap();
    let destination = pool(&at_decode, SHAPE, PoolUse::Destination, |_, _, _| CANARY);
    let options = LinkOptions { write_bytes_max: 64, ..LinkOptions::default() };
    let (prefill, decode) = link((&at_prefill, &source), (&at_decode, &destination), &options);
    // All blocks of a layer, which lie side by side.
    let len = (layout.layer_block_bytes() * u64::from(SHAPE.blocks)) as usize;
    let compute = move |layer: u32, byte| region.copy_in(len * layer as usize, &vec![byte; len]).unwrap();
    (Pair { prefill, decode, source, destination }, compute)
}

#[test]
fn the_memory_of_a_layer_is_used_for_something_else_as_soon_as_it_is_sent() {
    for wire in WIRES {
        let (pair, compute) = computed(wire);
        let blocks: Vec<u32> = (0..SHAPE.blocks).collect();
        let push = pair.prefill.push_layers(1, &blocks, long()).unwrap();
        let grant = pair.decode.grant(1, &blocks, long()).unwrap();
        for layer in ORDER {
            compute(layer, layer as u8 + 1);
            assert!(push.poll_layer_sent(layer).is_pending());
            push.layer_ready(layer).unwrap();
            block_on(push.layer_sent(layer)).unwrap();
            compute(layer, 0xee);
            assert!(matches!(push.poll_layer_sent(layer), Poll::Ready(Ok(()))));
        }
        assert!(grant.wait().unwrap().verdicts.all_valid());
        push.wait().unwrap();
        let mut bytes = vec![0; pair.destination.layout().layer_block_bytes() as usize];
        for (layer, block) in (0..3).flat_map(|layer| blocks.iter().map(move |block| (layer, *block))) {
            pair.destination.read(layer, block, 0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == layer as u8 + 1), "block {block} of layer {layer}");
        }
    }
}

#[test]
fn a_wait_for_a_layer_that_is_not_sent_ends_and_the_push_goes_on() {
    for wire in WIRES {
        let pair = Setup { wire, ..Setup::default() }.connect();
        let push = pair.prefill.push_layers(1, &[0, 1], long()).unwrap();
        // The push has not met its grant.
        push.layer_ready(1).unwrap();
        let error = push.wait_layer_sent(1, soon()).unwrap_err();
        assert!(matches!(error, KvError::LayerLate { request, layer: 1 } if request == 1.into()), "{error}");
        let grant = pair.decode.grant(1, &[3, 4], long()).unwrap();
        push.wait_layer_sent(1, long()).unwrap();
        // Layer 0 was not announced.
        let error = push.wait_layer_sent(0, soon()).unwrap_err();
        assert!(matches!(error, KvError::LayerLate { request, layer: 0 } if request == 1.into()), "{error}");
        let error = push.wait_layer_sent(3, soon()).unwrap_err();
        assert!(matches!(error, KvError::Plan(PlanError::Layout(_))), "{error}");
        [2, 0].into_iter().for_each(|layer| push.layer_ready(layer).unwrap());
        assert!(grant.wait().unwrap().verdicts.all_valid());
        (0..3).for_each(|layer| push.wait_layer_sent(layer, long()).unwrap());
        push.wait().unwrap();
        pair.assert_moved(&[(0, 3), (1, 4)]);
    }
}

/// Sums of a layer are made when all layers before it are announced; until then its bytes are still read.
#[test]
fn with_checksums_a_layer_is_sent_after_all_before_it() {
    for wire in WIRES {
        let options = LinkOptions { checksums: true, ..LinkOptions::default() };
        let pair = Setup { wire, options, ..Setup::default() }.connect();
        let push = pair.prefill.push_layers(1, &[0, 1], long()).unwrap();
        let grant = pair.decode.grant(1, &[3, 4], long()).unwrap();
        push.layer_ready(1).unwrap();
        let error = push.wait_layer_sent(1, soon()).unwrap_err();
        assert!(matches!(error, KvError::LayerLate { layer: 1, .. }), "{error}");
        push.layer_ready(0).unwrap();
        (0..2).for_each(|layer| push.wait_layer_sent(layer, long()).unwrap());
        (0..2).for_each(|layer| _ = grant.wait_layer(layer, long()).unwrap());
        assert!(push.poll_layer_sent(2).is_pending());
        push.layer_ready(2).unwrap();
        block_on(push.layer_sent(2)).unwrap();
        assert!(grant.wait().unwrap().verdicts.all_valid());
        push.wait().unwrap();
        pair.assert_moved(&[(0, 3), (1, 4)]);
    }
}

#[test]
fn layers_of_other_transfers_are_sent_when_those_have_ended() {
    for wire in WIRES {
        let (at_prefill, at_decode) = (engine(wire, None), engine(wire, None));
        let source = pool(&at_prefill, SHAPE, PoolUse::SourceToPull, source_byte);
        let destination = pool(&at_decode, SHAPE, PoolUse::Destination, |_, _, _| CANARY);
        let options = LinkOptions::default();
        let (prefill, decode) = link((&at_prefill, &source), (&at_decode, &destination), &options);
        let mut push = prefill.push(1, &[0], long()).unwrap();
        let offer = prefill.offer(2, &[1], long()).unwrap();
        for transfer in [&push, &offer] {
            assert!(transfer.poll_layer_sent(1).is_pending());
            let error = transfer.wait_layer_sent(1, soon()).unwrap_err();
            assert!(matches!(error, KvError::LayerLate { layer: 1, .. }), "{error}");
            assert!(matches!(transfer.poll_layer_sent(3), Poll::Ready(Err(KvError::Plan(_)))));
        }
        let grant = decode.grant(1, &[3], long()).unwrap();
        let pull = decode.pull(2, &[4], long()).unwrap();
        for transfer in [&push, &offer] {
            block_on(transfer.layer_sent(1)).unwrap();
            transfer.wait_layer_sent(0, long()).unwrap();
        }
        assert!(grant.wait().unwrap().verdicts.all_valid() && pull.wait().unwrap().verdicts.all_valid());
        block_on(&mut push).unwrap();
        assert!(
            matches!(block_on(push.layer_sent(1)), Err(KvError::OutcomeTaken { request }) if request == 1.into())
        );
        assert!(
            matches!(push.wait_layer_sent(1, long()), Err(KvError::OutcomeTaken { request }) if request == 1.into())
        );
        // An offer that nobody pulls.
        let offer = prefill.offer(3, &[1], soon()).unwrap();
        assert!(
            matches!(offer.wait_layer_sent(0, long()), Err(KvError::LeaseExpired { request, .. }) if request == 3.into())
        );
        assert!(
            matches!(offer.layer_ready(0), Err(KvError::LeaseExpired { request, .. }) if request == 3.into())
        );
    }
}

/// A push that is given up with one layer sent and one not: the first stays sent.
#[test]
fn a_layer_that_was_not_sent_gets_the_error_of_the_push() {
    for wire in WIRES {
        let pair = Setup { wire, ..Setup::default() }.connect();
        let push = pair.prefill.push_layers(1, &[0, 1], long()).unwrap();
        let grant = pair.decode.grant(1, &[3, 4], long()).unwrap();
        push.layer_ready(1).unwrap();
        push.wait_layer_sent(1, long()).unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| block_on(push.layer_sent(0)));
            thread::sleep(Duration::from_millis(20));
            drop(grant.revoke(long()).unwrap());
            let error = waits.join().unwrap().unwrap_err();
            assert!(matches!(error, KvError::PeerRevoked { request, .. } if request == 1.into()), "{error}");
        });
        push.wait_layer_sent(1, long()).unwrap();
        assert!(matches!(push.wait(), Err(KvError::PeerRevoked { request, .. }) if request == 1.into()));
    }
}

#[test]
fn whoever_awaits_a_layer_that_is_to_be_sent_is_woken_when_the_peer_goes() {
    let Pair { prefill, decode, .. } = Setup::default().connect();
    let push = prefill.push_layers(1, &[0, 1], long()).unwrap();
    let grant = decode.grant(1, &[3, 4], long()).unwrap();
    let begin = Instant::now();
    let peer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        drop((grant, decode));
    });
    let error = block_on(push.layer_sent(0)).unwrap_err();
    assert!(matches!(error, KvError::PeerFailed { .. } | KvError::PeerRevoked { .. }), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(25), "nobody wakes who waits for a layer");
    peer.join().unwrap();
}

/// A peer that acknowledges late: bytes that are posted are not sent yet.
#[test]
fn a_layer_is_not_sent_before_the_peer_has_it() {
    let plan = FaultPlan::seeded(3);
    let pair = Setup { wire: Wire::Tcp, faults: [Some(plan.clone()), None], ..Setup::default() }.connect();
    let push = |prefill: &Prefill, request| prefill.push_layers(request, &[0, 1], long()).unwrap();
    let (push, grant) = (push(&pair.prefill, 1), pair.decode.grant(1, &[3, 4], long()).unwrap());
    while push.progress().writes == 0 {
        thread::yield_now();
    }
    plan.add(Rule::new(Fault::Delay(Duration::from_millis(20))).on(Messages::Replies));
    let begin = Instant::now();
    push.layer_ready(2).unwrap();
    block_on(push.layer_sent(2)).unwrap();
    // The device counts from its last look at the clock, which on a busy machine is older than this one.
    assert!(begin.elapsed() >= Duration::from_millis(10), "{:?}", begin.elapsed());
    plan.clear();
    grant.wait_layer(2, long()).unwrap();
    (0..2).for_each(|layer| push.layer_ready(layer).unwrap());
    assert!(grant.wait().unwrap().verdicts.all_valid());
    push.wait().unwrap();
}
