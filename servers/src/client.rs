//! The client of a server, which asks the other servers of its job, and directories.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

/// Bytes of an answer that is not a list, at most.
pub const SHORT: usize = 64 * 1024;
/// The time in which a server takes a connection.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(1);
/// Longest time between two pieces of an answer. Prompts of others are computed meanwhile.
pub const SILENCE: Duration = Duration::from_secs(150);
/// The time from the begin of an answer that is read whole to its end.
const READ_WITHIN: Duration = Duration::from_secs(10);
/// The time that a connection without a request is kept.
const IDLE: Duration = Duration::from_millis(500);

/// A client. An answer has come whole `within` a time; without one its pieces may come for ever, [`SILENCE`] apart at
/// most.
///
/// # Errors
///
/// There is no client.
pub fn client(within: Option<Duration>) -> Result<Client> {
    let builder = Client::builder().connect_timeout(CONNECT_WITHIN).read_timeout(SILENCE);
    // A server ends connections that say nothing, and must not do so just when the next request is said.
    let builder = builder.pool_idle_timeout(IDLE);
    let builder = within.into_iter().fold(builder, |builder, within| builder.timeout(within));
    // A server answers itself.
    Ok(builder.no_proxy().redirect(Policy::none()).build()?)
}

/// Reads an answer to its end, which comes within 10 s.
///
/// # Errors
///
/// The answer has more than `bytes_max` bytes, breaks off or is late.
pub async fn read(mut answer: Response, bytes_max: usize) -> Result<Vec<u8>> {
    let whole = async {
        let mut bytes = Vec::new();
        while let Some(more) = answer.chunk().await? {
            ensure!(bytes.len() + more.len() <= bytes_max, "an answer of more than {bytes_max} bytes");
            bytes.extend_from_slice(&more);
        }
        Ok(bytes)
    };
    timeout(READ_WITHIN, whole).await.context("the answer does not end in time")?
}

/// Reads a good answer of JSON.
///
/// # Errors
///
/// The errors of [`read`]; or the answer says that something failed, or is something else.
pub async fn read_json<T: DeserializeOwned>(answer: Response, bytes_max: usize) -> Result<T> {
    ensure!(answer.status().is_success(), "the answer is {}", answer.status());
    serde_json::from_slice(&read(answer, bytes_max).await?)
        .context("an answer of JSON that means something else")
}
