//! A demo: prefills, decodes and a router under a random load, of which each role is killed once, and the same load on
//! one process. Every answer is compared, and a page shows what happened.

mod lives;
mod page;
mod targets;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::sleep_until;

use crate::load::{self, End, Outcome, Request};
use crate::observe::Figures;
use crate::process::{Split, Starter};
use crate::serve::seconds;
use lives::Lives;
use targets::Targets;

/// Prefills of the demo.
const PREFILLS: usize = 2;
/// Decodes of the demo.
const DECODES: usize = 2;
/// Time before a server that was killed is started again.
const AWAY: Duration = Duration::from_millis(500);
/// Time for which a failed request keeps its place among those under way.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Seconds within which clients hear that the router is gone.
const HEARD_WITHIN: f64 = 1.0;

/// Options of the demo.
#[derive(Debug, Args)]
pub struct Options {
    /// Seconds of load, half of them on one process and half on the split servers.
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// Requests a second.
    #[arg(long, default_value_t = 8.0)]
    rate: f64,
    /// Requests under way at once, at most; one that comes meanwhile waits for its place.
    #[arg(long, default_value_t = 256)]
    at_once: usize,
    /// The seed of the load.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The page to write.
    #[arg(long, default_value = "demo.html")]
    page: PathBuf,
    /// The RDMA device of prefills and decodes [default: the software device].
    #[arg(long)]
    device: Option<String>,
    /// A file that names the servers to a Prometheus, for its file_sd_configs, while they are there [default: none].
    #[arg(long)]
    targets: Option<PathBuf>,
    /// Seconds for which the servers are there without a request, so that a Prometheus reads their last figures: more
    /// than its scrape_interval [default: none].
    #[arg(long, value_parser = seconds)]
    linger: Option<Duration>,
    /// The shape of the model, a config.json [default: a model of 4 layers].
    #[arg(long)]
    model: Option<PathBuf>,
    /// Whole answers that must have been compared, or the demo fails.
    #[arg(long, default_value_t = 1)]
    answers: usize,
}

impl Options {
    /// How long requests come, on the servers and on one process each.
    fn lasts(&self) -> Duration {
        Duration::from_secs_f64(self.seconds / 2.0)
    }
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
/// A server does not start, an answer is another one than that of one process, fewer than `--answers` were
/// compared, or a request that no kill explains failed.
pub async fn run(options: &Options) -> Result<()> {
    ensure!(
        options.seconds >= 2.0 && options.rate > 0.0 && options.at_once > 0,
        "a demo takes 2 seconds or more, a rate above 0, and a request at once"
    );
    let lasts = options.lasts();
    let requests = load::requests(options.seed, options.rate, lasts);
    let starter = starter(options)?;
    let mut servers = starter.start_split(PREFILLS, DECODES).await?;
    let one = starter.start("single", "single", "own").await?;
    let _targets = match &options.targets {
        Some(path) => Some(Targets::write(path, servers.all().chain([&one]))?),
        None => None,
    };
    println!("{} requests in {:.0} s, on one process", requests.len(), lasts.as_secs_f64());
    let single = all(one.address, &requests, options.at_once, Instant::now()).await;
    println!("the same requests on {PREFILLS} prefills, {DECODES} decodes and a router");
    let mut lives = Lives::new()?;
    let (split, marks, bytes) = on_split_servers(options, &mut servers, &requests, &mut lives).await?;
    let equal = compared(&split, &single)?;
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
    lives.end_quiet(servers.all().chain([&one]), options.linger.unwrap_or_default()).await?;
    print!("{lives}");
    explained(&record)?;
    ensure!(
        equal >= options.answers,
        "{equal} whole answers were compared, fewer than {}: give the demo more --seconds, or a higher --rate",
        options.answers
    );
    Ok(())
}

/// Whether two answers to a request are one: as long, or as far as the shorter goes where one of them is not whole.
fn agree(one: &Outcome, other: &Outcome) -> bool {
    let (short, long) = if one.tokens.len() < other.tokens.len() { (one, other) } else { (other, one) };
    let as_long = short.tokens.len() == long.tokens.len();
    long.tokens.starts_with(&short.tokens) && (as_long || short.end != End::Answered)
}

/// The number of whole answers that both have, which are equal.
fn compared(split: &[Outcome], single: &[Outcome]) -> Result<usize> {
    let mut equal = 0;
    for (number, (one, other)) in split.iter().zip(single).enumerate() {
        ensure!(agree(one, other), "request {number} has another answer than alone");
        equal += usize::from(one.end == End::Answered && other.end == End::Answered);
    }
    Ok(equal)
}

/// Fails if a request has failed while the router was there: the requests of the others are those of their successors.
fn explained(record: &Record) -> Result<()> {
    let moments = record.marks.iter().filter(|mark| mark.what.starts_with("router")).map(|mark| mark.at);
    // The router is killed at the first of these, and there again before the last.
    let mut moments = moments.collect::<Vec<_>>().into_iter();
    let (killed, back) = (moments.next().unwrap_or(0.0), moments.next_back().unwrap_or(0.0));
    let away = killed..=back + HEARD_WITHIN;
    let split = record.split.iter().filter(|outcome| !away.contains(&outcome.ended));
    match split.chain(&record.single).find(|outcome| matches!(outcome.end, End::Failed(_))) {
        Some(Outcome { at, ended, end, .. }) => {
            anyhow::bail!("a request of second {at:.1} failed at {ended:.1} without a cause: {end:?}")
        }
        None => Ok(()),
    }
}

/// The servers are this program, with the device and the model that were asked for.
fn starter(options: &Options) -> Result<Starter> {
    let device = options.device.iter().flat_map(|device| ["--device".into(), device.into()]);
    let model = options.model.iter().flat_map(|model| ["--model".into(), model.into()]);
    Ok(Starter { program: std::env::current_exe()?, options: device.chain(model).collect() })
}

/// The load on prefills, decodes and a router, of which each is killed once and started again.
async fn on_split_servers(
    options: &Options,
    split: &mut Split,
    requests: &[Request],
    lives: &mut Lives,
) -> Result<(Vec<Outcome>, Vec<Mark>, Vec<Sample>)> {
    let lasts = options.lasts();
    let began = Instant::now();
    let load = tokio::spawn(all(split.router.address, requests, options.at_once, began));
    let decodes: Vec<_> = split.of("decode").map(|server| server.address).collect();
    let sampled = tokio::spawn(sample(decodes, began, lasts));
    let mut marks = Vec::new();
    let mark = |what: String, marks: &mut Vec<Mark>| {
        println!("{:6.1} s  {what}", began.elapsed().as_secs_f64());
        marks.push(Mark { at: began.elapsed().as_secs_f64(), what });
    };
    // The first prefill, the first decode, and the router.
    for (share, victim) in [(0.2, 0), (0.45, 2), (0.7, 4)] {
        sleep_until((began + lasts.mul_f64(share)).into()).await;
        let server = split.get_mut(victim);
        mark(format!("{} is killed", server.name), &mut marks);
        lives.end(server, ", up to its kill").await?;
        server.kill().await?;
        tokio::time::sleep(AWAY).await;
        server.start_again().await?;
        server.answers(DECODES).await?;
        mark(format!("{} is connected again", server.name), &mut marks);
    }
    let outcomes = load.await?;
    Ok((outcomes, marks, sampled.await?))
}

/// Sends all requests, so many at once at most, and waits for their ends.
fn all(
    address: std::net::SocketAddr,
    requests: &[Request],
    at_once: usize,
    began: Instant,
) -> impl Future<Output = Vec<Outcome>> + Send + use<> {
    let client = reqwest::Client::builder().no_proxy().build().unwrap_or_default();
    let places = Arc::new(Semaphore::new(at_once.min(Semaphore::MAX_PERMITS)));
    let sent = requests.iter().map(|request| {
        let (client, request, places) = (client.clone(), request.clone(), Arc::clone(&places));
        tokio::spawn(async move {
            sleep_until((began + request.at).into()).await;
            let _place = places.acquire().await;
            let outcome = load::send(client, address, request, began).await;
            // A server that is away fails at once: those that wait for a place would all fail meanwhile.
            if matches!(outcome.end, End::Failed(_)) {
                tokio::time::sleep(AFTER_FAILURE).await;
            }
            outcome
        })
    });
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
            links.extend(Figures::ask(&client, *decode).await.unwrap_or_default().links);
        }
        samples.push(Sample { at: began.elapsed().as_secs_f64(), links });
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_that_is_not_whole_may_be_shorter() {
        let outcome = |tokens: &[u32], end| Outcome {
            at: 0.0,
            ended: 1.0,
            first: None,
            between: Vec::new(),
            tokens: tokens.to_vec(),
            end,
        };
        let whole = outcome(&[1, 2, 3], End::Answered);
        assert!(agree(&whole, &whole) && agree(&outcome(&[1, 2], End::Aborted), &whole));
        for wrong in [outcome(&[1, 2], End::Answered), outcome(&[1, 9], End::Aborted)] {
            assert!(!agree(&wrong, &whole) && !agree(&whole, &wrong));
        }
    }

    #[test]
    fn failures_are_explained_by_the_router_alone() {
        let mark = |at, what: &str| Mark { at, what: what.to_owned() };
        let marks =
            vec![mark(2.0, "decode-0 is killed"), mark(5.0, "router is killed"), mark(6.0, "router is back")];
        let ended = |ended, end| {
            let outcome =
                Outcome { at: 0.0, ended, first: None, between: Vec::new(), tokens: Vec::new(), end };
            let (split, marks) = (vec![outcome], marks.clone());
            explained(&Record { seconds: 9.0, split, single: Vec::new(), marks, bytes: Vec::new(), equal: 0 })
        };
        let failed = || End::Failed("broken off".to_owned());
        assert!(ended(5.1, failed()).is_ok() && ended(2.1, End::Aborted).is_ok());
        assert!(ended(2.1, failed()).is_err() && ended(8.0, failed()).is_err());
    }
}
