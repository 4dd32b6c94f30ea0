//! The side that has the blocks: leases and writes them, and waits until decode has confirmed them all.

use crate::args::Args;
use crate::place::Place;
use crate::presets::Request;
use crate::report;
use crate::requests::{self, Requests};
use crate::side::{Side, source_ids};
use crate::way::{self, AllSent};
use anyhow::Context;
use examples::output;
use rdma_collective::kv::{LinkOptions, Prefill};
use rdma_core::Deadline;

/// The request, when there is one.
pub const REQUEST: u64 = 1;

/// Is a rank of prefill; true when decode found no block corrupt.
///
/// # Errors
///
/// Whatever fails on the way: a peer that does not come or is lost, a device that refuses.
pub fn run(args: &Args, request: &Request) -> anyhow::Result<bool> {
    let place = Place::find(args, request)?;
    let side = Side::open(args, request, &place)?;
    let deadline = Deadline::after(args.timeout());
    let options = LinkOptions::default();
    let mut links = Vec::new();
    for meet in place.meets() {
        let link = Prefill::new(&side.engine, &side.pool, &meet, &side.token, &options, deadline);
        links.push(link.map_err(|error| side.in_use.explain(error))?);
    }
    // Ranks of prefill that have the same heads need not all be heard.
    let Some(first) = links.first() else { return Ok(true) };
    if args.role.is_some() && !args.json {
        output::say(report::header(args, request, &side.device(first.peer_access())))?;
    }
    if args.many() {
        let total = requests::prefill::run(args, &Requests::new(args, request), &links)?;
        if args.role.is_some() && !args.json {
            let requests::prefill::Total { bytes, corrupt, revoked } = total;
            output::say(format!(
                "# Moved {bytes} bytes; corrupt: {corrupt}; requests given up: {revoked}\n"
            ))?;
        }
        return Ok(total.corrupt == 0);
    }
    let sent = way::send(args, &links, REQUEST, &source_ids(args, request)).context("the transfer")?;
    if args.role.is_some() && !args.json {
        output::say(line(&sent))?;
    }
    Ok(sent.corrupt == 0)
}

fn line(sent: &AllSent) -> String {
    let AllSent { bytes, writes, corrupt, elapsed } = sent;
    let verdict = if *corrupt == 0 { "OK" } else { "FAILED" };
    format!(
        "# Moved {bytes} bytes in {writes} operations, confirmed after {:.3} ms; corrupt: {corrupt} {verdict}\n",
        elapsed.as_secs_f64() * 1e3
    )
}
