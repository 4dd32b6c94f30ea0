//! The names of metrics in `docs/metrics.md` and in the files of `deploy`, against those that the library exports.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use rdma_collective::metrics::{Metric, all};
use rdma_core::metrics::{Kind, Unit};

fn path(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(of)
}

fn read(of: &str) -> String {
    std::fs::read_to_string(path(of)).unwrap()
}

/// Each word of the text that begins as the names do.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    words
        .filter(|word| word.starts_with("rdma_") && !["rdma_core", "rdma_collective"].contains(word))
        .collect()
}

/// The names under which Prometheus knows a metric.
fn exported(metric: &Metric) -> Vec<String> {
    match metric.kind {
        Kind::Histogram => ["_bucket", "_sum", "_count"].map(|end| format!("{}{end}", metric.name)).into(),
        _ => vec![metric.name.to_owned()],
    }
}

#[test]
fn a_name_says_its_unit_and_whether_it_only_grows() {
    let names: BTreeSet<_> = all().map(|metric| metric.name).collect();
    assert_eq!(names.len(), all().count(), "a name stands once");
    for Metric { name, kind, unit, labels, .. } in all() {
        assert!(name.starts_with("rdma_") && labels.len() <= 3, "{name}");
        assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
        assert_eq!(name.contains("_seconds"), *unit == Unit::Seconds, "{name}");
        assert_eq!(name.contains("_bytes"), *unit == Unit::Bytes, "{name}");
    }
}

#[test]
fn the_table_of_the_documentation_has_each_metric_with_its_labels() {
    let text = read("docs/metrics.md");
    let rows: BTreeSet<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `rdma_"))
        .map(|row| {
            row.split('|').take(3).map(|cell| cell.replace('`', "").trim().to_owned()).collect::<Vec<_>>()
        })
        .map(|row| (format!("rdma_{}", row[0]), row[1].clone(), row[2].clone()))
        .collect();
    let expected: BTreeSet<_> = all()
        .map(|metric| {
            let unit = format!("{:?}, {:?}", metric.kind, metric.unit).to_lowercase();
            (metric.name.to_owned(), metric.labels.join(", "), unit)
        })
        .collect();
    assert_eq!(rows, expected);
}

#[test]
fn the_dashboard_and_the_alerts_name_no_metric_that_is_not_exported() {
    let exported: BTreeSet<_> = all().flat_map(exported).collect();
    for file in ["deploy/grafana.json", "deploy/alerts.yaml"] {
        let text = read(file);
        let named = names(&text);
        let unknown: Vec<_> = named.iter().filter(|name| !exported.contains(**name)).collect();
        assert!(unknown.is_empty() && named.len() > 5, "{file}: {unknown:?}");
    }
}

#[test]
fn promtool_accepts_the_alerts_and_their_test_passes() {
    for (act, file) in [("check", "deploy/alerts.yaml"), ("test", "deploy/alerts.test.yaml")] {
        match Command::new("promtool").args([act, "rules"]).arg(path(file)).output() {
            Err(_) => println!("left out: promtool is not installed; Debian's package prometheus has it"),
            Ok(said) => assert!(said.status.success(), "{said:?}"),
        }
    }
}
