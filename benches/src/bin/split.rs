//! A prefill and a decode beside one process: time to the first token, and the part of it that is the transfer; and the
//! time until the requests of a killed decode go on.
//!
//! `cargo run --release -p benches --bin split`, when `cargo build --release -p servers` has built `mini_server`.
//! Exit status 1 when a row is not within its bound.

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use benches::ratio::{Bound, Row, median};
use benches::report::{Report, SaveArgs};
use benches::servers::{Answer, Server, ask, prompt, watch};
use benches::soft::Outcome;
use clap::Parser;

/// Tokens of the prompt whose first token is waited for.
const PROMPT_TOKENS: usize = 1024;
/// Requests that run when a decode is killed, half of them on that one.
const REQUESTS: usize = 8;
/// Tokens of each of their prompts and answers.
const KILLED_TOKENS: [usize; 2] = [64, 240];
/// Tokens that each of these answers has before the kill.
const TOKENS_BEFORE: usize = 8;
/// Time in which a router hears of a decode that was started again: it looks twice a second.
const HEARD_OF: Duration = Duration::from_millis(1500);

/// Times `mini_server`.
#[derive(Parser)]
struct Args {
    /// Pairs of each row.
    #[arg(long, default_value_t = 25)]
    pairs: usize,
    /// Decodes that are killed, one after the other.
    #[arg(long, default_value_t = 10)]
    kills: usize,
    #[command(flatten)]
    save: SaveArgs,
}

fn main() -> ExitCode {
    benches::main("split", run)
}

fn run(args: &Args) -> Outcome<bool> {
    let mut report = Report::default();
    let first = first_token(&mut report, args.pairs)?;
    let killed = killed_decode(&mut report, args.kills)?;
    report.save(&args.save, "split")?;
    Ok(first && killed)
}

/// A job of a router, a prefill and so many decodes, which know each other.
fn job(decodes: usize) -> Outcome<(Server, Server, Vec<Server>)> {
    let router = Server::start("router", "router", "own")?;
    let directory = format!("http:{}", router.address);
    let prefill = Server::start("prefill", "prefill-0", &directory)?;
    let decode = |number| Server::start("decode", &format!("decode-{number}"), &directory);
    let decodes = (0..decodes).map(decode).collect::<Outcome<Vec<_>>>()?;
    decodes.iter().chain([&router]).try_for_each(Server::answers)?;
    Ok((router, prefill, decodes))
}

/// The time to the first token, with an idle machine and a prompt of which no server has a part.
fn first_token(report: &mut Report, pairs: usize) -> Outcome<bool> {
    let (router, _prefill, decodes) = job(1)?;
    let decode = &decodes[0];
    let single = Server::start("single", "single", "own")?;
    single.answers()?;
    let mut seed = 0;
    let mut first = |server: &Server| {
        seed += 1;
        let (_, moments) = ask(server.address, &prompt(seed, PROMPT_TOKENS), 2)?;
        Outcome::Ok((moments[1] - moments[0]).as_secs_f64())
    };
    for server in [decode, &router, &single] {
        first(server)?;
    }
    let (mut shares, mut ours) = (Vec::new(), Vec::new());
    let mut all_hold = true;
    for (name, server) in [("a prefill and a decode", decode), ("a router, a prefill and a decode", &router)]
    {
        let name =
            format!("time to first token, prompt of {PROMPT_TOKENS} tokens: {name} beside one process");
        let row = Row::of_pairs(&name, "ms", Bound::AtMost(1.15), pairs, || {
            // The other side begins every other pair.
            let swapped = shares.len() % 2 == 1;
            let alone = if swapped { Some(first(&single)?) } else { None };
            let split = first(server)?;
            let last = &decode.stats()?["last"];
            let seconds = |of: &str| last[of].as_f64().ok_or(format!("no {of}"));
            let transfer = seconds("grant")? + seconds("tail")?;
            shares.push(100.0 * transfer / split);
            ours.push(1e3 * transfer);
            let alone = alone.map_or_else(|| first(&single), Ok)?;
            Outcome::Ok((1e3 * split, 1e3 * alone))
        })?;
        all_hold &= report.row(&row);
    }
    let what =
        "time to first token: share that is our transfer alone, the grant and all behind the last layer";
    all_hold &= report.single(what, "%", median(shares), Bound::AtMost(3.0));
    report.single("time to first token: our transfer alone", "ms", median(ours), Bound::Told);
    Ok(all_hold)
}

/// The pauses of requests whose decode is killed.
fn killed_decode(report: &mut Report, kills: usize) -> Outcome<bool> {
    let (router, _prefill, mut decodes) = job(2)?;
    let single = Server::start("single", "single", "own")?;
    single.answers()?;
    let [prompt_tokens, count] = KILLED_TOKENS;
    let (mut longest, mut wrong, mut seeds) = (Vec::new(), 0, 0_u32..);
    for kill in 0..kills {
        let prompts: Vec<_> = seeds.by_ref().take(REQUESTS).map(|seed| prompt(seed, prompt_tokens)).collect();
        let alone = prompts.iter().map(|prompt| Ok(ask(single.address, prompt, count)?.0));
        let alone = alone.collect::<Outcome<Vec<_>>>()?;
        let begun = AtomicUsize::new(0);
        let (killed, answers) = std::thread::scope(|scope| {
            let asked: Vec<_> = prompts
                .iter()
                .map(|prompt| {
                    let came =
                        |tokens| _ = begun.fetch_add(usize::from(tokens == TOKENS_BEFORE), Ordering::Relaxed);
                    scope.spawn(move || watch(router.address, prompt, count, came))
                })
                .collect();
            while begun.load(Ordering::Relaxed) < prompts.len()
                && !asked.iter().all(|asked| asked.is_finished())
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            let at = kill % decodes.len();
            let killed = decodes[at].kill()?;
            let ended = |asked: std::thread::ScopedJoinHandle<'_, Outcome<Answer>>| {
                asked.join().map_err(|_| "a panic")?
            };
            let answers = asked.into_iter().map(ended).collect::<Outcome<Vec<Answer>>>()?;
            decodes[at].start_again()?;
            decodes[at].answers()?;
            Outcome::Ok((killed, answers))
        })?;
        // All pauses behind the kill, because a token may have been on its way.
        let pauses = answers.iter().flat_map(|(_, moments)| moments.windows(2));
        let pauses = pauses.map(|pair| pair[1].saturating_duration_since(pair[0].max(killed)).as_secs_f64());
        longest.push(pauses.fold(0.0, f64::max));
        wrong += answers.iter().zip(&alone).filter(|((tokens, _), alone)| tokens != *alone).count();
        std::thread::sleep(HEARD_OF);
    }
    let worst = longest.iter().copied().fold(0.0, f64::max);
    let what = format!(
        "decode killed under {REQUESTS} requests, {kills} times: the longest pause of an answer behind the kill"
    );
    let in_time = report.single(&what, "s", worst, Bound::AtMost(2.0));
    report.single(
        "decode killed: the median of the kills' longest pauses",
        "s",
        median(longest),
        Bound::Told,
    );
    let what = "decode killed: answers of another length or with other tokens than alone";
    Ok(report.single(what, "", wrong as f64, Bound::AtMost(0.0)) && in_time)
}
