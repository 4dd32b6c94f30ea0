//! Keys in etcd: entries of the living, of one job.

use std::net::SocketAddr;
use std::time::Duration;

use rdma_collective::bootstrap::JobToken;
use serde_json::{Value, json};
use servers::directory::{Directory, Entry, Etcd, LASTS, Role, Sealed};

use super::daemon::Daemon;
use super::support::{LONG, TOKEN};

fn sealed(name: &str) -> Sealed {
    let (name, http, blob) = (name.to_owned(), "127.0.0.1:9".to_owned(), String::new());
    Entry { name, role: Role::Decode, http, blob, until: 0 }.seal(&TOKEN.parse().unwrap(), LASTS).unwrap()
}

async fn names(etcd: &Etcd) -> Vec<String> {
    etcd.entries().await.unwrap().into_iter().map(|sealed| sealed.name).collect()
}

/// Announces a server until etcd takes it, because etcd has just started.
async fn announce_soon(etcd: &Etcd, sealed: &Sealed) {
    let announced = async {
        while etcd.announce(sealed).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LONG, announced).await.expect("etcd starts in time");
}

async fn until_gone(etcd: &Etcd, name: &str) {
    let gone = async {
        while names(etcd).await.iter().any(|other| other == name) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LONG, gone).await.expect("an entry ends");
}

/// Answer of etcd to a request of its gateway.
async fn gateway(address: SocketAddr, path: &str, ask: Value) -> Value {
    let url = format!("http://{address}/v3/{path}");
    reqwest::Client::new().post(url).json(&ask).send().await.unwrap().json().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_those_of_the_living_of_one_job() {
    let Some(mut daemon) = Daemon::new("keys") else { return };
    daemon.start();
    let token: JobToken = TOKEN.parse().unwrap();
    let directory = |token: &JobToken| Etcd::new(&daemon.address.to_string(), token).unwrap();
    let [one, two, other_job] =
        [directory(&token), directory(&token), directory(&JobToken::random().unwrap())];
    announce_soon(&one, &sealed("decode-1")).await;
    two.announce(&sealed("decode-2")).await.unwrap();
    assert_eq!(names(&one).await, ["decode-1", "decode-2"]);
    assert!(names(&other_job).await.is_empty());
    // A value that is no entry hides none. Keys are `/`, `0`: those of all jobs.
    let all =
        gateway(daemon.address, "kv/range", json!({ "key": "Lw==", "range_end": "MA==", "limit": 1 })).await;
    let key = all["kvs"][0]["key"].as_str().unwrap();
    gateway(daemon.address, "kv/put", json!({ "key": format!("{key}eHg="), "value": "e30=" })).await;
    assert_eq!(names(&one).await, ["decode-1", "decode-2"]);
    // Decode 1 goes on, and decode 2 is silent.
    let goes_on = async {
        loop {
            one.announce(&sealed("decode-1")).await.unwrap();
            assert!(names(&one).await.contains(&"decode-1".to_owned()));
            tokio::time::sleep(LASTS / 6).await;
        }
    };
    tokio::select! {
        () = goes_on => {}
        () = until_gone(&one, "decode-2") => {}
    }
    until_gone(&one, "decode-1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_that_has_forgotten_all_is_told_again_and_one_that_is_stopped_costs_a_second() {
    let Some(mut daemon) = Daemon::new("forgets") else { return };
    daemon.start();
    // A member that is away is no hindrance.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let etcd = Etcd::new(&format!("{nobody},{}", daemon.address), &TOKEN.parse().unwrap()).unwrap();
    announce_soon(&etcd, &sealed("decode-1")).await;
    daemon.kill();
    let error = format!("{:#}", etcd.entries().await.unwrap_err());
    assert!(error.contains("etcd at 127.0.0.1:"), "{error}");
    assert!(etcd.announce(&sealed("decode-1")).await.is_err());
    daemon.forget();
    daemon.start();
    announce_soon(&etcd, &sealed("decode-1")).await;
    assert_eq!(names(&etcd).await, ["decode-1"]);
    daemon.stop();
    let asked = tokio::time::timeout(LONG / 2, etcd.entries()).await.expect("an error in time");
    assert!(asked.is_err());
    assert!(
        tokio::time::timeout(LONG / 2, etcd.announce(&sealed("decode-1"))).await.expect("in time").is_err()
    );
    daemon.go_on();
    announce_soon(&etcd, &sealed("decode-1")).await;
    assert_eq!(names(&etcd).await, ["decode-1"]);
}
