//! `--metrics`: what the libraries count, served for Prometheus.

use std::net::SocketAddr;

/// The flag of all programs. A program that is built without the feature `metrics` refuses it.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Metrics {
    /// Serve metrics for Prometheus at this address; of several ranks on a host, each at the next port
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub metrics: Option<SocketAddr>,
}

impl Metrics {
    /// Serves the metrics, if that is asked for, at the port of rank `number` on this host. Call it before anything of
    /// the libraries is made.
    ///
    /// # Errors
    ///
    /// The address cannot be listened at.
    pub fn serve(&self, number: u32) -> anyhow::Result<()> {
        #[cfg(feature = "metrics")]
        if let Some(address) = self.metrics {
            return serve(address, number);
        }
        let _ = number;
        Ok(())
    }
}

#[cfg(not(feature = "metrics"))]
fn address(_: &str) -> Result<SocketAddr, String> {
    Err("this program was built without metrics; build it by `cargo build -p examples --features metrics`"
        .to_owned())
}

#[cfg(feature = "metrics")]
fn address(text: &str) -> Result<SocketAddr, std::net::AddrParseError> {
    text.parse()
}

#[cfg(feature = "metrics")]
fn serve(mut address: SocketAddr, number: u32) -> anyhow::Result<()> {
    use anyhow::Context;
    use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

    /// Upper bounds of the histograms in seconds: from a small all-reduce to a transfer that is late.
    const BUCKETS: [f64; 15] =
        [1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0];
    let port = u32::from(address.port()).saturating_add(number);
    address.set_port(u16::try_from(port).context("--metrics: no port is left for this rank")?);
    PrometheusBuilder::new()
        .with_http_listener(address)
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS)
        .and_then(PrometheusBuilder::install)
        .with_context(|| format!("--metrics: nothing can be served at {address}"))?;
    rdma_collective::metrics::describe();
    Ok(())
}
