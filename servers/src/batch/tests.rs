//! Texts in a batch get the answers that each gets alone.

use axum::http::HeaderMap;
use rdma_collective::engine::{Engine, EngineOptions};
use rdma_collective::kv::PoolUse;
use rdma_core::{Device, SoftOptions};
use tokio::sync::mpsc::UnboundedReceiver;

use super::*;
use crate::api::Prompt;
use crate::cache::Blocks;
use crate::directory::Role;
use crate::model::{Config, Sampling, Token, encode};
use crate::observe::{Stats, Turn};

struct Server {
    batch: Batch,
    blocks: Blocks,
}

fn server(blocks: u32) -> Server {
    let (model, memory, blocks) = parts(blocks);
    Server { batch: Batch::start(model, memory).unwrap(), blocks }
}

fn parts(blocks: u32) -> (Arc<Llama>, Memory, Blocks) {
    let config =
        Config { num_hidden_layers: 2, hidden_size: 64, intermediate_size: 160, ..Config::default() };
    let device = Device::soft(SoftOptions::default()).open().unwrap();
    let engine = Engine::new(&device, EngineOptions::default()).unwrap();
    let memory = Memory::new(&engine, &config, blocks, PoolUse::Source).unwrap();
    let blocks = Blocks::of(memory.pool(), 2 * RUNNING_MAX);
    (Arc::new(Llama::new(config).unwrap()), memory, blocks)
}

async fn job(
    blocks: &Blocks,
    prompt: &str,
    sampling: Sampling,
    tokens: usize,
    room: usize,
) -> (Job, UnboundedReceiver<Event>) {
    let text = encode(prompt.as_bytes());
    let blocks = blocks.take(&text, text.len() + room).await.unwrap();
    let (id, tokens_max, ignores_end, headers) = (String::new(), tokens, false, HeaderMap::new());
    let prompt = Prompt { id, text, sampling, tokens_max, ignores_end, headers };
    Job::new(prompt, blocks, Turn::waits(&Stats::new(Role::Single, "single")))
}

impl Server {
    async fn begin(&self, prompt: &str, sampling: Sampling, tokens: usize) -> UnboundedReceiver<Event> {
        self.begin_in(prompt, sampling, tokens, tokens).await
    }

    /// Begins a text whose blocks have room for so many tokens of its answer.
    async fn begin_in(
        &self,
        prompt: &str,
        sampling: Sampling,
        tokens: usize,
        room: usize,
    ) -> UnboundedReceiver<Event> {
        let (job, heard) = job(&self.blocks, prompt, sampling, tokens, room).await;
        self.batch.add(job).await.unwrap();
        heard
    }
}

async fn answer(mut events: UnboundedReceiver<Event>) -> (Vec<Token>, Finish) {
    let mut tokens = Vec::new();
    loop {
        match events.recv().await.expect("an end") {
            Event::Token(token) => tokens.push(token),
            Event::Ended(finish) => return (tokens, finish),
            event => panic!("{event:?}"),
        }
    }
}

fn prompts() -> Vec<(String, Sampling)> {
    let sampling = |seed| Sampling { temperature: if seed % 2 == 0 { 0.0 } else { 0.9 }, top_p: 0.95, seed };
    (0..12)
        .map(|seed| (format!("{} and {seed}", "the same beginning ".repeat(seed as usize)), sampling(seed)))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_get_the_answers_that_they_get_alone() {
    let mut alone = Vec::new();
    for (prompt, sampling) in prompts() {
        // A server of its own, so that nothing is kept of the others.
        let server = server(32);
        alone.push(answer(server.begin(&prompt, sampling, 20).await).await);
    }
    assert!(alone.iter().any(|(tokens, _)| tokens.len() == 20));
    let server = server(96);
    for _ in 0..2 {
        let mut events = Vec::new();
        for (prompt, sampling) in prompts() {
            events.push(server.begin(&prompt, sampling, 20).await);
        }
        for (events, alone) in events.into_iter().zip(&alone) {
            assert_eq!(answer(events).await, *alone);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_that_nobody_hears_of_give_their_blocks_back() {
    let server = server(16);
    for _ in 0..20 {
        let mut events = server.begin("a prompt of some length", Sampling::default(), 200).await;
        assert!(matches!(events.recv().await, Some(Event::Token(_))));
    }
    let Server { batch, blocks } = server;
    drop(batch);
    assert_eq!(blocks.counts().idle, 16);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_cannot_be_computed_costs_the_others_nothing() {
    let (prompt, sampling) = ("a prompt of some length", Sampling::default());
    let alone = answer(server(32).begin(prompt, sampling, 60).await).await;
    let server = server(32);
    let long = server.begin(prompt, sampling, 60).await;
    // The blocks of this one end before its answer.
    let mut short = server.begin_in("another prompt", sampling, 60, 1).await;
    assert_eq!(answer(long).await, alone);
    while let Some(event) = short.recv().await {
        if let Event::Failed(error) = event {
            assert!(error.contains("beyond the blocks"), "{error}");
            return;
        }
    }
    panic!("the answer had room");
}

#[test]
fn a_text_that_waits_and_that_nobody_hears_of_gives_its_blocks_back_while_others_run() {
    let (model, memory, blocks) = parts(2 * RUNNING_MAX as u32);
    let (jobs, arrivals) = channel(2 * RUNNING_MAX);
    let mut running = Running::new(model, memory, arrivals, Computed::default());
    let mut all = Vec::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    for _ in 0..=RUNNING_MAX {
        let (job, heard) = runtime.block_on(job(&blocks, "a", Sampling::default(), 1, 1));
        jobs.try_send(job).unwrap();
        all.push(heard);
    }
    assert!(running.take_new());
    assert_eq!(
        (running.jobs.len(), running.waiting.len(), blocks.counts().texts),
        (RUNNING_MAX, 1, RUNNING_MAX + 1)
    );
    all.pop();
    assert!(running.take_new());
    assert_eq!(
        (running.jobs.len(), running.waiting.len(), blocks.counts().texts),
        (RUNNING_MAX, 0, RUNNING_MAX)
    );
}
