//! The side that has the blocks: leases and writes them, and waits until decode has confirmed them all.

use crate::args::{Args, Role};
use crate::presets::Request;
use crate::report;
use crate::requests::{self, Requests};
use crate::side::{Place, Side, source_ids};
use crate::way;
use anyhow::Context;
use examples::output;
use rdma_collective::kv::{LinkOptions, Prefill, Sent};
use rdma_core::Deadline;

/// The request, when there is one.
pub const REQUEST: u64 = 1;

/// Is prefill; true when decode found no block corrupt.
///
/// # Errors
///
/// Whatever fails on the way: a peer that does not come or is lost, a device that refuses.
pub fn run(args: &Args, request: &Request) -> anyhow::Result<bool> {
    let place = Place::find(args, Role::Prefill)?;
    let side = Side::open(args, request, &place, Role::Prefill)?;
    let deadline = Deadline::after(args.timeout());
    let options = LinkOptions::default();
    let prefill = Prefill::new(&side.engine, &side.pool, &place.meet(), &side.token, &options, deadline)?;
    if args.role.is_some() && !args.json {
        output::say(report::header(args, request, &side.device(prefill.peer_access())))?;
    }
    if args.many() {
        let total = requests::prefill::run(args, &Requests::new(args, request), &prefill)?;
        if args.role.is_some() && !args.json {
            let requests::prefill::Total { bytes, corrupt, revoked } = total;
            output::say(format!(
                "# Moved {bytes} bytes; corrupt: {corrupt}; requests given up: {revoked}\n"
            ))?;
        }
        return Ok(total.corrupt == 0);
    }
    let sent = way::send(args, &prefill, REQUEST, &source_ids(args, request)).context("the transfer")?;
    if args.role.is_some() && !args.json {
        output::say(line(&sent))?;
    }
    Ok(sent.corrupt == 0)
}

fn line(sent: &Sent) -> String {
    let Sent { bytes, writes, corrupt, elapsed, .. } = sent;
    let verdict = if *corrupt == 0 { "OK" } else { "FAILED" };
    format!(
        "# Moved {bytes} bytes in {writes} operations, confirmed after {:.3} ms; corrupt: {corrupt} {verdict}\n",
        elapsed.as_secs_f64() * 1e3
    )
}
