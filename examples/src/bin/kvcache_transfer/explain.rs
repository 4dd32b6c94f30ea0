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
    let mut text = format!("# {}, {}\n", request(args), layouts(args));
    text.push_str("#  to  from    writes    pieces        bytes   bytes a write   packed\n");
    for rank in args.ranks(Role::Decode) {
        let destination = layout(args, rank, blocks)?;
        for heard in rank.peers(args)? {
            let source = layout(args, Rank { role: Role::Prefill, number: heard }, blocks)?;
            let PlanSize { bytes, writes, pieces, packed_bytes } =
                plan(args, &source, &destination, blocks)?.size();
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

/// The request in words.
pub fn request(args: &Args) -> String {
    let Args { model, prompt, block, .. } = args;
    format!("{}: {prompt} tokens, {} blocks of {block}", model.name, blocks_of(*prompt, *block))
}

/// The layouts of both sides in words.
pub fn layouts(args: &Args) -> String {
    let side =
        |role: Role| format!("{} TP {} ({})", role.name(), args.tp.of(role).0, args.head_order.of(role).0);
    format!("{}, {}", side(Role::Prefill), side(Role::Decode))
}

/// The plan of all blocks between two layouts, as a link with its default options makes the plan.
///
/// # Errors
///
/// The layouts have no plan between them.
pub fn plan(args: &Args, source: &Layout, destination: &Layout, blocks: u32) -> anyhow::Result<Arc<Plan>> {
    let route = Arc::new(Route::new(source, destination)?);
    let list: Vec<u32> = (0..blocks).collect();
    let options = PlanOptions { by_layer: args.stream, pulls: args.pull, ..PlanOptions::default() };
    Ok(Plan::new(&route, [&list, &list], &options)?)
}
