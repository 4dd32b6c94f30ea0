//! Files that are saved, drawn, and refused.

use super::*;

fn line(size: u64, average: f64) -> bandwidth::Report {
    bandwidth::Report { size, messages: 100, peak: average, average, rate: 0.5 }
}

fn latency_line(size: u64) -> latency::Report {
    latency::Report {
        size,
        iters: 100,
        min: 1.0,
        max: 9.0,
        typical: 1.5,
        average: 2.0,
        deviation: 0.5,
        percentile_99: 4.0,
        percentile_99_9: 8.0,
    }
}

fn run(test: Test, figures: Figures) -> Run {
    Run { test, device: "soft0".into(), wire: "tcp".into(), mtu: 4096, queue_pairs: 1, figures }
}

fn bandwidth_run() -> Run {
    run(Test::WriteBw, Figures::Bandwidth(vec![line(8, 10.0), line(4096, 2000.0)]))
}

fn files(directory: &Path, overlay: &[&str]) -> Files {
    Files {
        json: Some(directory.join("run.json")),
        plot: Some(directory.join("run.svg")),
        overlay: overlay.iter().map(|name| directory.join(name)).collect(),
    }
}

#[test]
fn what_is_saved_is_laid_over_the_next_run() {
    let directory = tempfile::tempdir().unwrap();
    let first = run(Test::WriteLat, Figures::Latency(vec![latency_line(2), latency_line(64)]));
    Outputs::open(&files(directory.path(), &[]), Test::WriteLat).unwrap().write(first.clone()).unwrap();
    assert_eq!(Run::load(&directory.path().join("run.json")).unwrap(), first);
    fs::rename(directory.path().join("run.json"), directory.path().join("before.json")).unwrap();
    let second = Run { queue_pairs: 2, ..first };
    let outputs = Outputs::open(&files(directory.path(), &["before.json"]), Test::WriteLat).unwrap();
    outputs.write(second).unwrap();
    let drawn = fs::read_to_string(directory.path().join("run.svg")).unwrap();
    for label in [
        ">write_lat, soft0, tcp, 2 queue pairs: typical<",
        ">write_lat, soft0, tcp, 2 queue pairs: 99th percentile<",
        ">write_lat, soft0, tcp (before): typical<",
        ">write_lat, soft0, tcp (before): 99th percentile<",
        ">latency (us)<",
    ] {
        assert!(drawn.contains(label), "{label}\n{drawn}");
    }
}

#[test]
fn the_saved_file_is_shaped_so() {
    insta::assert_snapshot!(serde_json::to_string_pretty(&bandwidth_run()).unwrap());
    let latency = run(Test::WriteLat, Figures::Latency(vec![latency_line(2)]));
    insta::assert_snapshot!(serde_json::to_string_pretty(&latency).unwrap());
}

#[test]
fn a_file_that_holds_no_run_is_named_before_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |text: &str| {
        fs::write(directory.path().join("other.json"), text).unwrap();
        Outputs::open(&files(directory.path(), &["other.json"]), Test::WriteBw).unwrap_err()
    };
    let good = serde_json::to_string(&bandwidth_run()).unwrap();
    for bad in [
        String::new(),
        "{}".to_owned(),
        good.replace("write_bw", "write_lat"),
        good.replace("write_bw", "other_bw"),
        good.replace("2000.0", "-1.0"),
        good.replace("2000.0", "1e999"),
        good.replace("\"bytes\":8", "\"bytes\":0"),
        good.replace("\"bytes\":8", "\"bytes\":2147483649"),
        " ".repeat(SAVED_BYTES_MAX as usize + 1),
        serde_json::to_string(&run(Test::WriteBw, Figures::Bandwidth(vec![]))).unwrap(),
    ] {
        let error = refused(&bad);
        assert!(matches!(&error, CurveError::NotARun { .. }), "{bad}: {error}");
        assert!(error.to_string().contains("other.json"), "{error}");
    }
    let latency = run(Test::WriteLat, Figures::Latency(vec![latency_line(2)]));
    let error = refused(&serde_json::to_string(&latency).unwrap());
    assert!(matches!(error, CurveError::OtherMeasure { test: Test::WriteLat, .. }), "{error}");
    let missing = Outputs::open(&files(directory.path(), &["nothing.json"]), Test::WriteBw).unwrap_err();
    assert!(matches!(missing, CurveError::Read { .. }), "{missing}");
}

#[test]
fn a_place_that_cannot_be_written_is_named_before_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let error = Outputs::open(&files(&directory.path().join("nowhere"), &[]), Test::WriteBw).unwrap_err();
    assert!(matches!(error, CurveError::Write { flag: "--json", .. }), "{error}");
    let plot = Files { json: None, ..files(&directory.path().join("nowhere"), &[]) };
    let error = Outputs::open(&plot, Test::WriteBw).unwrap_err();
    assert!(matches!(error, CurveError::Write { flag: "--plot", .. }), "{error}");
}

#[test]
fn an_old_picture_stays_until_the_run_is_complete() {
    let directory = tempfile::tempdir().unwrap();
    let files = files(directory.path(), &[]);
    fs::write(files.plot.as_ref().unwrap(), "old").unwrap();
    drop(Outputs::open(&files, Test::WriteBw).unwrap());
    assert_eq!(fs::read_to_string(files.plot.as_ref().unwrap()).unwrap(), "old");
    Outputs::open(&files, Test::WriteBw).unwrap().write(bandwidth_run()).unwrap();
    let drawn = fs::read_to_string(files.plot.as_ref().unwrap()).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.ends_with("</svg>\n"), "{drawn}");
}
