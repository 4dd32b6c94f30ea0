//! The side that has the blocks: leases and writes them, and waits until decode has confirmed them all.

use crate::args::{Args, Role};
use crate::presets::Request;
use crate::report;
use crate::side::{Place, Side, source_ids};
use anyhow::Context;
use examples::output;
use rdma_collective::kv::{LinkOptions, Prefill, Pushed};
use rdma_core::Deadline;

/// The one request of this program.
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
    let push = prefill.push(REQUEST, &source_ids(args, request), Deadline::after(args.timeout()))?;
    let pushed = push.wait().context("the push")?;
    if args.role.is_some() && !args.json {
        output::say(line(&pushed))?;
    }
    Ok(pushed.corrupt == 0)
}

fn line(pushed: &Pushed) -> String {
    let Pushed { bytes, writes, corrupt, elapsed, .. } = pushed;
    let verdict = if *corrupt == 0 { "OK" } else { "FAILED" };
    format!(
        "# Pushed {bytes} bytes in {writes} writes, confirmed after {:.3} ms; corrupt: {corrupt} {verdict}\n",
        elapsed.as_secs_f64() * 1e3
    )
}
