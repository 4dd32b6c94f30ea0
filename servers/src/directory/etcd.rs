//! A directory in etcd: each server has a key, whose lease ends soon after the server does.
//!
//! etcd's own JSON gateway is spoken, which each etcd from 3.4 on has unless it was switched off. A key is
//! `/rdma/JOB/NAME`, where JOB is made of the job's token by a hash, so that jobs share an etcd and do not meet.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rdma_collective::bootstrap::JobToken;
use serde::Deserialize;
use serde_json::{Value, json};

use super::http::{BYTES_MAX, SERVERS_MAX, WITHIN};
use super::{Directory, LASTS, Sealed, entry};
use crate::client::{client, read_json};

/// The directory in an etcd, which may have several members.
pub struct Etcd {
    members: Vec<String>,
    /// The member that answered last, and is asked first.
    first: AtomicUsize,
    prefix: String,
    client: reqwest::Client,
    lease: Mutex<Option<String>>,
}

/// An answer to a read of keys. One without keys has no list.
#[derive(Deserialize)]
struct Range {
    #[serde(default)]
    kvs: Vec<Pair>,
}

#[derive(Deserialize)]
struct Pair {
    value: String,
}

impl Etcd {
    /// The directory of a job in the etcd whose members are at `HOST:PORT[,HOST:PORT]`.
    ///
    /// # Errors
    ///
    /// No member is named.
    pub fn new(members: &str, token: &JobToken) -> Result<Self> {
        let members: Vec<_> =
            members.split(',').map(str::trim).filter(|at| !at.is_empty()).map(str::to_owned).collect();
        ensure!(!members.is_empty(), "etcd:HOST:PORT[,HOST:PORT] names no member");
        let (prefix, client) = (format!("/rdma/{}/", entry::job(token)?), client(Some(WITHIN))?);
        Ok(Self { members, first: AtomicUsize::new(0), prefix, client, lease: Mutex::default() })
    }

    /// Asks members in turn until one answers. Each has a deadline.
    async fn ask(&self, path: &str, ask: &Value) -> Result<Value> {
        let first = self.first.load(Ordering::Relaxed);
        let mut reason = anyhow::anyhow!("etcd has no members");
        for (turn, at) in self.members.iter().enumerate().cycle().skip(first).take(self.members.len()) {
            let asked = self.client.post(format!("http://{at}/v3/{path}")).json(ask).send();
            let answer = async { read_json(asked.await?, BYTES_MAX).await };
            match answer.await {
                Ok(answer) => {
                    self.first.store(turn, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(error) => reason = error.context(format!("etcd at {at}, {path}")),
            }
        }
        Err(reason)
    }

    /// A lease that lasts: the one of the last announcement, or another one when etcd does not know that any more.
    async fn lease(&self) -> Result<String> {
        // A lease that fails once is left to its end.
        let kept = self.lease.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(lease) = kept {
            let answer = self.ask("lease/keepalive", &json!({ "ID": lease })).await?;
            // The answer for a lease that has ended names no time to live.
            if answer["result"]["TTL"].is_string() {
                return Ok(lease);
            }
        }
        let answer = self.ask("lease/grant", &json!({ "TTL": LASTS.as_secs() })).await?;
        Ok(answer["ID"].as_str().context("etcd gave no lease")?.to_owned())
    }
}

impl Directory for Etcd {
    fn announce<'a>(&'a self, entry: &'a Sealed) -> BoxFuture<'a, Result<()>> {
        async {
            let lease = self.lease().await?;
            let key = BASE64_STANDARD.encode(format!("{}{}", self.prefix, entry.name));
            let value = BASE64_STANDARD.encode(serde_json::to_vec(entry)?);
            self.ask("kv/put", &json!({ "key": key, "value": value, "lease": lease })).await?;
            *self.lease.lock().unwrap_or_else(PoisonError::into_inner) = Some(lease);
            Ok(())
        }
        .boxed()
    }

    fn entries(&self) -> BoxFuture<'_, Result<Vec<Sealed>>> {
        async {
            // The byte behind `/`, so that the range has all keys of the prefix.
            let end = format!("{}0", self.prefix.trim_end_matches('/'));
            let [key, end] = [&self.prefix, &end].map(|key| BASE64_STANDARD.encode(key));
            let answer =
                self.ask("kv/range", &json!({ "key": key, "range_end": end, "limit": SERVERS_MAX })).await?;
            if answer["header"].is_null() {
                bail!("etcd does not speak of keys");
            }
            let Range { kvs } = serde_json::from_value(answer).context("keys of etcd")?;
            let sealed =
                |pair: &Pair| serde_json::from_slice(&BASE64_STANDARD.decode(&pair.value).ok()?).ok();
            // A value that is no entry is not one of a server.
            Ok(kvs.iter().filter_map(sealed).collect())
        }
        .boxed()
    }
}
