//! Decode: has prompts computed by a prefill, and goes on with them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures_util::FutureExt;
use futures_util::future::join_all;
use rdma_collective::kv::{Blocks as KvBlocks, KvNode};
use rdma_core::Deadline;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;
use tracing::{Instrument, Span, field::Empty};

use super::Model;
use super::prefill::{First, Prefilled, ToCompute};
use crate::api::{Backend, Prompt, Refused};
use crate::batch::{Event, Job};
use crate::cache::{Taken, WAITS};
use crate::client::{SHORT, SILENCE, client, read_json};
use crate::directory::{Entry, Role};
use crate::generate;
use crate::members::Members;
use crate::model::{BLOCK_TOKENS, Config, Token};
use crate::observe::{Came, Stats, Turn};
use crate::trace;

/// Time in which a prompt is computed and its blocks are here.
pub const PREFILL_WITHIN: Duration = Duration::from_secs(30);
/// Time in which blocks come back from a prefill that has failed.
const REVOKE_WITHIN: Duration = Duration::from_secs(10);
// The wait inside ends first, because its error names the cause.
const _: () = {
    assert!(WAITS.as_secs() < PREFILL_WITHIN.as_secs());
    assert!(WAITS.as_secs() + PREFILL_WITHIN.as_secs() + REVOKE_WITHIN.as_secs() < SILENCE.as_secs());
};

/// A decode, with the prefills that it knows.
pub struct Decode {
    node: KvNode,
    model: Model,
    members: Members,
    client: reqwest::Client,
}

impl Decode {
    /// A decode whose model has the pool of its node.
    ///
    /// # Errors
    ///
    /// There is no client.
    pub fn new(model: Model, node: KvNode, members: Members) -> Result<Self> {
        Ok(Self { node, model, members, client: client(None)? })
    }

    /// The prefills of the directory: those that this decode has met, and the others.
    fn prefills(&self) -> (Vec<Entry>, Vec<Entry>) {
        let met = self.node.peers();
        self.members
            .all(Role::Prefill)
            .into_iter()
            .partition(|entry| met.iter().any(|name| name.as_str() == entry.name))
    }

    /// The reason why this decode cannot have prompts computed, if so.
    #[must_use]
    pub fn cannot(&self) -> Option<String> {
        let (met, others) = self.prefills();
        let names: Vec<String> = others.into_iter().map(|entry| entry.name).collect();
        let reason = || match names.is_empty() {
            true => "no prefill is there".to_owned(),
            false => format!("no prefill was met, though the directory has {}", names.join(", ")),
        };
        met.is_empty().then(reason)
    }

    /// The reason why a prefill was not met.
    async fn unmet(&self, prefill: &Entry) -> String {
        let other = match generate::model_of(&self.client, &prefill.http).await {
            Ok(model) if model != self.model.config => {
                format!("has the model {model}, not {}", self.model.config)
            }
            Ok(_) => "was not met yet".to_owned(),
            Err(error) => format!("does not answer: {error:#}"),
        };
        format!("{} {other}", prefill.name)
    }

    /// Has a prompt computed by any prefill that this decode has met, and returns the first token of its answer.
    async fn prefill(&self, prompt: &Prompt, blocks: &Taken) -> Result<Token, Refused> {
        let (met, others) = self.prefills();
        let mut reason = "no prefill is there".to_owned();
        if met.is_empty() && !others.is_empty() {
            reason = join_all(others.iter().map(|prefill| self.unmet(prefill))).await.join("; ");
        }
        let (mut full, mut lost) = (None, false);
        for (attempt, prefill) in met.into_iter().enumerate() {
            let span = tracing::info_span!(
                "transfer",
                otel.kind = "client",
                otel.status_code = Empty,
                otel.status_description = Empty,
                prefill = prefill.name,
                attempt,
                bytes = Empty,
            );
            match self.prefill_by(&prefill, prompt, blocks, attempt).instrument(span.clone()).await {
                Ok(token) => {
                    self.model.stats.resumed.add(u64::from(lost));
                    return Ok(token);
                }
                Err(error) => {
                    reason = format!("{}: {error:#}", prefill.name);
                    if let Some(refused) = error.downcast().ok().filter(Refused::is_for_now) {
                        full = Some(refused);
                        continue;
                    }
                }
            }
            lost = true;
            self.members.doubt(&prefill.name);
            self.model.stats.lost.add(1);
            trace::fail(&span, &reason);
            tracing::warn!(id = prompt.id, reason, "a prefill has failed, and another one is asked");
        }
        let none =
            || Refused::unavailable(format!("no prefill can compute the prompt; the last one: {reason}"));
        Err(full.unwrap_or_else(none))
    }

    async fn prefill_by(
        &self,
        prefill: &Entry,
        prompt: &Prompt,
        blocks: &Taken,
        attempt: usize,
    ) -> Result<Token> {
        let (began, deadline) = (Instant::now(), Deadline::after(PREFILL_WITHIN));
        let id = format!("{}.{attempt}", prompt.id);
        let list = blocks.list().get(..Config::blocks_of(prompt.text.len())).unwrap_or_default();
        let list = KvBlocks::new(list).having(blocks.kept());
        let mut grant = self.node.grant(&prefill.name, id.as_str(), list, deadline).await?;
        let granted = began.elapsed();
        let ask = ToCompute {
            decode: self.node.name().to_string(),
            id,
            model: self.model.config,
            text: prompt.text.clone(),
            sampling: prompt.sampling,
            within: deadline.remaining(),
        };
        let asked = self
            .client
            .post(format!("http://{}/prefill", prefill.http))
            .headers(trace::onward(&prompt.headers));
        let asked = asked.json(&ask).send();
        let answer = async {
            let answer = asked.await?;
            if !answer.status().is_success() {
                bail!(generate::refusal(answer).await?);
            }
            read_json::<Prefilled>(answer, SHORT).await
        };
        let answer =
            timeout(PREFILL_WITHIN, answer).map(|answer| answer.context("no answer in time").flatten());
        let mut answer = Box::pin(answer);
        let received = tokio::select! {
            received = &mut grant => {
                // Read to its end, so that the push is not given up there and the connection serves the next prompt.
                let received = received?;
                tokio::spawn(answer);
                received
            }
            // A prefill that cannot go on says so before the grant's deadline.
            answer = &mut answer => match answer {
                Ok(_) => grant.await?,
                Err(error) => {
                    // The next prefill gets the same blocks, which nothing of this one may reach then.
                    grant.start_revoke(Deadline::after(REVOKE_WITHIN)).await?;
                    return Err(error);
                }
            }
        };
        ensure!(received.verdicts.all_valid(), "{:?}", received.verdicts);
        let first = First::read(&received.note).context("a prompt without a first token of the model")?;
        let (all, grant) = (began.elapsed().as_secs_f64(), granted.as_secs_f64());
        self.model.stats.came(Came { all, grant, tail: first.age().as_secs_f64() });
        Span::current().record("bytes", received.bytes);
        self.model.stats.moved(&format!("{} to {}", prefill.name, self.node.name()), received.bytes);
        Ok(first.token)
    }
}

impl Backend for Decode {
    fn config(&self) -> &Config {
        &self.model.config
    }

    fn stats(&self) -> &Arc<Stats> {
        &self.model.stats
    }

    async fn begin(&self, prompt: Prompt) -> Result<UnboundedReceiver<Event>, Refused> {
        let room = prompt.text.len() + prompt.tokens_max;
        let blocks = self.model.take(&prompt.text, room).await?;
        // A block or less is computed here, which is faster than to ask.
        let token = match prompt.text.len() - blocks.ready() > BLOCK_TOKENS {
            true => Some(self.prefill(&prompt, &blocks).await?),
            false => None,
        };
        let (mut job, heard) = Job::new(prompt, blocks, Turn::waits(&self.model.stats));
        if let Some(token) = token {
            job.computed(job.text.len(), |_| token);
        }
        // The answer may have no second token.
        if job.is_running() {
            self.model.add(job).await?;
        }
        Ok(heard)
    }
}
