//! The page of metrics that Prometheus reads.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use axum::{Json, Router};
use metrics::{describe_counter, describe_gauge, describe_histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::sync::Mutex;

use super::Stats;
use super::names::{Kind, NAMES};

/// Time for which a page is shown again, so that a reader without a pause costs no more than ten pages a second.
const LASTS: Duration = Duration::from_millis(100);
/// Time between two times that values of histograms are put into their buckets. Until then each takes memory.
const UPKEEP: Duration = Duration::from_secs(5);
/// The bounds of the buckets of all histograms, in seconds.
const BUCKETS: [f64; 20] = [
    0.00001, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0, 20.0, 40.0, 60.0,
];
/// The format of the page.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The recorder of this process, which has the metrics of all its servers and of the library.
pub(super) fn recorder() -> &'static PrometheusHandle {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    RECORDER.get_or_init(|| {
        let seconds = Matcher::Suffix("_seconds".to_owned());
        let builder = PrometheusBuilder::new().set_buckets_for_metric(seconds, &BUCKETS).unwrap_or_default();
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        // A program that has a recorder already hears of the metrics by that one.
        if metrics::set_global_recorder(recorder).is_ok() {
            rdma_collective::metrics::describe();
            for (name, kind, help) in NAMES {
                match kind {
                    Kind::Counter => describe_counter!(name, help),
                    Kind::Gauge => describe_gauge!(name, help),
                    Kind::Histogram => describe_histogram!(name, help),
                }
            }
        }
        handle
    })
}

/// A page that is shown again for a while.
struct Page<M> {
    make: M,
    last: Mutex<Option<(Instant, Bytes)>>,
}

impl<M: Fn() -> String> Page<M> {
    fn new(make: M) -> Self {
        Self { make, last: Mutex::new(None) }
    }

    /// The page. One reader makes it, while others wait for it.
    async fn show(&self) -> Bytes {
        let mut last = self.last.lock().await;
        let fresh = last.as_ref().filter(|(made, _)| made.elapsed() < LASTS);
        if let Some((_, page)) = fresh {
            return page.clone();
        }
        let page = Bytes::from((self.make)());
        *last = Some((Instant::now(), page.clone()));
        page
    }
}

/// The routes of the figures of a server: `/metrics`, and `/stats` in JSON.
pub fn routes(stats: &Arc<Stats>) -> Router {
    let (stats, handle) = (Arc::clone(stats), recorder());
    let of = Arc::clone(&stats);
    let page = Arc::new(Page::new(move || {
        of.cache();
        handle.render()
    }));
    let show = async move || ([(CONTENT_TYPE, TEXT)], page.show().await);
    Router::new().route("/metrics", get(show)).route("/stats", get(async move || Json(stats.report())))
}

/// Keeps the memory of histograms small, for ever.
pub async fn keep() {
    loop {
        recorder().run_upkeep();
        tokio::time::sleep(UPKEEP).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn a_page_is_made_ten_times_a_second_at_most() {
        let made = Cell::new(0_u32);
        let page = Page::new(|| {
            made.set(made.get() + 1);
            made.get().to_string()
        });
        let began = Instant::now();
        let mut shown = 0_u64;
        while began.elapsed() < 3 * LASTS {
            page.show().await;
            shown += 1;
        }
        let most = 1 + began.elapsed().as_millis() / LASTS.as_millis();
        assert!(u128::from(made.get()) <= most, "{} pages of {shown} readers, at most {most}", made.get());
        assert!(made.get() >= 2, "it is made anew");
    }
}
