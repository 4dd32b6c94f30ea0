//! Peers that are no neighbours: the error says why they cannot be mapped.

use rdma_core::{PathOptions, SoftOptions, Wire};

use super::end::End;

#[test]
fn a_peer_that_is_no_neighbour_is_an_error_that_says_why() {
    for wire in [Wire::Tcp, Wire::Local] {
        let mapped = End::new();
        let endpoint = End::of(SoftOptions { wire, ..SoftOptions::default() }).endpoint();
        let End { qp, mut worker, retry, .. } = mapped;
        let path = PathOptions { gid_index: 1, ..PathOptions::default() };
        let Err(error) = qp.connect(&mut worker, &endpoint, &path, &retry) else { panic!("{wire:?}") };
        let error = error.to_string();
        for said in ["not mapped", "no process of this host", "Wire::Auto"] {
            assert!(error.contains(said), "{error}");
        }
    }
}
