//! The library's store.

use rdma_collective::bootstrap::{StoreOptions, StoreServer};

use super::support::{ask_soon, body, spawn};
use super::token;

#[tokio::test(flavor = "multi_thread")]
async fn servers_find_each_other_by_the_librarys_store() {
    let store = StoreServer::bind("127.0.0.1:0".parse().unwrap(), StoreOptions::new(token(), 3)).unwrap();
    let address = store.address();
    let [of_router, of_prefill, of_decode] = [0, 1, 2].map(|rank| format!("store:{address},{rank},3"));
    // At once, because ranks wait for each other.
    let (router, _prefill, _decode) = tokio::join!(
        spawn("router", "router", &of_router),
        spawn("prefill", "prefill", &of_prefill),
        spawn("decode", "decode", &of_decode),
    );
    let asked = body("a prompt that is longer than a block of the cache", 3, 8);
    assert_eq!(ask_soon(&reqwest::Client::new(), router.address, &asked).await.len(), 8);
}
