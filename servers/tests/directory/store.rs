//! The library's store.

use rdma_collective::bootstrap::{StoreOptions, StoreServer};

use super::support::process::Process;
use super::support::{ask_soon, body};
use super::token;

#[tokio::test(flavor = "multi_thread")]
async fn servers_find_each_other_by_the_librarys_store() {
    let store = StoreServer::bind("127.0.0.1:0".parse().unwrap(), StoreOptions::new(token(), 3)).unwrap();
    let address = store.address();
    // Each in a thread, because ranks wait for each other.
    let start = |(role, rank)| {
        let directory = format!("store:{address},{rank},3");
        std::thread::spawn(move || Process::start(role, role, &directory))
    };
    let starting = [("router", 0), ("prefill", 1), ("decode", 2)].map(start);
    let [router, _prefill, _decode] = starting.map(|starting| starting.join().unwrap());
    let asked = body("a prompt that is longer than a block of the cache", 3, 8);
    assert_eq!(ask_soon(&reqwest::Client::new(), router.address, &asked).await.len(), 8);
}
