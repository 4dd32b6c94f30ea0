//! Links that a tree of any root needs, and the bound on their memory.

use super::*;

#[test]
fn links_go_both_ways_and_a_tree_of_any_root_has_its() {
    for world in 1..20 {
        for reach in [Reach::Neighbours, Reach::Doublings, Reach::All] {
            for rank in 0..world {
                let peers: Vec<u32> = reach.peers(rank, world).collect();
                assert!(!peers.contains(&rank));
                assert!(peers.iter().all(|peer| reach.peers(*peer, world).any(|back| back == rank)));
                // The gathered words of all ranks have one length, so the counts must not differ.
                assert_eq!(peers.len(), reach.peers(0, world).count());
            }
        }
        for (root, bit) in (0..world).flat_map(|root| (0..5).map(move |bit| (root, bit))) {
            let child = (root + (1 << bit)) % world;
            let is_neighbour = (child + 1) % world == root || (root + 1) % world == child;
            assert!(
                (1 << bit) >= world
                    || is_neighbour
                    || Reach::Doublings.peers(root, world).any(|peer| peer == child)
            );
        }
    }
    assert_eq!(Reach::Doublings.peers(3, 1024).count(), 17);
}

#[test]
fn what_links_take_is_bounded() {
    let options = CommunicatorOptions::default();
    for world in [1, 2, 8, 16, 100, 1024, 65536] {
        for (reach, most) in [(Reach::Doublings, DOUBLINGS_BYTES_MAX), (Reach::All, SLOTS_BYTES_MAX)] {
            let Geometry { slots, slot_bytes } = geometry(&options, world, reach);
            let links = reach.peers(0, world).count();
            let bytes = usize::from(slots) * slot_bytes * links;
            assert!(bytes <= most.max(usize::from(slots) * SLOT_BYTES_MIN * links));
            assert!(slot_bytes.is_multiple_of(8) && slot_bytes <= options.slot_bytes);
        }
    }
    let small = CommunicatorOptions { slot_bytes: 20, ..options };
    assert_eq!(geometry(&small, 1024, Reach::All).slot_bytes, 20);
}

#[test]
fn a_rank_among_64_has_few_links_and_16_mib_where_no_operation_needs_all() {
    let (options, world) = (CommunicatorOptions::default(), 64);
    let of = |slot_bytes| 2 * usize::from(options.slots) * slot_bytes;
    let peers = Reach::Doublings.peers(0, world).count();
    let beyond = peers * of(geometry(&options, world, Reach::Doublings).slot_bytes);
    assert!(peers + 2 <= 2 * 6 + 2, "{peers} beyond the neighbours");
    assert!(2 * of(options.slot_bytes) + beyond <= 16 << 20, "{beyond}");
}
