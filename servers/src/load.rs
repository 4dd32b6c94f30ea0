//! The load of a demo: requests that come at random moments, the same ones each time, and what became of them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde::Serialize;
use serde_json::{Value, json};

/// The longest time between two pieces of an answer.
const SILENCE: Duration = Duration::from_secs(60);
/// Beginnings that several prompts share, as system prompts are.
const BEGINNINGS: [&str; 3] = [
    "You are a helpful assistant. Answer in one sentence, and say so when you do not know. ",
    "You translate from one language into another, word by word, and explain nothing. ",
    "",
];
const WORDS: [&str; 8] = ["the ", "memory ", "of ", "a ", "queue ", "pair ", "is ", "registered. "];

/// A request of the load.
#[derive(Debug, Clone)]
pub struct Request {
    /// The moment at which it comes, from the begin of the load.
    pub at: Duration,
    /// The body.
    pub body: Value,
    /// The time after which its client goes away.
    pub aborts_after: Option<Duration>,
}

/// The outcome of a request.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Seconds from the begin of the load at which it came.
    pub at: f64,
    /// Seconds from the begin of the load at which it ended.
    pub ended: f64,
    /// Seconds to its first token.
    pub first: Option<f64>,
    /// Seconds between its tokens.
    pub between: Vec<f64>,
    /// The tokens of the answer.
    #[serde(skip)]
    pub tokens: Vec<u32>,
    /// The way in which it ended.
    pub end: End,
}

/// The way in which a request ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The answer came whole.
    Answered,
    /// The client went away.
    Aborted,
    /// The answer was an error.
    Failed(String),
}

/// Requests of mixed lengths without an end, the same ones for a seed. A fifth of the clients goes away.
#[derive(Debug)]
pub struct Requests(ChaCha8Rng);

impl Requests {
    /// The requests of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// A number from 0 to 1.
    fn uniform(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn pick(&mut self, most: usize) -> usize {
        (self.uniform() * most as f64) as usize
    }
}

impl Iterator for Requests {
    type Item = Request;

    /// The next one, which comes at once.
    fn next(&mut self) -> Option<Request> {
        let words = 4 + self.pick(60);
        let text: String = (0..words).filter_map(|_| WORDS.get(self.pick(WORDS.len()))).copied().collect();
        let beginning = BEGINNINGS.get(self.pick(BEGINNINGS.len())).copied().unwrap_or_default();
        let (tokens, seed, greedy) = (8 + self.pick(40), self.pick(1 << 30), self.pick(2) == 0);
        let body = json!({
            "prompt": format!("{beginning}{text}"), "max_tokens": tokens, "seed": seed,
            "temperature": if greedy { 0.0 } else { 0.9 }, "ignore_eos": true, "return_token_ids": true, "stream": true,
        });
        let aborts_after = (self.pick(5) == 0).then(|| Duration::from_secs_f64(self.uniform() * 0.3));
        Some(Request { at: Duration::ZERO, body, aborts_after })
    }
}

/// Requests that come at random, so many a second on average.
#[must_use]
pub fn requests(seed: u64, rate: f64, lasts: Duration) -> Vec<Request> {
    let (mut all, mut at, mut requests) = (Requests::new(seed), 0.0, Vec::new());
    loop {
        // The time between two of a Poisson process.
        at += -(1.0 - all.uniform()).ln() / rate;
        let next = all.next().filter(|_| at < lasts.as_secs_f64());
        let Some(request) = next else { return requests };
        requests.push(Request { at: Duration::from_secs_f64(at), ..request });
    }
}

/// Sends a request at its moment, and hears its answer.
pub async fn send(client: reqwest::Client, address: SocketAddr, request: Request, began: Instant) -> Outcome {
    tokio::time::sleep_until((began + request.at).into()).await;
    let at = request.at.as_secs_f64();
    let (between, tokens, end) = (Vec::new(), Vec::new(), End::Answered);
    let mut outcome = Outcome { at, ended: at, first: None, between, tokens, end };
    let sent = Instant::now();
    let heard = hear(&client, address, &request.body, sent, &mut outcome);
    let ended = match request.aborts_after {
        None => Some(heard.await),
        Some(after) => tokio::time::timeout(after, heard).await.ok(),
    };
    outcome.end = match ended {
        None => End::Aborted,
        Some(Ok(())) => End::Answered,
        Some(Err(error)) => End::Failed(format!("{error:#}")),
    };
    outcome.ended = began.elapsed().as_secs_f64();
    outcome
}

async fn hear(
    client: &reqwest::Client,
    address: SocketAddr,
    body: &Value,
    sent: Instant,
    outcome: &mut Outcome,
) -> anyhow::Result<()> {
    let url = format!("http://{address}/v1/completions");
    let mut answer = client.post(url).json(body).send().await?;
    if !answer.status().is_success() {
        anyhow::bail!("{}: {}", answer.status(), answer.text().await?);
    }
    let (mut bytes, mut last) = (Vec::new(), sent);
    loop {
        let chunk = tokio::time::timeout(SILENCE, answer.chunk()).await;
        let chunk = chunk.map_err(|_| anyhow::anyhow!("no token for {} s", SILENCE.as_secs()))??;
        let Some(chunk) = chunk else { anyhow::bail!("the answer has broken off") };
        bytes.extend_from_slice(&chunk);
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = bytes.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let Some(data) = line.trim().strip_prefix("data: ") else { continue };
            if data == "[DONE]" {
                return Ok(());
            }
            let piece: Value = serde_json::from_str(data)?;
            if let Some(error) = piece.get("error") {
                anyhow::bail!("{}", error["message"].as_str().unwrap_or("an error without words"));
            }
            for token in piece["choices"][0]["token_ids"].as_array().into_iter().flatten() {
                let now = Instant::now();
                let passed = now.duration_since(last).as_secs_f64();
                if outcome.first.is_none() {
                    outcome.first = Some(passed)
                } else {
                    outcome.between.push(passed)
                }
                last = now;
                outcome.tokens.extend(token.as_u64().map(|token| token as u32));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_the_same_each_time_and_has_the_rate_that_was_asked_for() {
        let load = |seed| requests(seed, 20.0, Duration::from_secs(100));
        let (one, other) = (load(1), load(1));
        assert!(one.iter().zip(&other).all(|(one, other)| one.at == other.at && one.body == other.body));
        assert!((1700..2300).contains(&one.len()), "{}", one.len());
        let aborts = one.iter().filter(|request| request.aborts_after.is_some()).count();
        assert!((300..500).contains(&aborts), "{aborts}");
        assert_ne!(load(2).first().map(|request| request.at), one.first().map(|request| request.at));
    }
}
