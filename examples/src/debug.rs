//! `NCCL_DEBUG`: what the library says of itself goes to standard error, in lines like NCCL's.

use crate::output::{self, complain};
use rdma_collective::env::DebugLevel;
use std::fmt;
use std::io::IsTerminal;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Says from now on what happens in the library, as much as `level` asks for; `rank` is this process's.
///
/// Only the first call counts.
pub fn say_what_happens(level: DebugLevel, rank: Option<u32>) {
    let most = match level {
        DebugLevel::None | DebugLevel::Version => return,
        DebugLevel::Warn => LevelFilter::WARN,
        DebugLevel::Info => LevelFilter::INFO,
        DebugLevel::Trace => LevelFilter::TRACE,
    };
    let lines = tracing_subscriber::fmt().with_ansi(std::io::stderr().is_terminal());
    let lines = lines.event_format(Lines::of(rank)).with_writer(|| output::Log);
    // Fails when somebody listens already: then that one tells it.
    let _ = tracing::subscriber::set_global_default(lines.with_max_level(most).finish());
}

/// Says what the variables come to, once a job, when `NCCL_DEBUG` is at least `INFO`; and which version runs, from
/// `VERSION` on.
pub fn say_which_variables_won(level: DebugLevel, report: &[String]) {
    if level >= DebugLevel::Version {
        complain(format_args!("rdma-collective version {}", env!("CARGO_PKG_VERSION")));
    }
    for line in report {
        tracing::info!("{line}");
    }
}

/// `host:process:thread [rank] NCCL INFO what happened`.
struct Lines {
    host: String,
    rank: String,
}

impl Lines {
    fn of(rank: Option<u32>) -> Self {
        let uname = rustix::system::uname();
        let host = uname.nodename().to_string_lossy();
        let host = host.split('.').next().unwrap_or_default().to_owned();
        Self { host, rank: rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string()) }
    }
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut to: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = match *event.metadata().level() {
            Level::ERROR | Level::WARN => "WARN",
            Level::INFO => "INFO",
            _ => "TRACE",
        };
        let (process, thread) = (std::process::id(), rustix::thread::gettid().as_raw_nonzero());
        write!(to, "{}:{process}:{thread} [{}] NCCL {level} ", self.host, self.rank)?;
        context.field_format().format_fields(to.by_ref(), event)?;
        writeln!(to)
    }
}
