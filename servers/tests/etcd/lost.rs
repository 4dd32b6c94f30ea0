//! Requests while etcd comes late, stops, dies, loses its data and is cut off from a server: none is lost, none wrong.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;
use servers::directory::{Directory, Etcd, LASTS};

use super::daemon::Daemon;
use super::proxy::Proxy;
use super::support::{LONG, TOKEN, ask, ask_soon, body, spawn};

/// Requests with their answers by a single process.
struct Asked {
    client: reqwest::Client,
    router: SocketAddr,
    answers: Vec<(Value, Vec<u32>)>,
}

impl Asked {
    async fn new(router: SocketAddr, single: SocketAddr) -> Self {
        let client = reqwest::Client::new();
        let mut answers = Vec::new();
        for seed in 0..24 {
            let prompt = format!("request {seed}: {}", "a longer beginning ".repeat(seed as usize % 5 + 1));
            let asked = body(&prompt, seed, 12);
            let answer = ask_soon(&client, single, &asked).await;
            answers.push((asked, answer));
        }
        Self { client, router, answers }
    }

    /// Asks everything again and again, for longer than entries last.
    async fn all(&self, meanwhile: &str) {
        let began = Instant::now();
        while began.elapsed() < LASTS * 2 + Duration::from_secs(1) {
            self.once(meanwhile).await;
        }
    }

    /// Asks everything once.
    async fn once(&self, meanwhile: &str) {
        let asked = self.answers.chunks(4).map(|some| async move {
            for (asked, answer) in some {
                let said = ask(&self.client, self.router, asked).await;
                assert_eq!(said.as_ref(), Ok(answer), "while {meanwhile}");
            }
        });
        futures_util::future::join_all(asked).await;
    }

    /// Waits until requests are answered.
    async fn soon(&self) {
        let (asked, answer) = &self.answers[0];
        assert_eq!(&ask_soon(&self.client, self.router, asked).await, answer);
    }
}

/// Waits until the servers in etcd are those of these names.
async fn until_named(etcd: &Etcd, names: &[&str]) {
    let expected: BTreeSet<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let named = async {
        loop {
            let entries = etcd.entries().await.unwrap_or_default();
            if entries.into_iter().map(|sealed| sealed.name).collect::<BTreeSet<_>>() == expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LONG, named).await.unwrap_or_else(|_| panic!("etcd names {expected:?} in time"));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_is_lost_or_wrong_while_etcd_is_late_stopped_killed_emptied_and_cut_off() {
    let Some(mut daemon) = Daemon::new("lost") else { return };
    let all = ["router", "prefill-0", "prefill-1", "decode-0", "decode-1"];
    let directory = format!("etcd:{}", daemon.address);
    let etcd = Etcd::new(&daemon.address.to_string(), &TOKEN.parse().unwrap()).unwrap();
    let wires = [Proxy::start(daemon.address).await, Proxy::start(daemon.address).await];
    let [to_decode, to_prefill] = wires.each_ref().map(|wire| format!("etcd:{}", wire.address));
    let single = spawn("single", "single", "own").await;
    let router = spawn("router", "router", &directory).await;
    let mut prefill = spawn("prefill", "prefill-0", &directory).await;
    let _cut_off_prefill = spawn("prefill", "prefill-1", &to_prefill).await;
    let mut decode = spawn("decode", "decode-0", &directory).await;
    let mut cut_off_decode = spawn("decode", "decode-1", &to_decode).await;
    let asked = Asked::new(router.address, single.address).await;

    // Late: servers that started while etcd was away join.
    daemon.start();
    until_named(&etcd, &all).await;
    asked.soon().await;
    asked.once("all is well").await;

    daemon.stop();
    asked.all("etcd is stopped").await;
    // A server that dies now is in nobody's way.
    decode.kill().await.unwrap();
    asked.all("etcd is stopped and a decode is dead").await;
    daemon.go_on();
    until_named(&etcd, &["router", "prefill-0", "prefill-1", "decode-1"]).await;
    asked.once("etcd goes on").await;

    daemon.kill();
    decode = spawn("decode", "decode-0", &directory).await;
    asked.all("etcd is dead and a server starts").await;
    daemon.start();
    until_named(&etcd, &all).await;
    asked.once("etcd is back").await;

    daemon.kill();
    daemon.forget();
    asked.all("etcd is dead for the second time").await;
    daemon.start();
    asked.once("etcd is back without its data").await;
    until_named(&etcd, &all).await;

    wires[0].cut(true);
    until_named(&etcd, &["router", "prefill-0", "prefill-1", "decode-0"]).await;
    asked.all("a decode is cut off from etcd").await;
    wires[1].cut(true);
    until_named(&etcd, &["router", "prefill-0", "decode-0"]).await;
    asked.all("a prefill is cut off, too").await;
    // Servers that are cut off are the only ones left.
    decode.kill().await.unwrap();
    prefill.kill().await.unwrap();
    until_named(&etcd, &["router"]).await;
    asked.soon().await;
    asked.all("only servers that are cut off are left").await;
    wires.iter().for_each(|wire| wire.cut(false));
    until_named(&etcd, &["router", "prefill-1", "decode-1"]).await;
    asked.once("the wires are mended").await;

    // The decode that started while etcd was away takes part: it alone is left.
    decode = spawn("decode", "decode-0", &directory).await;
    until_named(&etcd, &["router", "prefill-1", "decode-0", "decode-1"]).await;
    cut_off_decode.kill().await.unwrap();
    asked.soon().await;
    asked.once("another decode is left").await;
    drop(decode);
}
