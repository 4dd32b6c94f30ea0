//! A router with a prefill and a decode, and a single process that says which answers are right.

use std::net::SocketAddr;

use reqwest::Client;
use servers::directory::Role;
use servers::health::Health;
use servers::serve::Options;

use super::{LONG, ask, ask_soon, body, start, start_with};

/// The servers of a job.
pub struct Pair {
    pub client: Client,
    pub router: SocketAddr,
    pub decode: SocketAddr,
    pub prefill: SocketAddr,
    single: SocketAddr,
}

impl Pair {
    /// Starts servers whose options were changed. They may not know each other yet.
    pub async fn unready(change: impl Fn(Role, &mut Options)) -> Self {
        let router = start_with(Role::Router, "router", "own", &change).await;
        let directory = format!("http:{router}");
        let prefill = start_with(Role::Prefill, "prefill-0", &directory, &change).await;
        let decode = start_with(Role::Decode, "decode-0", &directory, &change).await;
        let single = start(Role::Single, "single", "own").await;
        Self { client: Client::new(), router, decode, prefill, single }
    }

    /// Starts servers whose options were changed, and waits until they answer.
    pub async fn start(change: impl Fn(Role, &mut Options)) -> Self {
        let pair = Self::unready(change).await;
        ask_soon(&pair.client, pair.router, &body("a first prompt, longer than a block", 3, 4)).await;
        pair
    }

    /// The health of a server.
    pub async fn health(&self, address: SocketAddr) -> Health {
        health(&self.client, address).await.1
    }

    /// Fails unless the servers have lost nothing: no text is under way, all blocks are free or kept, and a request
    /// that has not been asked before gets the right tokens.
    pub async fn check(&self) {
        let idle = async {
            for server in [self.decode, self.prefill] {
                loop {
                    let cache = self.health(server).await.cache.unwrap();
                    if cache.blocks.texts == 0 && cache.blocks.idle == cache.blocks.all {
                        break;
                    }
                    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                }
            }
        };
        tokio::time::timeout(LONG, idle).await.expect("no text is under way, and no block is lost");
        let asked = body(&format!("a good prompt, the {}th", getrandom::u32().unwrap()), 3, 12);
        let [split, alone] = [self.router, self.single].map(|server| ask(&self.client, server, &asked));
        assert_eq!(split.await.unwrap(), alone.await.unwrap());
    }
}

/// The status of a server's health, and the health.
pub async fn health(client: &Client, address: SocketAddr) -> (u16, Health) {
    let answer = client.get(format!("http://{address}/health")).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}
