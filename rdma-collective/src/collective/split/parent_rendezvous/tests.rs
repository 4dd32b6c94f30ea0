//! Ranks that cannot be in the communicator of their color, among others that can.

use std::sync::Arc;
use std::thread;

use rdma_core::{Device, SoftOptions, Wire};

use super::super::members::SplitRequest;
use super::*;
use crate::bootstrap::{Join, StoreClient, StoreOptions, StoreServer};
use crate::collective::ReduceOp;
use crate::collective::communicator::CommunicatorOptions;
use crate::engine::{Engine, EngineOptions};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

/// Runs `body` as each of `ranks` ranks, and returns their results, by rank.
fn each_of<T: Send + 'static>(
    ranks: u32,
    body: impl Fn(Communicator) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let token = JobToken::from_bytes([3; 16]);
    let server = StoreServer::bind("127.0.0.1:0".parse().unwrap(), StoreOptions::new(token, ranks)).unwrap();
    let (address, body) = (server.address(), Arc::new(body));
    let threads = (0..ranks).map(|rank| {
        let body = Arc::clone(&body);
        thread::spawn(move || {
            let join = Join { address, token, rank, world: ranks };
            let mut store = StoreClient::connect(join, soon()).unwrap();
            let device = Device::soft(SoftOptions { wire: Wire::Local, ..SoftOptions::default() });
            let engine = Engine::new(&device.open().unwrap(), EngineOptions::default()).unwrap();
            let options = CommunicatorOptions::default();
            body(Communicator::new(&engine, &mut store, options, soon()).unwrap())
        })
    });
    let threads: Vec<_> = threads.collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// Splits into even and odd ranks; rank 3 does `instead` in place of joining its color, and then only takes part in
/// rounds.
fn without_rank_3(instead: fn(&mut ParentRendezvous<'_>)) {
    each_of(6, move |mut comm| {
        let color = comm.rank() % 2;
        if comm.rank() == 3 {
            comm.gather_for_split(&SplitRequest { color: Some(color), key: 0 }.encode(), soon()).unwrap();
            let parent = Parent { name: "world".to_owned(), ranks: vec![1, 3, 5], color, key: 0 };
            instead(&mut ParentRendezvous::new(&mut comm, parent, soon()));
            comm.join_rounds(soon()).unwrap();
        } else {
            match comm.split(Some(color), 0, soon()) {
                Ok(made) => {
                    assert_eq!(color, 0);
                    let (mut made, mut data) = (made.unwrap(), [1_u8]);
                    made.all_reduce(&mut data, ReduceOp::Sum, soon()).unwrap();
                    assert_eq!(data, [3]);
                }
                Err(
                    CommunicatorError::Rank { rank: 3, .. }
                    | CommunicatorError::Introduction { rank: 3 }
                    | CommunicatorError::Differs { rank: 3, .. },
                ) => assert_eq!(color, 1),
                Err(other) => panic!("{other}"),
            }
        }
        comm.barrier(soon()).unwrap();
        comm.close(soon()).unwrap();
    });
}

#[test]
fn a_rank_that_gives_up_is_named_by_its_color_and_no_matter_to_the_others() {
    without_rank_3(|_| {});
}

#[test]
fn words_that_make_no_sense_are_an_error_that_names_who_said_them() {
    without_rank_3(|rendezvous| {
        rendezvous.all_gather("something else", b"", soon()).unwrap_err();
    });
    without_rank_3(|rendezvous| {
        rendezvous.all.round(Some(&[1, 2, 3, 4, 5]), soon()).unwrap();
    });
    without_rank_3(|rendezvous| {
        let name = "comm/world/split0/color1/0/ranks";
        rendezvous.all_gather(name, b"nothing that a rank says of itself", soon()).unwrap();
    });
}

#[test]
fn what_is_too_long_to_be_told_is_an_error_on_all() {
    each_of(3, |mut comm| {
        let own = vec![0; if comm.rank() == 1 { 70_000 } else { 7 }];
        let error = comm.round(Some(&own), soon()).unwrap_err().to_string();
        assert!(error.contains("70000") && error.contains("65536"), "{error}");
        let told = comm.round((comm.rank() == 1).then_some(&[][..]), soon()).unwrap();
        assert_eq!(told, [None, Some(Vec::new()), None]);
        comm.join_rounds(soon()).unwrap();
    });
    // A rank that only takes part comes to the same round as the ranks that send.
    each_of(3, |mut comm| {
        if comm.rank() == 1 {
            comm.round(Some(&[0; 70_000]), soon()).unwrap_err();
        }
        comm.join_rounds(soon()).unwrap();
        comm.barrier(soon()).unwrap();
    });
}
