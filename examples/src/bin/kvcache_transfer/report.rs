//! The result of a transfer: the header, the closing table and the JSON. This file measures nothing.

use crate::args::Args;
use crate::content::Verified;
use crate::presets::Request;
use examples::columns::header::{Refused, refused_lines};
use examples::sizes::format_rounded;
use serde::Serialize;

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
    pub descriptors: u32,
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
    /// Puts together what was asked for and what came of it.
    pub fn new(args: &Args, request: &Request, device: Device, moved: Moved, verified: Verified) -> Self {
        let gigabytes_per_second =
            if moved.last_block_s > 0.0 { moved.bytes as f64 / 1e9 / moved.last_block_s } else { 0.0 };
        let wrong = request.layer_blocks().saturating_sub(verified.blocks);
        Self {
            model: args.model.name.to_owned(),
            prompt: args.prompt,
            block: args.block,
            seed: args.seed,
            device,
            bytes: moved.bytes,
            blocks: request.layer_blocks(),
            descriptors: moved.descriptors,
            last_block_ms: moved.last_block_s * 1e3,
            gigabytes_per_second,
            blocks_verified: verified.blocks,
            blocks_missing: moved.missing.min(wrong),
            blocks_corrupt: wrong.saturating_sub(moved.missing),
            other_bytes_changed: verified.other_bytes,
            ok: wrong == 0 && verified.other_bytes == 0,
            error: None,
        }
    }

    /// The transfer ended early.
    pub fn fail(&mut self, error: String) {
        (self.ok, self.error) = (false, Some(error));
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

/// Figures of the transfer itself; all 0 when it ended early.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Moved {
    /// Bytes that arrived.
    pub bytes: u64,
    /// Writes that carried them.
    pub descriptors: u32,
    /// Seconds from the grant until the last block could be used.
    pub last_block_s: f64,
    /// Blocks that did not arrive.
    pub missing: u64,
}

/// The lines above the progress bar.
pub fn header(args: &Args, request: &Request, device: &Device) -> String {
    let Request { layout, blocks } = request;
    let (layers, pool_blocks) = (request.layers(), request.pool_blocks());
    format!(
        "# kvcache_transfer: {}, {} tokens, {layers} layers of {blocks} blocks of {} tokens ({}), seed {}\n\
         # Moving {}, in pools of {pool_blocks} blocks a layer, {} a side\n\
         # Using device {}, wire {}, GID {}\n{}#\n",
        args.model.name,
        args.prompt,
        args.block,
        format_rounded(layout.layer_block_bytes()),
        args.seed,
        format_rounded(request.bytes()),
        format_rounded(layout.bytes()),
        device.name,
        device.wire,
        device.gid,
        refused_lines("# ", &device.refused),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn device() -> Device {
        let refused = Refused { device: "mlx5_0".into(), reason: "port 1 is DOWN".into() };
        Device { name: "soft0".into(), wire: "tcp".into(), gid: "1 ::1".into(), refused: vec![refused] }
    }

    fn report(verified: Verified) -> Report {
        let args = Args::parse_from(["kvcache_transfer"]);
        let moved = Moved { bytes: 1 << 27, descriptors: 2048, last_block_s: 0.125, missing: 0 };
        Report::new(&args, &args.request().unwrap(), device(), moved, verified)
    }

    #[test]
    fn the_output_reads_from_top_to_bottom() {
        let args = Args::parse_from(["kvcache_transfer"]);
        let report = report(Verified { blocks: 2048, other_bytes: 0 });
        assert!(report.ok);
        insta::assert_snapshot!(header(&args, &args.request().unwrap(), &device()) + &report.closing());
    }

    #[test]
    fn a_missing_block_or_a_changed_byte_fails() {
        let missing = report(Verified { blocks: 2047, other_bytes: 0 });
        assert!(!missing.ok && missing.closing().contains("2047 of 2048 FAILED (0 missing, 1 corrupt)"));
        let changed = report(Verified { blocks: 2048, other_bytes: 1 });
        assert!(!changed.ok && changed.closing().contains("changed  : 1 FAILED"));
    }

    #[test]
    fn json_has_every_figure_of_the_table() {
        insta::assert_snapshot!(report(Verified { blocks: 2048, other_bytes: 0 }).json());
    }
}
