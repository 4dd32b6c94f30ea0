//! A demo: prefills, decodes and a router under a random load, of which each role is killed once, and the same load on
//! one process. Every answer is compared, and a page shows what happened.

mod load;
mod page;
mod process;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;
use tokio::time::sleep_until;

use load::{End, Outcome, Request};
use process::Process;

/// Options of the demo.
#[derive(Debug, Args)]
pub struct Options {
    /// Seconds of load, half of them on the split servers and half on one process.
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// Requests a second.
    #[arg(long, default_value_t = 8.0)]
    rate: f64,
    /// The seed of the load.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The page to write.
    #[arg(long, default_value = "demo.html")]
    page: PathBuf,
    /// The RDMA device of prefills and decodes [default: the software device].
    #[arg(long)]
    device: Option<String>,
}

/// Something that happened to a server.
#[derive(Debug, Clone, Serialize)]
struct Mark {
    at: f64,
    what: String,
}

/// All that the page shows.
#[derive(Debug, Serialize)]
struct Record {
    seconds: f64,
    split: Vec<Outcome>,
    single: Vec<Outcome>,
    marks: Vec<Mark>,
    /// Bytes that each link has moved, at moments.
    bytes: Vec<Sample>,
    equal: usize,
}

/// Bytes that each link has moved up to a moment.
#[derive(Debug, Clone, Serialize)]
struct Sample {
    at: f64,
    links: Vec<(String, u64)>,
}

/// Runs the demo.
///
/// # Errors
///
/// A server does not start, an answer is another one than that of one process, or a request that no kill explains
/// failed.
pub async fn run(options: &Options) -> Result<()> {
    ensure!(
        options.seconds >= 2.0 && options.rate > 0.0,
        "a demo takes 2 seconds or more, and a rate above 0"
    );
    let lasts = Duration::from_secs_f64(options.seconds / 2.0);
    let requests = load::requests(options.seed, options.rate, lasts);
    println!(
        "{} requests in {:.0} s, on 2 prefills, 2 decodes and a router",
        requests.len(),
        lasts.as_secs_f64()
    );
    let (split, marks, bytes) = on_split_servers(options, &requests, lasts).await?;
    println!("the same requests on one process");
    let single = Process::start("single", "single", "own", None).await?;
    let single = all(single.address, &requests, Instant::now()).await;
    let mut equal = 0;
    for (number, (one, other)) in split.iter().zip(&single).enumerate() {
        let common = one.tokens.len().min(other.tokens.len());
        ensure!(
            one.tokens[..common] == other.tokens[..common],
            "request {number} has another answer than alone"
        );
        equal += usize::from(one.end == End::Answered && other.end == End::Answered);
    }
    let count = |outcomes: &[Outcome], of: fn(&End) -> bool| {
        outcomes.iter().filter(|outcome| of(&outcome.end)).count()
    };
    for (name, outcomes) in [("split", &split), ("single", &single)] {
        println!(
            "{name}: {} answered, {} aborted by their clients, {} failed",
            count(outcomes, |end| *end == End::Answered),
            count(outcomes, |end| *end == End::Aborted),
            count(outcomes, |end| matches!(end, End::Failed(_))),
        );
    }
    println!("{equal} whole answers compared, all equal");
    let record = Record { seconds: lasts.as_secs_f64(), split, single, marks, bytes, equal };
    std::fs::write(&options.page, page::write(&record)?)
        .with_context(|| format!("cannot write {}", options.page.display()))?;
    println!("{}", options.page.display());
    let unexplained = |outcome: &&Outcome| {
        let near = |mark: &Mark| {
            (mark.at - 30.0..mark.at + 3.0).contains(&outcome.at) && mark.what.contains("router")
        };
        matches!(outcome.end, End::Failed(_)) && !record.marks.iter().any(near)
    };
    match record.split.iter().find(unexplained) {
        Some(Outcome { at, end, .. }) => {
            anyhow::bail!("a request of second {at:.1} failed without a cause: {end:?}")
        }
        None => Ok(()),
    }
}

/// The load on prefills, decodes and a router, of which each is killed once and started again.
async fn on_split_servers(
    options: &Options,
    requests: &[Request],
    lasts: Duration,
) -> Result<(Vec<Outcome>, Vec<Mark>, Vec<Sample>)> {
    let device = options.device.as_deref();
    let mut router = Process::start("router", "router", "own", None).await?;
    let directory = format!("http:{}", router.address);
    let mut servers = Vec::new();
    for (role, number) in [("prefill", 0), ("prefill", 1), ("decode", 0), ("decode", 1)] {
        servers.push(Process::start(role, &format!("{role}-{number}"), &directory, device).await?);
    }
    router.answers().await?;
    let began = Instant::now();
    let load = tokio::spawn(all(router.address, &requests.to_vec(), began));
    let decodes: Vec<_> =
        servers.iter().filter(|server| server.role == "decode").map(|server| server.address).collect();
    let sampled = tokio::spawn(sample(decodes, began, lasts));
    let mut marks = Vec::new();
    let mark = |what: String, marks: &mut Vec<Mark>| {
        println!("{:6.1} s  {what}", began.elapsed().as_secs_f64());
        marks.push(Mark { at: began.elapsed().as_secs_f64(), what });
    };
    for (share, victim) in [(0.2, Some(0)), (0.45, Some(2)), (0.7, None)] {
        sleep_until((began + lasts.mul_f64(share)).into()).await;
        let server = victim.and_then(|victim| servers.get_mut(victim)).unwrap_or(&mut router);
        mark(format!("{} is killed", server.name), &mut marks);
        server.kill().await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        server.start_again().await?;
        mark(format!("{} is started again", server.name), &mut marks);
    }
    let outcomes = load.await?;
    Ok((outcomes, marks, sampled.await?))
}

/// Sends all requests, and waits for their ends.
fn all(
    address: std::net::SocketAddr,
    requests: &[Request],
    began: Instant,
) -> impl Future<Output = Vec<Outcome>> + Send + use<> {
    let client = reqwest::Client::builder().no_proxy().build().unwrap_or_default();
    let sent = requests
        .iter()
        .map(|request| tokio::spawn(load::send(client.clone(), address, request.clone(), began)));
    let sent: Vec<_> = sent.collect();
    async move {
        let mut outcomes = Vec::with_capacity(sent.len());
        for sent in sent {
            outcomes.extend(sent.await);
        }
        outcomes
    }
}

/// Asks decodes for the bytes that each link has moved, twice a second.
async fn sample(decodes: Vec<std::net::SocketAddr>, began: Instant, lasts: Duration) -> Vec<Sample> {
    let client =
        reqwest::Client::builder().no_proxy().timeout(Duration::from_millis(400)).build().unwrap_or_default();
    let mut samples = Vec::new();
    while began.elapsed() < lasts {
        let mut links = Vec::new();
        for decode in &decodes {
            if let Ok(answer) = client.get(format!("http://{decode}/stats")).send().await {
                let stats: serde_json::Value = answer.json().await.unwrap_or_default();
                links.extend(
                    serde_json::from_value::<Vec<(String, u64)>>(stats["links"].clone()).unwrap_or_default(),
                );
            }
        }
        samples.push(Sample { at: began.elapsed().as_secs_f64(), links });
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    samples
}
