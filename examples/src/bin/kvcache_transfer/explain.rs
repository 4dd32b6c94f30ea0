//! `--explain`: the plan of a request between two layouts, rank by rank. No device is opened, and no memory is taken.

use std::fmt::Write as _;
use std::sync::Arc;

use rdma_collective::kv::layout::{Group, HeadOrder, Layout, Order, Shape, TensorParallel};
use rdma_collective::kv::plan::{Plan, PlanOptions, PlanSize, Route, sources};

use crate::args::Args;
use crate::presets::blocks_of;

/// The plan of the request that the flags describe: a line for each rank that hears another one.
///
/// # Errors
///
/// The flags name layouts between which there is no plan.
pub fn explain(args: &Args) -> anyhow::Result<String> {
    let blocks = blocks_of(args.prompt, args.block);
    let whole = args.model.shape(args.block, blocks, order(args));
    let side = |heads: HeadOrder, rank: u32, size: u32| -> anyhow::Result<Layout> {
        let shape = Shape { head_order: heads, ..whole }.of_rank(TensorParallel { rank, size })?;
        Ok(Layout::of([Group::new(shape).in_tensors(args.tensors.into())])?)
    };
    let [from, to] = args.tp.0;
    let heads = args.head_order.0.map(|heads| heads.0);
    let mut text = format!(
        "# {}: {} tokens, {blocks} blocks of {}, prefill TP {from} ({}), decode TP {to} ({})\n",
        args.model.name, args.prompt, args.block, heads[0], heads[1]
    );
    text.push_str("#  to  from    writes    pieces        bytes   bytes a write   packed\n");
    for rank in 0..to {
        let destination = side(heads[1], rank, to)?;
        for heard in sources(whole.attention, from, TensorParallel { rank, size: to })? {
            let size = size(args, &side(heads[0], heard, from)?, &destination, blocks)?;
            let PlanSize { bytes, writes, pieces, packed_bytes } = size;
            let packed = packed_bytes as f64 / bytes as f64 * 100.0;
            writeln!(
                text,
                "{rank:5} {heard:5} {writes:9} {pieces:9} {bytes:12} {:15} {packed:6.0} %",
                bytes / writes
            )?;
        }
    }
    Ok(text)
}

/// The order of memory: keys and values apart, where there are both.
fn order(args: &Args) -> Order {
    if args.model.attention.parts() == 1 { Order::LayerBlockPart } else { Order::LayerPartBlock }
}

fn size(args: &Args, source: &Layout, destination: &Layout, blocks: u32) -> anyhow::Result<PlanSize> {
    let route = Arc::new(Route::new(source, destination)?);
    let list: Vec<u32> = (0..blocks).collect();
    // As a link with its default options plans.
    let options = PlanOptions { by_layer: args.stream, pulls: args.pull, ..PlanOptions::default() };
    Ok(Plan::new(&route, [&list, &list], &options)?.size())
}
