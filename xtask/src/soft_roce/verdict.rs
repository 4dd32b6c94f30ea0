//! The line by which a guest says how its command ended. A guest that says nothing, or two things, has failed:
//! an emulator that died half way must never look like a pass.

/// How every verdict line starts.
pub const PREFIX: &str = "SOFT-ROCE-VERDICT:";

/// A guest's verdict on its command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The command ended with status 0.
    Ok,
    /// The command ended with this status, or a step before it failed.
    Failed(String),
}

/// Reads the verdict out of all that a guest wrote, `None` when it has not given one.
pub fn read(text: &str) -> Option<Verdict> {
    let mut verdicts = text.lines().filter_map(|line| line.trim().strip_prefix(PREFIX)).map(parse);
    let first = verdicts.next()?;
    match verdicts.find(|other| *other != first) {
        None => Some(first),
        Some(other) => Some(Verdict::Failed(format!("contradicting verdicts: {first:?} and {other:?}"))),
    }
}

fn parse(verdict: &str) -> Verdict {
    match verdict.trim() {
        "ok" => Verdict::Ok,
        other => Verdict::Failed(match other.strip_prefix("failed ") {
            Some(code) if code.parse::<u8>().is_ok() => format!("the command ended with status {code}"),
            Some(reason) => reason.to_owned(),
            None => format!("an unknown verdict: {other:?}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_no_verdict() {
        assert_eq!(read(""), None);
        assert_eq!(read("everything went well\nverdict: ok\n"), None);
    }

    #[test]
    fn a_verdict_is_found_among_other_lines() {
        assert_eq!(read("noise\nSOFT-ROCE-VERDICT: ok\r\nmore\n"), Some(Verdict::Ok));
        let failed = Verdict::Failed("the command ended with status 3".to_owned());
        assert_eq!(read("SOFT-ROCE-VERDICT: failed 3\n"), Some(failed));
        let setup = Verdict::Failed("setup (modprobe rdma_rxe)".to_owned());
        assert_eq!(read("SOFT-ROCE-VERDICT: failed setup (modprobe rdma_rxe)\n"), Some(setup));
    }

    #[test]
    fn the_same_verdict_twice_is_one() {
        assert_eq!(read("SOFT-ROCE-VERDICT: ok\nSOFT-ROCE-VERDICT: ok\n"), Some(Verdict::Ok));
    }

    #[test]
    fn two_verdicts_that_differ_are_a_failure() {
        let verdict = read("SOFT-ROCE-VERDICT: ok\nSOFT-ROCE-VERDICT: failed 1\n");
        assert!(matches!(verdict, Some(Verdict::Failed(reason)) if reason.contains("contradicting")));
    }

    #[test]
    fn an_unknown_verdict_is_a_failure() {
        for text in ["SOFT-ROCE-VERDICT: okay\n", "SOFT-ROCE-VERDICT:\n"] {
            assert!(
                matches!(read(text), Some(Verdict::Failed(reason)) if reason.contains("unknown")),
                "{text}"
            );
        }
    }
}
