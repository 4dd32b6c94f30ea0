//! The side that has room: grants it, waits until every block is there, and looks at every byte of its pool.

use crate::args::Args;
use crate::blocks::Blocks;
use crate::content::Verified;
use crate::place::Place;
use crate::pool::{self, Owners};
use crate::prefill::REQUEST;
use crate::presets::Request;
use crate::progress;
use crate::report::{self, Part, Report};
use crate::requests::{self, Requests};
use crate::side::{Side, destination_ids};
use crate::way;
use anyhow::Context;
use examples::output;
use rdma_collective::kv::{BlockVerdict, Decode, LinkOptions, Received, Sources, TransferError};
use rdma_core::Deadline;
use std::time::{Duration, Instant};

/// Is a rank of decode; true when every block arrived and no other byte changed.
///
/// # Errors
///
/// Whatever keeps the transfer from taking place at all.
pub fn run(args: &Args, request: &Request) -> anyhow::Result<bool> {
    let place = Place::find(args, request)?;
    let side = Side::open(args, request, &place)?;
    let sources = connect(args, &side, &place)?;
    let access = sources.links().first().context("a rank of decode that hears no rank")?.peer_access();
    let device = side.device(access);
    let quiet = args.json || place.is_told(request.rank);
    if !quiet {
        output::say(report::header(args, request, &device))?;
    }
    if let (Some(fault), Some(plan)) = (args.fault, &side.faults) {
        fault.arm(plan);
    }
    if args.many() {
        return requests::decode::run(args, request, &Requests::new(args, request), sources, device);
    }
    let ids = destination_ids(args, request);
    let begin = Instant::now();
    let incoming = way::receive(args, &sources, REQUEST, &ids)?;
    let outcome = match way::wait_layers(args, &incoming) {
        Ok(()) => progress::wait(&side.engine, incoming, quiet),
        Err(error) => Err(error),
    };
    let last_block = begin.elapsed();
    drop(sources); // nothing lands any more while the pool is looked at
    let owners = Owners::new(request, &ids)?;
    let bar = progress::Layers::new(request.layers(), quiet);
    let blocks = Blocks::new(request, args.seed)?;
    let verified = pool::verify(&side.pool, &owners, &blocks, |layer| bar.reached(layer))?;
    drop(bar);
    finish(args, request, (place, device), outcome, last_block, verified)
}

/// Links with all ranks of prefill that this one hears, in the order in which they come.
fn connect(args: &Args, side: &Side, place: &Place) -> anyhow::Result<Sources> {
    let options = LinkOptions { checksums: args.checksums, ..LinkOptions::default() };
    let deadline = Deadline::after(args.timeout());
    let mut links = Vec::new();
    for meet in place.meets() {
        let link = Decode::new(&side.engine, &side.pool, &meet, &side.token, &options, deadline);
        links.push(link.map_err(|error| side.in_use.explain(error))?);
    }
    Ok(Sources::new(links).map_err(|refused| refused.error)?)
}

fn finish(
    args: &Args,
    request: &Request,
    (place, device): (Place, report::Device),
    outcome: Result<Received, TransferError>,
    last_block: Duration,
    verified: Verified,
) -> anyhow::Result<bool> {
    let blocks = request.layer_blocks();
    let part = Part {
        blocks,
        blocks_verified: verified.blocks,
        other_bytes: verified.other_bytes,
        ..Part::default()
    };
    let part = match &outcome {
        Ok(received) => Part {
            bytes: received.bytes,
            descriptors: received.writes,
            last_block_s: last_block.as_secs_f64(),
            ..part
        },
        Err(error) => {
            let missing = error.verdicts.count(BlockVerdict::Missing) as u64;
            Part { missing, error: Some(error.to_string()), ..part }
        }
    };
    let mut ok = part.is_ok();
    if let Some(parts) = place.gather(args, request.rank, part)? {
        let report = Report::new(args, device, &parts);
        output::say(if args.json { report.json() + "\n" } else { report.closing() })?;
        ok = report.ok;
    }
    match outcome {
        Ok(_) => Ok(ok),
        Err(error) => Err(anyhow::anyhow!("{error}")),
    }
}
