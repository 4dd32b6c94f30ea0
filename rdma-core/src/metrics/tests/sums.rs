//! A recorder that adds up what it is told. Whoever includes this file has the facade in scope.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::facade::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

/// The sums by name and labels, as `name label=value`.
pub type Seen = Arc<Mutex<BTreeMap<String, f64>>>;

/// A recorder that adds all up, and calls `each` with the name before.
pub struct Sums {
    pub seen: Seen,
    pub each: fn(&str),
}

struct Sum(Seen, String, fn(&str));

impl Sum {
    fn add(&self, by: f64) {
        (self.2)(&self.1);
        *self.0.lock().unwrap().entry(self.1.clone()).or_default() += by;
    }
}

impl CounterFn for Sum {
    fn increment(&self, by: u64) {
        self.add(by as f64);
    }
    fn absolute(&self, _: u64) {}
}

impl GaugeFn for Sum {
    fn increment(&self, by: f64) {
        self.add(by);
    }
    fn decrement(&self, by: f64) {
        self.add(-by);
    }
    fn set(&self, _: f64) {}
}

impl HistogramFn for Sum {
    fn record(&self, value: f64) {
        self.add(value);
    }
}

impl Sums {
    fn of(&self, key: &Key) -> Arc<Sum> {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let name = [&[key.name().to_owned()], &labels[..]].concat().join(" ");
        Arc::new(Sum(Arc::clone(&self.seen), name, self.each))
    }
}

impl Recorder for Sums {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.of(key))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.of(key))
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.of(key))
    }
}
