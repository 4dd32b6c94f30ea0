//! The result of a transfer: the header, the closing table and the JSON. This file measures nothing.

use crate::args::Args;
use crate::presets::Request;
use crate::sides::{Both, Heads, Role, Size};
use examples::columns::header::{Refused, refused_lines};
use examples::sizes::format_rounded;
use rdma_collective::kv::layout::{HeadOrder, Layout};
use serde::{Deserialize, Serialize};

/// Where a side runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Device {
    /// Name of the device.
    pub name: String,
    /// How bytes travel.
    pub wire: String,
    /// From which address: its index and itself.
    pub gid: String,
    /// Devices that are there and were not used.
    pub refused: Vec<Refused>,
}

/// A transfer, seen from decode.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Name of the model whose cache travels.
    pub model: String,
    /// Tokens.
    pub prompt: u32,
    /// Tokens in a block.
    pub block: u32,
    /// Seed of ids and contents.
    pub seed: u64,
    /// Where decode ran.
    pub device: Device,
    /// Bytes that travelled.
    pub bytes: u64,
    /// Blocks, over all layers.
    pub blocks: u64,
    /// Writes that carried them.
    pub descriptors: u64,
    /// From decode's grant until it could use the last block.
    pub last_block_ms: f64,
    /// Bytes over that time, in GB/s (1e9).
    pub gigabytes_per_second: f64,
    /// Blocks whose every byte is right.
    pub blocks_verified: u64,
    /// Blocks that did not arrive.
    pub blocks_missing: u64,
    /// Blocks that arrived with a wrong byte.
    pub blocks_corrupt: u64,
    /// Bytes beside the blocks that changed.
    pub other_bytes_changed: u64,
    /// The verdict.
    pub ok: bool,
    /// Why the transfer ended early.
    pub error: Option<String>,
}

impl Report {
    /// Puts together what was asked for and what came of it, at all ranks of decode.
    pub fn new(args: &Args, device: Device, parts: &[Part]) -> Self {
        let sum = |of: fn(&Part) -> u64| parts.iter().map(of).sum::<u64>();
        let (bytes, blocks, verified) =
            (sum(|part| part.bytes), sum(|part| part.blocks), sum(|part| part.blocks_verified));
        let last_block_s = parts.iter().map(|part| part.last_block_s).fold(0.0, f64::max);
        let (wrong, missing) = (blocks.saturating_sub(verified), sum(|part| part.missing));
        Self {
            model: args.model.name.to_owned(),
            prompt: args.prompt,
            block: args.block,
            seed: args.seed,
            device,
            bytes,
            blocks,
            descriptors: sum(|part| part.descriptors.into()),
            last_block_ms: last_block_s * 1e3,
            gigabytes_per_second: if last_block_s > 0.0 { bytes as f64 / 1e9 / last_block_s } else { 0.0 },
            blocks_verified: verified,
            blocks_missing: missing.min(wrong),
            blocks_corrupt: wrong.saturating_sub(missing),
            other_bytes_changed: sum(|part| part.other_bytes),
            ok: parts.iter().all(Part::is_ok),
            error: parts.iter().find_map(|part| part.error.clone()),
        }
    }

    /// The table and the two lines of the verdict.
    pub fn closing(&self) -> String {
        let verdict = |ok| if ok { "OK" } else { "FAILED" };
        let Self { bytes, blocks, descriptors, blocks_verified, other_bytes_changed, .. } = self;
        format!(
            "# {:>12}  {:>8}  {:>11}  {:>8}  {:>15}  {:>15}\n# {:>12}  {:>8}  {:>11}  {:>8}  {:>15}\n\
             {bytes:>14}  {blocks:>8}  {descriptors:>11}  {:>8.3}  {:>15.3}  {blocks_verified:>15}\n\
             # Blocks verified      : {blocks_verified} of {blocks} {}{}\n\
             # Other bytes changed  : {other_bytes_changed} {}\n",
            "bytes",
            "blocks",
            "descriptors",
            "speed",
            "last block",
            "blocks verified",
            "(B)",
            "",
            "",
            "(GB/s)",
            "(ms)",
            self.gigabytes_per_second,
            self.last_block_ms,
            verdict(blocks_verified == blocks),
            self.wrong_blocks(),
            verdict(*other_bytes_changed == 0),
        )
    }

    /// How many blocks are wrong in which way, when some are.
    fn wrong_blocks(&self) -> String {
        if self.blocks_verified == self.blocks {
            return String::new();
        }
        format!(" ({} missing, {} corrupt)", self.blocks_missing, self.blocks_corrupt)
    }

    /// Prints the report as an object on one line.
    pub fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
    }
}

/// The outcome of the transfer at one rank of decode; figures of the transfer itself are 0 when it ended early.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Bytes that arrived.
    pub bytes: u64,
    /// Writes that carried them.
    pub descriptors: u32,
    /// Seconds from the grant until the last block could be used.
    pub last_block_s: f64,
    /// Blocks of the request, over all layers.
    pub blocks: u64,
    /// Blocks that did not arrive.
    pub missing: u64,
    /// Blocks whose every byte is right.
    pub blocks_verified: u64,
    /// Bytes of the other blocks that changed.
    pub other_bytes: u64,
    /// Why the transfer ended early.
    pub error: Option<String>,
}

impl Part {
    /// Whether every block arrived and no other byte changed.
    pub fn is_ok(&self) -> bool {
        self.blocks_verified == self.blocks && self.other_bytes == 0 && self.error.is_none()
    }
}

/// The lines above the progress bar.
pub fn header(args: &Args, request: &Request, device: &Device) -> String {
    let Request { rank, layout, blocks, .. } = request;
    let (layers, pool_blocks) = (request.layers(), request.pool_blocks());
    let (to, each) = if args.tp.of(rank.role).0 > 1 { (" a rank", "rank") } else { ("", "side") };
    format!(
        "# kvcache_transfer: {}, {} tokens, {layers} layers of {blocks} blocks of {} tokens ({}), seed {}\n\
         # Moving {}{to}, in pools of {pool_blocks} blocks a layer, {} a {each}\n{}\
         # Using device {}, wire {}, GID {}\n{}#\n",
        args.model.name,
        args.prompt,
        args.block,
        format_rounded(layout.layer_block_bytes()),
        args.seed,
        format_rounded(request.bytes()),
        format_rounded(layout.bytes()),
        layouts(args, layout),
        device.name,
        device.wire,
        device.gid,
        refused_lines("# ", &device.refused),
    )
}

/// A line about the layouts of both sides, where they are not alike: one rank, and one tensor.
fn layouts(args: &Args, layout: &Layout) -> String {
    let tensors = layout.tensors().len();
    if args.tp == Both([Size(1); 2]) && args.head_order == Both([Heads(HeadOrder::Nhd); 2]) && tensors == 1 {
        return String::new();
    }
    let side =
        |role: Role| format!("{} TP {} ({})", role.name(), args.tp.of(role).0, args.head_order.of(role).0);
    let [prefill, decode] = [Role::Prefill, Role::Decode].map(side);
    format!("# From {prefill} to {decode}, tensors a pool: {tensors}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sides::Rank;
    use clap::Parser;

    fn device() -> Device {
        let refused = Refused { device: "mlx5_0".into(), reason: "port 1 is DOWN".into() };
        Device { name: "soft0".into(), wire: "tcp".into(), gid: "1 ::1".into(), refused: vec![refused] }
    }

    fn part(blocks_verified: u64, other_bytes: u64) -> Part {
        let part =
            Part { bytes: 1 << 27, descriptors: 2048, last_block_s: 0.125, blocks: 2048, ..Part::default() };
        Part { blocks_verified, other_bytes, ..part }
    }

    fn report(parts: &[Part]) -> Report {
        Report::new(&Args::parse_from(["kvcache_transfer"]), device(), parts)
    }

    #[test]
    fn the_output_reads_from_top_to_bottom() {
        let args = Args::parse_from(["kvcache_transfer"]);
        let report = report(&[part(2048, 0)]);
        assert!(report.ok);
        insta::assert_snapshot!(
            header(&args, &args.request(Rank::default()).unwrap(), &device()) + &report.closing()
        );
    }

    #[test]
    fn a_missing_block_or_a_changed_byte_fails() {
        let missing = report(&[part(2047, 0)]);
        assert!(!missing.ok && missing.closing().contains("2047 of 2048 FAILED (0 missing, 1 corrupt)"));
        let changed = report(&[part(2048, 1)]);
        assert!(!changed.ok && changed.closing().contains("changed  : 1 FAILED"));
    }

    #[test]
    fn json_has_every_figure_of_the_table() {
        insta::assert_snapshot!(report(&[part(2048, 0)]).json());
    }
}
