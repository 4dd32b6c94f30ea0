//! `--explain`: the plan of a request between two layouts, rank by rank. No device is opened, and no memory is taken.

use std::fmt::Write as _;
use std::sync::Arc;

use rdma_collective::kv::layout::Layout;
use rdma_collective::kv::plan::{Plan, PlanOptions, PlanSize, Route};

use crate::args::Args;
use crate::presets::{blocks_of, layout};
use crate::sides::{Rank, Role};

/// The plan of the request that the flags describe: a line for each rank that hears another one.
///
/// # Errors
///
/// The flags name layouts between which there is no plan.
pub fn explain(args: &Args) -> anyhow::Result<String> {
    let blocks = blocks_of(args.prompt, args.block);
    let side =
        |role: Role| format!("{} TP {} ({})", role.name(), args.tp.of(role).0, args.head_order.of(role).0);
    let mut text = format!(
        "# {}: {} tokens, {blocks} blocks of {}, {}, {}\n",
        args.model.name,
        args.prompt,
        args.block,
        side(Role::Prefill),
        side(Role::Decode)
    );
    text.push_str("#  to  from    writes    pieces        bytes   bytes a write   packed\n");
    for rank in args.ranks(Role::Decode) {
        let destination = layout(args, rank, blocks)?;
        for heard in rank.peers(args)? {
            let source = layout(args, Rank { role: Role::Prefill, number: heard }, blocks)?;
            let PlanSize { bytes, writes, pieces, packed_bytes } = size(args, &source, &destination, blocks)?;
            let packed = packed_bytes as f64 / bytes as f64 * 100.0;
            writeln!(
                text,
                "{:5} {heard:5} {writes:9} {pieces:9} {bytes:12} {:15} {packed:6.0} %",
                rank.number,
                bytes / writes
            )?;
        }
    }
    Ok(text)
}

fn size(args: &Args, source: &Layout, destination: &Layout, blocks: u32) -> anyhow::Result<PlanSize> {
    let route = Arc::new(Route::new(source, destination)?);
    let list: Vec<u32> = (0..blocks).collect();
    // As a link with its default options plans.
    let options = PlanOptions { by_layer: args.stream, pulls: args.pull, ..PlanOptions::default() };
    Ok(Plan::new(&route, [&list, &list], &options)?.size())
}
