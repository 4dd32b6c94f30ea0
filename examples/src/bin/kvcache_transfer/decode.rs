//! The side that has room: grants it, waits until every block is there, and looks at every byte of its pool.

use crate::args::{Args, Role};
use crate::content::{Content, Verified};
use crate::pool::{self, Owners};
use crate::prefill::REQUEST;
use crate::presets::Request;
use crate::progress;
use crate::report::{self, Moved, Report};
use crate::requests::{self, Requests};
use crate::side::{Place, Side, destination_ids};
use crate::way;
use examples::output;
use rdma_collective::kv::TransferError;
use rdma_collective::kv::{BlockVerdict, Decode, LinkOptions, Received};
use rdma_core::Deadline;
use std::time::{Duration, Instant};

/// Is decode; true when every block arrived and no other byte changed.
///
/// # Errors
///
/// Whatever keeps the transfer from taking place at all.
pub fn run(args: &Args, request: &Request) -> anyhow::Result<bool> {
    let place = Place::find(args, Role::Decode)?;
    let side = Side::open(args, request, &place, Role::Decode)?;
    let options = LinkOptions { checksums: args.checksums, ..LinkOptions::default() };
    let deadline = Deadline::after(args.timeout());
    let decode = Decode::new(&side.engine, &side.pool, &place.meet(), &side.token, &options, deadline)?;
    let device = side.device(decode.peer_access());
    if !args.json {
        output::say(report::header(args, request, &device))?;
    }
    if let (Some(fault), Some(plan)) = (args.fault, &side.faults) {
        fault.arm(plan);
    }
    if args.many() {
        return requests::decode::run(args, request, &Requests::new(args, request), decode, device);
    }
    let ids = destination_ids(args, request);
    let begin = Instant::now();
    let incoming = way::receive(args, &decode, REQUEST, &ids)?;
    let outcome = match way::wait_layers(args, &incoming) {
        Ok(()) => progress::wait(&side.engine, incoming, args.json),
        Err(error) => Err(error),
    };
    let last_block = begin.elapsed();
    drop(decode); // nothing lands any more while the pool is looked at
    let owners = Owners::new(request, &ids)?;
    let bar = progress::Layers::new(request.layers(), args.json);
    let verified = pool::verify(&side.pool, &owners, &Content::new(args.seed), |layer| bar.reached(layer))?;
    drop(bar);
    finish(args, request, device, &outcome, last_block, verified)
}

fn finish(
    args: &Args,
    request: &Request,
    device: report::Device,
    outcome: &Result<Received, TransferError>,
    last_block: Duration,
    verified: Verified,
) -> anyhow::Result<bool> {
    let moved = match outcome {
        Ok(received) => Moved {
            bytes: received.bytes,
            descriptors: received.writes,
            last_block_s: last_block.as_secs_f64(),
            missing: 0,
        },
        Err(error) => {
            Moved { missing: error.verdicts.count(BlockVerdict::Missing) as u64, ..Moved::default() }
        }
    };
    let mut report = Report::new(args, request, device, moved, verified);
    if let Err(error) = outcome {
        report.fail(error.to_string());
    }
    output::say(if args.json { report.json() + "\n" } else { report.closing() })?;
    match outcome {
        Ok(_) => Ok(report.ok),
        Err(error) => Err(anyhow::anyhow!("{error}")),
    }
}
