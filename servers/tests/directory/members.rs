//! The servers that one of them knows, by a directory that lies, falls silent, or forgets.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rdma_collective::bootstrap::JobToken;
use servers::directory::{Directory, Entry, Http, LASTS, PAUSE, Role, Sealed, entry_at};
use servers::members::Members;

use super::support::{LONG, ask, ask_soon, body, spawn, start};
use super::{entry, token};

/// A directory that says just this, or is away.
#[derive(Clone, Default)]
struct Says(Arc<Mutex<Option<Vec<Sealed>>>>);

impl Says {
    fn say(&self, entries: impl Into<Option<Vec<Sealed>>>) {
        *self.0.lock().unwrap() = entries.into();
    }
}

impl Directory for Says {
    fn announce<'a>(&'a self, _entry: &'a Sealed) -> BoxFuture<'a, Result<()>> {
        async { Ok(()) }.boxed()
    }

    fn entries(&self) -> BoxFuture<'_, Result<Vec<Sealed>>> {
        let said = self.0.lock().unwrap().clone();
        async { said.map_or_else(|| bail!("away"), Ok) }.boxed()
    }
}

/// The servers that a router knows by a directory.
fn members(directory: &Says) -> Members {
    let members = Members::new(token(), Box::new(directory.clone())).unwrap();
    tokio::spawn(members.clone().keep(entry("router", Role::Router), None));
    members
}

fn names(members: &Members, role: Role) -> Vec<String> {
    members.all(role).into_iter().map(|entry| entry.name).collect()
}

async fn until(what: &str, is: impl Fn() -> bool) {
    let waited = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, waited).await.unwrap_or_else(|_| panic!("in time: {what}"));
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_that_lie_are_left_out() {
    let directory = Says::default();
    let sealed = |name, role| entry(name, role).seal(&token(), LASTS).unwrap();
    let stranger = JobToken::random().unwrap();
    let other_token = entry("decode-1", Role::Decode).seal(&stranger, LASTS).unwrap();
    let other_name = Sealed { name: "decode-2".to_owned(), ..sealed("prefill-0", Role::Prefill) };
    let altered = sealed("decode-3", Role::Decode);
    let altered = Sealed { entry: altered.entry.replace("127.0.0.1:9", "127.0.0.1:8"), ..altered };
    let no_seal = Sealed { seal: String::new(), ..sealed("decode-4", Role::Decode) };
    let no_entry = Sealed { entry: "{".to_owned(), ..sealed("decode-5", Role::Decode) };
    let itself = sealed("router", Role::Router);
    let truth = sealed("decode-0", Role::Decode);
    directory.say(vec![other_token, other_name, altered, no_seal, no_entry, itself, truth]);
    let members = members(&directory);
    until("the true one is known", || names(&members, Role::Decode) == ["decode-0"]).await;
    assert!(names(&members, Role::Prefill).is_empty());
    assert!(names(&members, Role::Router).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_entry_that_is_said_again_counts_for_nothing() {
    let directory = Says::default();
    let at = |http: &str| Entry { http: http.to_owned(), ..entry("decode-0", Role::Decode) };
    let old = at("127.0.0.1:8").seal(&token(), LASTS).unwrap();
    let new = at("127.0.0.1:9").seal(&token(), LASTS * 4).unwrap();
    let members = members(&directory);
    let is_at = |http: &str| members.all(Role::Decode).iter().any(|entry| entry.http == http);
    directory.say(vec![new.clone(), old.clone()]);
    until("the new one is known", || is_at("127.0.0.1:9")).await;
    directory.say(vec![old.clone()]);
    tokio::time::sleep(PAUSE * 3).await;
    assert!(is_at("127.0.0.1:9") && !is_at("127.0.0.1:8"));
    // Entries end although the directory says them for ever.
    until("the entries end", || names(&members, Role::Decode).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_the_directory_does_not_name_speaks_for_itself() {
    let directory = Says::default();
    let address = start(Role::Single, "single", "own").await;
    let there = Entry { http: address.to_string(), ..entry("single", Role::Single) };
    let gone = entry("a-single-that-has-gone", Role::Single);
    directory.say(vec![there.seal(&token(), LASTS).unwrap(), gone.seal(&token(), LASTS).unwrap()]);
    let members = members(&directory);
    until("both are known", || names(&members, Role::Single).len() == 2).await;
    // The directory is away for longer than the entries last. The one in doubt comes last in each turn.
    directory.say(None);
    let end = now() + LASTS.as_secs() * 2;
    let fresh =
        || members.all(Role::Single).first().is_some_and(|entry| entry.until > end && entry.name == "single");
    until("the server has told a new entry", fresh).await;
    for _ in 0..4 {
        assert_eq!(names(&members, Role::Single), ["single", "a-single-that-has-gone"]);
    }
    // The directory is back, and has forgotten all: those that can be reached are still there.
    directory.say(Vec::new());
    until("the dead one has gone", || names(&members, Role::Single) == ["single"]).await;
    let end = now() + LASTS.as_secs() * 2;
    until("the server is there still", || members.all(Role::Single).iter().any(|entry| entry.until > end))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_of_a_dead_process_is_gone_within_its_time_to_live() {
    let directory = Says::default();
    let mut process = spawn("single", "single", "own").await;
    let there = Entry { http: process.address.to_string(), ..entry("single", Role::Single) };
    directory.say(vec![there.seal(&token(), LASTS).unwrap()]);
    let members = members(&directory);
    until("it is known", || names(&members, Role::Single) == ["single"]).await;
    directory.say(Vec::new());
    until("it speaks for itself", || members.all(Role::Single).iter().any(|one| one.until > now() + 1)).await;
    process.kill().await.unwrap();
    until("it is gone", || names(&members, Role::Single).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_failed_is_asked_last_until_it_announces_itself_anew() {
    let directory = Says::default();
    let both = || ["a", "b"].map(|name| entry(name, Role::Decode).seal(&token(), LASTS).unwrap()).to_vec();
    directory.say(both());
    let members = members(&directory);
    until("both are known", || names(&members, Role::Decode).len() == 2).await;
    members.doubt("a");
    members.doubt("nobody");
    for _ in 0..4 {
        assert_eq!(names(&members, Role::Decode), ["b", "a"]);
    }
    let announced = || {
        directory.say(both());
        names(&members, Role::Decode) == ["a", "b"]
    };
    until("it takes its turn again", announced).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_entries_cost_connects_that_fail_and_no_request() {
    let router = start(Role::Router, "router", "own").await;
    let directory = format!("http:{router}");
    start(Role::Prefill, "prefill-0", &directory).await;
    start(Role::Decode, "decode-0", &directory).await;
    // Entries of processes that have ended, and of one that never was.
    let mut stale = vec![Entry { blob: "00ff".to_owned(), ..entry("prefill-never", Role::Prefill) }];
    for role in ["prefill", "decode"] {
        let process = spawn(role, &format!("{role}-gone"), "own").await;
        let sealed = entry_at(&reqwest::Client::new(), &process.address.to_string()).await.unwrap();
        stale.push(sealed.open(&token()).unwrap());
    }
    let http = Http::new(router.to_string()).unwrap();
    tokio::spawn(async move {
        loop {
            for stale in &stale {
                http.announce(&stale.seal(&token(), LASTS).unwrap()).await.unwrap();
            }
            tokio::time::sleep(PAUSE).await;
        }
    });
    let client = reqwest::Client::new();
    let prompt = |number: u64| body(&format!("a prompt that is longer than a block, {number}"), 3, 4);
    ask_soon(&client, router, &prompt(0)).await;
    let asked = (1..9).map(|number| {
        let (client, prompt) = (client.clone(), prompt(number));
        async move { ask(&client, router, &prompt).await }
    });
    for answer in futures_util::future::join_all(asked).await {
        assert_eq!(answer.expect("no request is lost").len(), 4);
    }
}
