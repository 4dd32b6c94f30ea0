//! The file of `-J`: what the table says, shaped as nccl-tests writes it (its version 3).

use super::header::Config;
use super::{Closing, Measured, Row};
use serde::{Serialize, Serializer};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const FORMAT_VERSION: u32 = 3;

/// Everything a run has to say.
#[derive(Debug, Clone)]
pub struct Report {
    /// When the run began.
    pub started: SystemTime,
    /// When it ended.
    pub ended: SystemTime,
    /// The command line.
    pub args: Vec<String>,
    /// The variables that steer the run, as `NAME=value`; never the whole environment, which may hold secrets.
    pub env: Vec<String>,
    /// Request of the run.
    pub config: Config,
    /// Measured rows.
    pub rows: Vec<Row>,
    /// Errors of the run, in words.
    pub errors: Vec<String>,
}

/// Makes the file now, so that a path that cannot be written is known before the run and not after it.
///
/// As in nccl-tests an existing file is never overwritten: `.0`, `.1` and so on are tried, up to 1000.
///
/// # Errors
///
/// The system's error at the last path tried.
pub fn create(path: &Path) -> io::Result<(PathBuf, File)> {
    let mut attempt = path.to_owned();
    for number in 0..1000 {
        match File::create_new(&attempt) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let mut name = path.as_os_str().to_owned();
                name.push(format!(".{number}"));
                attempt = name.into();
            }
            done => return done.map(|file| (attempt, file)),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

impl Report {
    /// Writes the report.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn write(&self, mut file: impl Write) -> io::Result<()> {
        let closing = Closing::of(&self.rows);
        let document = Document {
            version: FORMAT_VERSION,
            start_time: stamp(self.started),
            args: &self.args,
            env: &self.env,
            config: &self.config,
            results: self.rows.iter().map(|row| Result { row, iterations: self.config.iterations }).collect(),
            out_of_bounds: OutOfBounds { count: closing.out_of_bounds, okay: truth(closing.ok()) },
            average_bus_bandwidth: Average { bandwidth: closing.average_busbw, okay: "unchecked" },
            errors: &self.errors,
            end_time: stamp(self.ended),
        };
        serde_json::to_writer_pretty(&mut file, &document)?;
        file.write_all(b"\n")?;
        file.flush()
    }
}

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    start_time: String,
    args: &'a [String],
    env: &'a [String],
    config: &'a Config,
    results: Vec<Result<'a>>,
    out_of_bounds: OutOfBounds,
    average_bus_bandwidth: Average,
    errors: &'a [String],
    end_time: String,
}

struct Result<'a> {
    row: &'a Row,
    iterations: u32,
}

#[derive(Serialize)]
struct OutOfBounds {
    count: u64,
    okay: &'static str,
}

#[derive(Serialize)]
struct Average {
    bandwidth: f64,
    okay: &'static str,
}

impl Serialize for Result<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let Row { bytes, count, dtype, redop, root, out_of_place, in_place } = self.row;
        let mut object = serializer.serialize_struct("result", 9)?;
        object.serialize_field("size", bytes)?;
        object.serialize_field("count", count)?;
        object.serialize_field("type", dtype)?;
        object.serialize_field("redop", redop)?;
        object.serialize_field("root", &root.to_string())?;
        object.serialize_field("out_of_place", &Half::from(out_of_place))?;
        object.serialize_field("in_place", &Half::from(in_place))?;
        object.serialize_field("actual_iterations", &self.iterations)?;
        object.serialize_field("experiment_name", "")?;
        object.end()
    }
}

#[derive(Serialize)]
struct Half {
    time: f64,
    alg_bw: f64,
    bus_bw: f64,
    nwrong: Option<f64>,
}

impl From<&Measured> for Half {
    fn from(measured: &Measured) -> Self {
        let Measured { time_us, algbw, busbw, wrong } = *measured;
        Self { time: time_us, alg_bw: algbw, bus_bw: busbw, nwrong: wrong.map(|wrong| wrong as f64) }
    }
}

/// nccl-tests writes truth values as text.
fn truth(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

/// `2026-07-30 12:00:00`, in UTC.
fn stamp(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string().replace('T', " ").replace('Z', "")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::time::Duration;

    pub fn report() -> Report {
        let started = SystemTime::UNIX_EPOCH + Duration::from_secs(1_785_412_800);
        let row = Row {
            bytes: 1 << 20,
            count: 1 << 18,
            dtype: "float".into(),
            redop: "sum".into(),
            root: -1,
            out_of_place: Measured::new(1 << 20, 1.0, 1e-3, Some(0)),
            in_place: Measured::new(1 << 20, 1.0, 2e-3, None),
        };
        Report {
            started,
            ended: started + Duration::from_secs(61),
            args: vec!["allreduce".into(), "-b".into(), "1M".into()],
            env: vec!["NCCL_DEBUG=INFO".into()],
            config: super::super::header::tests::config(),
            rows: vec![row],
            errors: vec![],
        }
    }

    #[test]
    fn the_file_is_shaped_as_nccl_tests_writes_it() {
        let mut bytes = Vec::new();
        report().write(&mut bytes).unwrap();
        insta::assert_snapshot!(String::from_utf8(bytes).unwrap());
    }

    #[test]
    fn a_wrong_element_is_not_okay() {
        let mut report = report();
        report.rows[0].in_place.wrong = Some(3);
        let mut bytes = Vec::new();
        report.write(&mut bytes).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(json["out_of_bounds"], serde_json::json!({ "count": 1, "okay": "false" }));
        assert_eq!(json["results"][0]["in_place"]["nwrong"], 3.0);
    }

    #[test]
    fn an_existing_file_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        assert_eq!(create(&path).unwrap().0, path);
        assert_eq!(create(&path).unwrap().0, folder.path().join("run.json.0"));
        assert_eq!(create(&path).unwrap().0, folder.path().join("run.json.1"));
        assert!(create(&folder.path().join("missing/run.json")).is_err());
    }
}
