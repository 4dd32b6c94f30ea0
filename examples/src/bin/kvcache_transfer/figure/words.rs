//! The words below a figure: what is drawn, what is left out, and what the bands mean.

use super::view::{Sent, View};
use crate::args::Args;
use crate::sides::Role;
use rdma_collective::kv::layout::HeadOrder;
use rdma_collective::kv::plan::{End, Write};

/// The lines below a figure, each short enough for its width.
pub fn caption(args: &Args, view: &View) -> Vec<String> {
    let lines = [Some(block(args, view)), Some(cells(args)), Some(pieces(args, view)), beyond(args, view)];
    lines.into_iter().flatten().chain(copies(view)).chain(ranks(args, view)).collect()
}

/// Counts the pieces, and says how writes are drawn.
fn pieces(args: &Args, view: &View) -> String {
    let count: usize = view.writes.iter().map(|sent| sent.pieces.len()).sum();
    let drawn = if count == view.pieces {
        format!("All {count} pieces of the block are drawn")
    } else {
        format!("{count} of the block's {} pieces are drawn", view.pieces)
    };
    let carry = if args.pull { "read" } else { "write" };
    format!("{drawn}, each as a band. Bands within an outline go in one {carry}.")
}

/// Says that writes have more bytes than those drawn, if they do.
fn beyond(args: &Args, view: &View) -> Option<String> {
    let longer = view.writes.iter().filter(|sent| has_more(sent));
    let bytes = size(longer.map(|sent| sent.write.len).max()?);
    let carry = if args.pull { "read" } else { "write" };
    Some(format!("A {carry} has up to {bytes}: also bytes of tokens, blocks or layers that are not drawn."))
}

/// Whether a write has bytes besides its drawn pieces.
fn has_more(sent: &Sent) -> bool {
    sent.pieces.iter().map(|piece| piece.len).sum::<u64>() < sent.write.len
}

/// Whether the staging memory of a write, if it has any, is drawn in part.
fn is_staged_in_part(sent: &Sent) -> bool {
    has_more(sent) && [sent.write.source, sent.write.destination].contains(&End::Staging)
}

/// Says who copies, if anyone does.
fn copies(view: &View) -> Option<String> {
    let any = |end: fn(&Write) -> End| view.writes.iter().any(|sent| end(&sent.write) == End::Staging);
    let at_prefill = any(|write| write.source).then_some("prefill packs pieces into staging memory");
    let at_decode = any(|write| write.destination).then_some("decode unpacks pieces from staging memory");
    let copies: Vec<_> = [at_prefill, at_decode].into_iter().flatten().collect();
    (!copies.is_empty()).then(|| format!("Bands without an outline are copies: {}.", copies.join(", ")))
}

/// Names the block and its drawn tokens.
fn block(args: &Args, view: &View) -> String {
    let tokens = match view.tokens {
        tokens if tokens >= args.block => String::new(),
        1 => format!(", token 0 of its {}", args.block),
        tokens => format!(", tokens 0 to {} of its {}", tokens - 1, args.block),
    };
    let mut pools = view.sides.iter().flatten();
    let has_dots = pools.any(|pool| pool.strip.gaps() > 0) || view.writes.iter().any(is_staged_in_part);
    let dots = if has_dots { " Dots stand for bytes that are not drawn." } else { "" };
    format!("Memory of the first block in the first layer{tokens}.{dots}")
}

/// Says what a cell is, and what the names of cells mean.
fn cells(args: &Args) -> String {
    let each = if args.model.attention.heads() > 1 { "head of a token" } else { "token" };
    let has = |order: HeadOrder| args.head_order.0.iter().any(|heads| heads.0 == order);
    let names = match (has(HeadOrder::Nhd), has(HeadOrder::Hnd)) {
        (true, true) => "t0: token 0, h0: head 0",
        (_, false) => "t0: token 0",
        _ => "h0: head 0",
    };
    format!("A cell is a {each}, paler for later tokens ({names}).")
}

/// Names the ranks that are left out.
fn ranks(args: &Args, view: &View) -> Option<String> {
    let left_out = |role: Role| {
        let (drawn, all) = (view.sides[role as usize].len(), args.tp.of(role).0);
        (drawn < all as usize).then(|| format!("{drawn} of {all} ranks of {}", role.name()))
    };
    let left_out: Vec<_> = [Role::Prefill, Role::Decode].into_iter().filter_map(left_out).collect();
    (!left_out.is_empty()).then(|| format!("Drawn: {}.", left_out.join(" and ")))
}

/// Bytes in the largest unit that makes a whole number.
pub fn size(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        bytes if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} bytes"),
    }
}
