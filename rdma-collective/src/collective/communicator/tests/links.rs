//! Links that cannot be connected: the rank at fault is the peer if its process has died, and this rank otherwise.

use std::process::Command;

use super::*;
use crate::collective::communicator::link_table::{find_blobs, word_bytes};
use crate::link::Blob;
use crate::liveness::Process;

/// Connects the link of rank 0 to rank 2 of 4, when the word of rank 2 says that it runs in `process`, and has an inbox
/// of one byte. Returns the rank that rank 0 has lost, and the first byte of its verdict.
fn connect_to(process: Process) -> (Option<u32>, u8) {
    let mut world = world_of(4, local(), Driver::Caller);
    let begin = |comm: &mut Communicator| {
        comm.open_links(Reach::All);
        let words = comm.with_links(|_, links| {
            links.table.begin_connecting(Reach::All);
            links.table.connecting.as_ref().unwrap().words.clone()
        });
        words.unwrap()
    };
    begin(&mut world[0]);
    let bytes = word_bytes(Reach::All, 4, 1);
    let theirs = begin(&mut world[2])[2 * bytes..3 * bytes].to_vec();
    let token = world[0].origin().token.fingerprint();
    let mut blob = find_blobs(&theirs, token, (2, 0), 1).unwrap().unwrap().remove(0);
    blob.regions[0].len = 1;
    let blob = Blob { process, ..blob }.encode().unwrap();
    let connected = world[0].with_links(|core, links| {
        let connecting = links.table.connecting.as_mut().unwrap();
        // All have opened their links.
        (0..4).for_each(|rank| connecting.words[rank * bytes] = 1);
        connecting.words[2 * bytes..3 * bytes].copy_from_slice(&theirs);
        // Behind the flag, and the rank that the entry is for.
        connecting.words[2 * bytes + 5..][..blob.len()].copy_from_slice(&blob);
        let lost = links.table.connect(core).err().map(|lost| lost.rank);
        (lost, links.table.connecting.as_ref().unwrap().words[0])
    });
    connected.unwrap()
}

#[test]
fn a_link_that_is_refused_because_its_peer_has_died_is_not_this_ranks_fault() {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let process = Process::of(child.id());
    let (lost, verdict) = connect_to(process);
    assert_eq!((lost, verdict), (None, 2), "the peer runs, so this rank says that it has failed");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(connect_to(process).0, Some(2));
}
