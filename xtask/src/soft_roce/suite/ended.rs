//! Whether a side of a case ended as it may on a network that was disturbed: with every byte right, or with an error
//! that says who was lost, and what to do.

/// How a process has ended.
pub struct Ended<'a> {
    /// The exit status; `None` when a signal ended the process.
    pub code: Option<i32>,
    /// All that it printed.
    pub output: &'a str,
}

impl Ended<'_> {
    /// Says what is wrong with it.
    ///
    /// `names` is the text that an error has to have, one of several with `|` between them; without it no error may
    /// happen. `lost` tells that nothing but an error is right.
    pub fn judge(&self, names: Option<&str>, lost: bool) -> Result<(), String> {
        if let Some(line) = self.output.lines().find(|line| tells_of_wrong_bytes(line)) {
            return Err(format!("bytes are wrong: {line}"));
        }
        let last = self.output.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        match (self.code, names) {
            (Some(0), _) if lost => Err("it goes on as if nothing was".to_owned()),
            (Some(0), _) => Ok(()),
            (Some(1), None) => Err(format!("the network should have carried it: {last}")),
            (Some(1), Some(names)) if !names.split('|').any(|name| last.contains(name)) => {
                Err(format!("its error names none of {names}: {last}"))
            }
            (Some(1), Some(_)) if !last.contains("; ") => {
                Err(format!("its error says not what to do: {last}"))
            }
            (Some(1), Some(_)) => Ok(()),
            (code, _) => Err(format!("it ended with {code:?}, which is no error of its own: {last}")),
        }
    }
}

/// Whether a line of `allreduce` or `kvcache_transfer` says that what arrived is not what was sent. Blocks that did not
/// arrive are missing, not wrong.
fn tells_of_wrong_bytes(line: &str) -> bool {
    let is_verdict = ["Out of bounds values", "Untrue verdicts", "Other bytes changed"];
    if is_verdict.iter().any(|verdict| line.contains(verdict)) {
        return !line.contains(": 0 OK");
    }
    if line.contains("corrupt") {
        return !line.contains("corrupt: 0") && !line.contains(" 0 corrupt");
    }
    let columns: Vec<&str> = line.split_whitespace().collect();
    let is_row = columns.len() == 13 && columns[0].parse::<u64>().is_ok();
    is_row && [columns[8], columns[12]].iter().any(|wrong| *wrong != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: Option<&str> = Some("rank 1 is lost|the other ranks");
    const LOST: &str = "# header\nallreduce: rank 0: rank 1 is lost; see why\n";

    fn judge(code: i32, output: &str, names: Option<&str>, lost: bool) -> Result<(), String> {
        Ended { code: Some(code), output }.judge(names, lost)
    }

    #[test]
    fn success_is_right_unless_the_peer_was_lost() {
        assert_eq!(judge(0, "fine\n", None, false), Ok(()));
        assert_eq!(judge(0, "fine\n", NAMES, false), Ok(()));
        assert!(judge(0, "fine\n", NAMES, true).is_err());
    }

    #[test]
    fn an_error_has_to_be_expected_to_name_the_peer_and_to_say_what_to_do() {
        assert_eq!(judge(1, LOST, NAMES, true), Ok(()));
        assert!(judge(1, LOST, None, false).is_err());
        assert!(judge(1, "rank 0 is lost; see why\n", NAMES, true).is_err());
        assert!(judge(1, "rank 1 is lost\n", NAMES, true).is_err());
        assert!(judge(1, "rank 1 is lost; see why\nnoise\n", NAMES, true).is_err());
        assert!(judge(101, LOST, NAMES, true).is_err());
        assert!(Ended { code: None, output: LOST }.judge(NAMES, true).is_err());
    }

    #[test]
    fn no_error_excuses_a_wrong_byte() {
        let row = |wrong: u32| format!("1024 256 float sum -1 1.2 0.85 0.85 0 1.1 0.93 0.93 {wrong}\n{LOST}");
        assert_eq!(judge(1, &row(0), NAMES, true), Ok(()));
        assert!(judge(1, &row(4), NAMES, true).is_err());
        for (right, wrong) in [
            (
                "# Blocks verified      : 9 of 16 FAILED (7 missing, 0 corrupt)",
                "FAILED (7 missing, 10 corrupt)",
            ),
            ("# Other bytes changed  : 0 OK", "# Other bytes changed  : 64 FAILED"),
            ("# Out of bounds values : 0 OK", "# Out of bounds values : 10 FAILED"),
            ("# Untrue verdicts      : 0 OK", "# Untrue verdicts      : 1 FAILED"),
            ("# Moved 9 bytes in 2 operations, confirmed after 1 ms; corrupt: 0 OK", "; corrupt: 1 FAILED"),
            ("# Moved 9 bytes; corrupt: 0; requests given up: 0", "# Moved 9 bytes; corrupt: 1; given up: 0"),
        ] {
            assert_eq!(judge(1, &format!("{right}\n{LOST}"), NAMES, true), Ok(()), "{right}");
            assert!(judge(1, &format!("{wrong}\n{LOST}"), NAMES, true).is_err(), "{wrong}");
        }
    }
}
