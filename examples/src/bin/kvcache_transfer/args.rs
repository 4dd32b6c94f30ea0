//! The flags, and the request they describe: how many blocks of how many bytes, in pools how large.

use crate::presets::{self, Request};
use crate::sides::{Both, Heads, Rank, Role, Size, TensorCount};
use clap::Parser;
use clap::builder::NonEmptyStringValueParser;
use examples::fault::CorruptAt;
use examples::metrics::Metrics;
use examples::wire::WireName;
use rdma_collective::kv::layout::Model;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Moves the KV cache of requests from a prefill process to a decode process, and checks every byte
#[derive(Debug, Clone, Parser)]
#[command(name = "kvcache_transfer", version, after_help = AFTER)]
pub struct Args {
    /// Model whose cache is moved
    #[arg(long, default_value = Model::LLAMA_3_1_8B.name, value_parser = str::parse::<Model>, help = model_help())]
    pub model: Model,

    /// Tokens of the prompt
    #[arg(long, value_name = "TOKENS", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=TOKENS_MAX))]
    pub prompt: u32,

    /// Tokens in a block
    #[arg(long, value_name = "TOKENS", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub block: u32,

    /// Print the plan of the request, rank by rank, and do nothing else
    #[arg(long)]
    pub explain: bool,

    /// Draw the plan of the first block in the first layer as SVG
    #[arg(long, value_name = "FILE", requires = "explain")]
    pub plot: Option<PathBuf>,

    /// Tensor-parallel ranks of prefill and of decode, each of which is a process
    #[arg(long, value_name = "PREFILL:DECODE", default_value = "1:1")]
    pub tp: Both<Size>,

    /// Order of tokens and heads in a block of prefill and of decode: nhd or hnd
    #[arg(long, value_name = "PREFILL:DECODE", default_value = "nhd:nhd")]
    pub head_order: Both<Heads>,

    /// Tensors that hold a pool, each registered by itself: one, layer (one for each), part (keys and values of each
    /// layer apart), or how many that are
    #[arg(long, value_name = "TENSORS", default_value = "one")]
    pub tensors: TensorCount,

    /// Requests that are moved one after the other, or several at once; with more than one, a table of latencies
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=REQUESTS_MAX))]
    pub requests: u32,

    /// Requests that are under way at a time; pools have room for twice as many
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=CONCURRENCY_MAX))]
    pub concurrency: u32,

    /// Percentage of requests that decode gives up while their blocks arrive, or while it reads them
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub abort_rate: u8,

    /// Decode reads the blocks from prefill, instead of prefill writing them
    #[arg(long, conflicts_with = "stream")]
    pub pull: bool,

    /// Prefill announces layer by layer, and decode waits for each in turn
    #[arg(long)]
    pub stream: bool,

    /// Decides which blocks of the pools are used and what they hold; the same on both sides
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,

    /// Be one side only, the other being started elsewhere; without it, one command runs both
    #[arg(long, value_enum)]
    pub role: Option<Role>,

    /// Be this tensor-parallel rank of the side; every rank is started by itself
    #[arg(long, value_name = "RANK", default_value_t = 0, requires = "role")]
    pub rank: u32,

    /// Where the other role waits, its rank 0 on this port and each further rank on the next one; without it, a role
    /// waits for the other one
    #[arg(long, value_name = "HOST:PORT", requires = "role")]
    pub peer: Option<String>,

    /// Where rank 0 of a role without --peer waits, and each further rank on the next port; with the software device
    /// between two hosts, name this host's address
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:18600", conflicts_with = "peer")]
    pub listen: SocketAddr,

    /// `auto` (the first usable NIC, else soft), `rdma` (the first usable NIC), `soft`, or a name as in ibv_devices;
    /// one that is named is used or the run fails
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = NonEmptyStringValueParser::new())]
    pub device: String,

    /// How the software device reaches the other side
    #[arg(long, value_enum, value_name = "WIRE", default_value_t = WireName::Auto)]
    pub wire: WireName,

    /// Let the library check each block by checksum, too, which reads all bytes once more on both sides
    #[arg(long)]
    pub checksums: bool,

    /// Print one JSON object instead of the header and the table
    #[arg(long)]
    pub json: bool,

    /// Seconds that connecting, or the transfer, may take: then the run fails
    #[arg(short = 'T', long = "timeout", value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout_s: u64,

    /// For tests: `corrupt@N` flips a byte of the Nth payload that reaches decode
    #[arg(long, hide = true, value_name = "FAULT")]
    pub fault: Option<CorruptAt>,

    /// Metrics for Prometheus.
    #[command(flatten)]
    pub metrics: Metrics,
}

const TOKENS_MAX: i64 = 1 << 27;
const REQUESTS_MAX: i64 = 1 << 30;
/// A link has room for 256 transfers, also for some that have ended and were not yet asked for.
const CONCURRENCY_MAX: i64 = 128;
const AFTER: &str = "\
Exit status:
  0  every block arrived that was not given up, every verdict is true, and no other byte changed
  1  not so, or the run failed: the last line says why
  2  wrong flags";

fn model_help() -> String {
    format!("Model whose cache is moved: {}", presets::names())
}

impl Args {
    /// The request that the flags describe, as a rank has it.
    ///
    /// # Errors
    ///
    /// A rank that there is not, ranks or tensors that the model cannot be split into, pools beyond what can be
    /// addressed, and several ranks with more than one request.
    pub fn request(&self, rank: Rank) -> anyhow::Result<Request> {
        anyhow::ensure!(
            self.tp == Both([Size(1); 2]) || !self.many(),
            "--tp moves one request: leave out --requests and --abort-rate, or --tp"
        );
        Request::new(self, rank)
    }

    /// The ranks of one side.
    pub fn ranks(&self, role: Role) -> impl Iterator<Item = Rank> + use<> {
        (0..self.tp.of(role).0).map(move |number| Rank { role, number })
    }

    /// Requests under way at a time, of which there are no more than requests.
    pub fn concurrency(&self) -> u32 {
        self.concurrency.min(self.requests)
    }

    /// Whether there is a table of latencies, or that of the one request.
    pub fn many(&self) -> bool {
        self.requests > 1 || self.abort_rate > 0
    }

    /// The longest time that any one wait may take.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(line.split(' '))
    }

    #[test]
    fn help() {
        Args::command().debug_assert();
        insta::assert_snapshot!(Args::command().render_long_help());
    }

    #[test]
    fn models_are_found_in_any_case() {
        let args = parse("kvcache_transfer --model deepseek-v3 --prompt 64 --block 64").unwrap();
        assert_eq!(args.request(Rank::default()).unwrap().bytes(), 64 * 70_272);
        assert_eq!(parse("kvcache_transfer").unwrap().model, Model::LLAMA_3_1_8B);
    }

    #[test]
    fn pools_have_room_for_twice_what_is_under_way() {
        let blocks = |line: &str| parse(line).unwrap().request(Rank::default()).unwrap().pool_blocks();
        assert_eq!(blocks("kvcache_transfer --prompt 80"), 10);
        assert_eq!(blocks("kvcache_transfer --prompt 80 --requests 9 --concurrency 4"), 40);
        assert_eq!(blocks("kvcache_transfer --prompt 80 --requests 2 --concurrency 4"), 20);
    }

    #[test]
    fn flags_that_do_not_go_together_are_refused() {
        for line in [
            "kvcache_transfer --peer host:1",
            "kvcache_transfer --role decode --peer host:1 --listen 0.0.0.0:2",
            "kvcache_transfer --prompt 0",
            "kvcache_transfer --block 0",
            "kvcache_transfer --prompt 99999999999",
            "kvcache_transfer --model gpt",
            "kvcache_transfer --role both",
            "kvcache_transfer -T 0",
            "kvcache_transfer --requests 0",
            "kvcache_transfer --pull --stream",
            "kvcache_transfer --concurrency 129",
            "kvcache_transfer --abort-rate 101",
            "kvcache_transfer --rank 1",
            "kvcache_transfer --tp 0:1",
            "kvcache_transfer --tp 1:65",
            "kvcache_transfer --head-order nhd:dhn",
            "kvcache_transfer --tensors few",
            "kvcache_transfer --plot plan.svg",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
