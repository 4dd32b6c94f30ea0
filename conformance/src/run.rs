//! Runs cases one by one, each under a watchdog.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use crate::deviations::{self, Deviation};
use crate::{Case, CaseResult, Lab, Outcome, Report};

/// Time beyond the patience of the lab after which a running case counts as hanging.
const HANG_AFTER: Duration = Duration::from_secs(120);

/// Runs `cases` on `lab`, and calls `each` with every outcome.
///
/// A case that hangs fails and ends the run, because its thread cannot be stopped and still uses the device.
pub fn run(lab: &Arc<Lab>, cases: &[Case], mut each: impl FnMut(&'static str, &Outcome)) -> Report {
    let known = deviations::of(lab);
    let mut report = Report::default();
    for case in cases {
        let (outcome, hangs) =
            run_case(lab, case, known.iter().find(|deviation| deviation.case == case.name));
        each(case.name, &outcome);
        report.outcomes.push((case.name, outcome));
        if hangs {
            break;
        }
    }
    report
}

fn run_case(lab: &Arc<Lab>, case: &Case, deviation: Option<&Deviation>) -> (Outcome, bool) {
    let (body, why) = match deviation {
        Some(deviation) => (deviation.instead, Some(deviation.why)),
        None => (case.run, None),
    };
    match watch(lab, body) {
        None => {
            (Outcome::Failed(format!("hangs: still running after {:?}", lab.patience + HANG_AFTER)), true)
        }
        Some(Err(error)) => {
            let what = if why.is_some() { "the known deviation does not hold any more: " } else { "" };
            (Outcome::Failed(format!("{what}{error}")), false)
        }
        Some(Ok(())) => (why.map_or(Outcome::Passed, |why| Outcome::Skipped(why.to_owned())), false),
    }
}

/// Runs a case on a thread of its own. Returns `None` when the case does not end; a panic is an error.
fn watch(lab: &Arc<Lab>, body: fn(&Lab) -> CaseResult) -> Option<CaseResult> {
    let (tell, told) = mpsc::channel();
    let own = Arc::clone(lab);
    let spawned = std::thread::Builder::new().name("case".to_owned()).spawn(move || {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&own)));
        let _ = tell.send(result.unwrap_or_else(|_| Err("panicked".into())));
    });
    match spawned {
        Err(error) => Some(Err(error.into())),
        Ok(_) => told.recv_timeout(lab.patience + HANG_AFTER).ok(),
    }
}
