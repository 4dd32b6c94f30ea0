//! Fuzzing of the environment: any variables give a launch that makes sense, or an error that names a variable.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::table::VARIABLES;
use super::{Environment, Variables};
use crate::env::EnvError;
use crate::env::error::EnvErrorKind;

/// See [`crate::fuzzing::environment`].
pub(crate) fn fuzz(data: &[u8]) {
    let variables: Variables = data.split(|byte| *byte == b'\n').filter_map(setting).collect();
    match Environment::read(&variables) {
        Ok(environment) => {
            let report = environment.report();
            assert!(report.iter().all(|line| !line.is_empty()));
            if let Some(launch) = environment.launch {
                assert!(launch.rank < launch.world && report.len() >= 2);
            }
        }
        Err(EnvError(EnvErrorKind::NotListed { .. })) => {}
        Err(error) => {
            let told = error.to_string();
            let names = VARIABLES.iter().any(|variable| told.contains(variable.name)) || told.contains("VC_");
            assert!(names, "{told}");
        }
    }
}

/// `name=value`, or the number of a variable of the table before its value.
fn setting(line: &[u8]) -> Option<(OsString, OsString)> {
    let text = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    let (first, value) = line.split_first()?;
    if let Some(variable) = VARIABLES.get(usize::from(*first)) {
        return Some((variable.name.into(), text(value)));
    }
    let at = line.iter().position(|byte| *byte == b'=')?;
    Some((text(line.get(..at)?), text(line.get(at + 1..)?)))
}
