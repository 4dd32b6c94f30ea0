//! Answers stay those of a single process while clients go away and servers are killed, and nothing leaks meanwhile.
//!
//! A plain run has 200 requests, `SOAK=full` 10,000.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use servers::load::{self, End, Outcome, Request, Requests};
use servers::observe::Figures;
use servers::process::{Process, Split, Starter};

/// Clients that ask at once.
const CLIENTS: usize = 12;
/// The longest time for a request. The router itself looks for another decode for 10 s.
const REQUEST_WITHIN: Duration = Duration::from_secs(90);
/// The time in which servers have all blocks again, and the threads and descriptors they had.
const IDLE_WITHIN: Duration = Duration::from_secs(60);
/// Descriptors beyond those of the beginning: connections that clients keep, and do not close before some time.
const DESCRIPTORS_MORE: usize = 3 * CLIENTS;
/// Threads beyond those of the beginning: the runtime keeps some that wait.
const THREADS_MORE: usize = 4;
/// A model that computes a request in some milliseconds.
const MODEL: &str = r#"{
    "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 160, "num_attention_heads": 4,
    "num_key_value_heads": 2
}"#;

/// The servers, and what has become of requests.
struct Soak {
    client: reqwest::Client,
    router: std::net::SocketAddr,
    single: std::net::SocketAddr,
    /// Kills and starts of the router: odd while it is away.
    turns: AtomicUsize,
    done: AtomicUsize,
    answered: AtomicUsize,
    aborted: AtomicUsize,
    asked_again: AtomicUsize,
    /// Milliseconds of the request that took longest, with all its tries.
    longest: AtomicU64,
}

impl Soak {
    async fn send(&self, address: std::net::SocketAddr, request: &Request) -> Outcome {
        let sent = load::send(self.client.clone(), address, request.clone(), Instant::now());
        tokio::time::timeout(REQUEST_WITHIN, sent).await.expect("no request hangs")
    }

    /// Sends a request to the router, and again if the router was killed meanwhile.
    async fn ask(&self, request: &Request) -> Outcome {
        let began = Instant::now();
        loop {
            let turn = self.turns.load(Ordering::SeqCst);
            let outcome = self.send(self.router, request).await;
            let End::Failed(error) = &outcome.end else { return outcome };
            let router_was_away = turn % 2 == 1 || turn != self.turns.load(Ordering::SeqCst);
            assert!(
                router_was_away && began.elapsed() < REQUEST_WITHIN,
                "a request failed without a cause: {error}"
            );
            self.asked_again.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Has both sides answer a request, and compares them.
    async fn compare(&self, number: usize, request: Request) {
        let began = Instant::now();
        let split = self.ask(&request).await;
        let took = began.elapsed().as_millis() as u64;
        self.longest.fetch_max(took, Ordering::SeqCst);
        let alone = self.send(self.single, &Request { aborts_after: None, ..request.clone() }).await;
        assert_eq!(alone.end, End::Answered, "request {number}: {}", request.body);
        if split.end == End::Answered {
            assert_eq!(split.tokens, alone.tokens, "request {number}: {}", request.body);
            self.answered.fetch_add(1, Ordering::SeqCst);
        } else {
            let begins_alike = alone.tokens.starts_with(&split.tokens);
            assert!(begins_alike, "request {number}: {:?} {:?}", split.tokens, alone.tokens);
            self.aborted.fetch_add(1, Ordering::SeqCst);
        }
        self.done.fetch_add(1, Ordering::SeqCst);
    }

    /// Has requests answered by clients side by side. Whenever so many have been, the next server is killed.
    async fn run(self: &Arc<Self>, requests: Vec<Request>, split: &mut Split, kill_every: Option<usize>) {
        let (begun, count) = (self.done.load(Ordering::SeqCst), requests.len());
        let next = Arc::new((AtomicUsize::new(0), requests));
        let clients = (0..CLIENTS).map(|_| {
            let (soak, next) = (Arc::clone(self), Arc::clone(&next));
            tokio::spawn(async move {
                loop {
                    let number = next.0.fetch_add(1, Ordering::SeqCst);
                    let Some(request) = next.1.get(number) else { return };
                    soak.compare(number, request.clone()).await;
                }
            })
        });
        let clients: Vec<_> = clients.collect();
        let mut kills = 0;
        while let Some(every) = kill_every.filter(|every| (kills + 1) * every < count) {
            let is_over = clients.iter().any(tokio::task::JoinHandle::is_finished);
            if is_over {
                break;
            }
            if self.done.load(Ordering::SeqCst) - begun >= (kills + 1) * every {
                // The order of `Split::all`: prefills, decodes, the router.
                let victim = [2, 0, 4, 3, 1][kills % 5];
                self.kill(split.get_mut(victim)).await;
                kills += 1;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for client in clients {
            client.await.unwrap();
        }
    }

    async fn kill(&self, server: &mut Process) {
        let is_router = usize::from(server.role == "router");
        self.turns.fetch_add(is_router, Ordering::SeqCst);
        server.kill().await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        server.start_again().await.unwrap();
        self.turns.fetch_add(is_router, Ordering::SeqCst);
    }

    /// Waits until a server that has no request any more has all of its blocks.
    async fn is_idle(&self, server: &Process) {
        let began = Instant::now();
        loop {
            let stats = Figures::ask(&self.client, server.address).await.unwrap();
            if stats.blocks.idle == stats.blocks.all {
                return;
            }
            assert!(began.elapsed() < IDLE_WITHIN, "{} has lost blocks: {stats:?}", server.name);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_answers_are_those_of_a_single_process_and_nothing_leaks_while_servers_are_killed() {
    let (count, kill_every) =
        if std::env::var("SOAK").as_deref() == Ok("full") { (10_000, 500) } else { (200, 40) };
    let model =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("soak-{}.json", std::process::id()));
    std::fs::write(&model, MODEL).unwrap();
    let options = vec!["--model".into(), model.clone().into(), "--blocks".into(), "512".into()];
    let starter = Starter { program: env!("CARGO_BIN_EXE_mini_server").into(), options };
    let single = starter.start("single", "single", "own").await.unwrap();
    let mut split = starter.start_split(2, 2).await.unwrap();
    let soak = Arc::new(Soak {
        client: reqwest::Client::builder().no_proxy().build().unwrap(),
        router: split.router.address,
        single: single.address,
        turns: AtomicUsize::new(0),
        done: AtomicUsize::new(0),
        answered: AtomicUsize::new(0),
        aborted: AtomicUsize::new(0),
        asked_again: AtomicUsize::new(0),
        longest: AtomicU64::new(0),
    });
    // Clients go away sooner, because this model answers sooner.
    let mut requests = Requests::new(7).map(|request| {
        let aborts_after = request.aborts_after.map(|after| after / 8);
        Request { aborts_after, ..request }
    });
    soak.run(requests.by_ref().take(4 * CLIENTS).collect(), &mut split, None).await;
    let resources = |split: &Split| -> BTreeMap<String, [usize; 2]> {
        split
            .all()
            .chain([&single])
            .map(|server| (server.name.clone(), server.resources().unwrap()))
            .collect()
    };
    let before = resources(&split);
    let began = Instant::now();
    soak.run(requests.by_ref().take(count).collect(), &mut split, Some(kill_every)).await;
    let [answered, aborted, again] =
        [&soak.answered, &soak.aborted, &soak.asked_again].map(|count| count.load(Ordering::SeqCst));
    println!(
        "{answered} answered, {aborted} aborted, {again} asked again of a new router; {:.0} s, the longest {:.1} s",
        began.elapsed().as_secs_f64(),
        soak.longest.load(Ordering::SeqCst) as f64 / 1e3
    );
    for server in split.servers.iter().chain([&single]) {
        soak.is_idle(server).await;
    }
    let within = |now: &BTreeMap<String, [usize; 2]>| {
        now.iter().all(|(name, [threads, descriptors])| {
            let [threads_before, descriptors_before] = before[name];
            *threads <= threads_before + THREADS_MORE && *descriptors <= descriptors_before + DESCRIPTORS_MORE
        })
    };
    let began = Instant::now();
    loop {
        let now = resources(&split);
        if within(&now) {
            println!("threads and descriptors before: {before:?}, after: {now:?}");
            break;
        }
        assert!(began.elapsed() < IDLE_WITHIN, "threads or descriptors before: {before:?}, after: {now:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    std::fs::remove_file(model).unwrap();
}
