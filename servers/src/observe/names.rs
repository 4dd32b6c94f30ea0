//! The names of the metrics, each with its help.

/// The kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number that only grows.
    Counter,
    /// A number that goes up and down.
    Gauge,
    /// Counts of values, by their size.
    Histogram,
}

/// Texts that have ended, by outcome.
pub const REQUESTS: &str = "mini_server_requests_total";
/// Tokens that were told.
pub const TOKENS: &str = "mini_server_tokens_total";
/// Time up to the first token of an answer.
pub const FIRST_TOKEN: &str = "mini_server_time_to_first_token_seconds";
/// Time between two tokens of an answer.
pub const BETWEEN_TOKENS: &str = "mini_server_time_between_tokens_seconds";
/// Texts that are computed.
pub const RUNNING: &str = "mini_server_running";
/// Texts that wait to be computed.
pub const WAITING: &str = "mini_server_waiting";
/// Blocks that no text has.
pub const BLOCKS_FREE: &str = "mini_server_blocks_free";
/// Blocks that are kept for texts that begin alike.
pub const BLOCKS_KEPT: &str = "mini_server_blocks_kept";
/// Texts that lost the server that had them.
pub const LOST: &str = "mini_server_lost_total";
/// Texts that another server went on with.
pub const RESUMED: &str = "mini_server_resumed_total";
/// Bytes of blocks that came or went.
pub const KV_BYTES: &str = "mini_server_kv_bytes_total";

/// All names, their kinds and their help. Each has the labels `role` and `server`, and the first one `outcome`, too.
pub const NAMES: [(&str, Kind, &str); 11] = [
    (
        REQUESTS,
        Kind::Counter,
        "Texts that have ended, by outcome: answered, refused, unavailable, failed, aborted.",
    ),
    (TOKENS, Kind::Counter, "Tokens of answers that this server told."),
    (FIRST_TOKEN, Kind::Histogram, "Time from a request to the first token of its answer."),
    (BETWEEN_TOKENS, Kind::Histogram, "Time between two tokens of an answer."),
    (RUNNING, Kind::Gauge, "Texts that the model computes."),
    (WAITING, Kind::Gauge, "Texts that wait for the model."),
    (BLOCKS_FREE, Kind::Gauge, "Blocks of the cache that no text has."),
    (BLOCKS_KEPT, Kind::Gauge, "Blocks of the cache that are kept for texts that begin alike."),
    (LOST, Kind::Counter, "Times that a text lost the decode or the prefill that had it."),
    (RESUMED, Kind::Counter, "Times that another decode or prefill went on with such a text."),
    (KV_BYTES, Kind::Counter, "Bytes of blocks that came from prefills, or went to decodes."),
];
