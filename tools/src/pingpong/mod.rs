//! `pingpong`, the twin of `ibv_rc_pingpong`: two sides send each other one message in turns, over a reliable
//! connection. Both programs understand each other.

mod bytes;
pub(crate) mod meeting;
mod rally;
pub(crate) mod side;
mod text;

use std::time::Duration;

use anyhow::{bail, ensure};
use meeting::Meeting;
use rdma_core::PortNum;
use rdma_core::doctor::{Finding, Machine, Refusal, Wants};
use serde::Serialize;
use side::{NoDevice, Side};
use text::Address;

use crate::cli::Pingpong;
use crate::output::{say, say_json};

/// The result of a run, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Report {
    local: Place,
    remote: Place,
    bytes: u64,
    iters: u32,
    seconds: f64,
    mbit_per_second: f64,
    usec_per_iter: f64,
    /// Pages in which `-c` found a wrong byte.
    invalid_pages: Vec<usize>,
}

#[derive(Debug, Serialize)]
struct Place {
    lid: u16,
    qpn: u32,
    psn: u32,
    gid: String,
}

/// Runs one side.
pub fn run(flags: &Pingpong) -> anyhow::Result<()> {
    if let Some((flag, reason)) = flags.refused.reason() {
        bail!("{flag} is refused: {reason}; leave it out");
    }
    let tell = |line: String| if flags.format.json { Ok(()) } else { say(line) };
    let side = Side::create(flags)?;
    let local = side.address;
    tell(format!("  local address:  {local}\n"))?;
    let within = Duration::from_secs(flags.timeout_s);
    let (mut connected, remote) = match &flags.host {
        Some(host) => {
            let mut meeting = Meeting::connect(host, flags.port, within)?;
            meeting.tell(&local)?;
            let remote = meeting.hear()?;
            meeting.say_done()?;
            tell(format!("  remote address: {remote}\n"))?;
            (side.connect(flags, &remote)?, remote)
        }
        None => {
            let mut meeting = Meeting::accept(flags.port, within)?;
            let remote = meeting.hear()?;
            // Before the answer, because the client sends as soon as it has the answer.
            let connected = side.connect(flags, &remote)?;
            meeting.tell(&local)?;
            meeting.await_done()?;
            tell(format!("  remote address: {remote}\n"))?;
            (connected, remote)
        }
    };
    let elapsed = connected.play(flags)?;
    let invalid_pages = if flags.check { connected.check()? } else { Vec::new() };
    let report = Report::new(flags, [local, remote], elapsed, invalid_pages);
    if flags.format.json { say_json(&report) } else { say(report.text()) }?;
    ensure!(
        report.invalid_pages.is_empty(),
        "-c found wrong bytes in {} of the pages that arrived; the client must have -c as well, or the path spoils data",
        report.invalid_pages.len()
    );
    Ok(())
}

/// Returns the doctor's findings that bear on an error of [`run`]; most errors are no refusal, and have none.
pub fn findings(flags: &Pingpong, error: &anyhow::Error) -> Vec<Finding> {
    if flags.soft.address.is_some() {
        return Vec::new();
    }
    let of_none = || error.is::<NoDevice>().then_some(Refusal::Device { name: None });
    let Some(refusal) = Refusal::of(error.as_ref()).or_else(of_none) else { return Vec::new() };
    let mut wants = Wants::default();
    (wants.device, wants.gid_index) = (flags.device.clone(), flags.gid_index);
    wants.port = Some(PortNum(flags.ib_port));
    Machine::read("/").bearing_on(&refusal, &wants)
}

impl Report {
    fn new(
        flags: &Pingpong,
        [local, remote]: [Address; 2],
        elapsed: Duration,
        invalid_pages: Vec<usize>,
    ) -> Self {
        let bytes = u64::from(flags.size) * u64::from(flags.iters) * 2;
        let usec = elapsed.as_secs_f64() * 1e6;
        Self {
            local: Place::of(&local),
            remote: Place::of(&remote),
            bytes,
            iters: flags.iters,
            seconds: elapsed.as_secs_f64(),
            mbit_per_second: bytes as f64 * 8.0 / usec,
            usec_per_iter: usec / f64::from(flags.iters),
            invalid_pages,
        }
    }

    fn text(&self) -> String {
        let Self { bytes, iters, seconds, mbit_per_second, usec_per_iter, invalid_pages, .. } = self;
        let pages = invalid_pages.iter().map(|page| format!("invalid data in page {page}\n"));
        format!(
            "{bytes} bytes in {seconds:.2} seconds = {mbit_per_second:.2} Mbit/sec\n\
             {iters} iters in {seconds:.2} seconds = {usec_per_iter:.2} usec/iter\n{}",
            pages.collect::<String>()
        )
    }
}

impl Place {
    fn of(address: &Address) -> Self {
        let Address { lid, qp_num, psn, gid } = address;
        Self { lid: lid.0, qpn: qp_num.0, psn: psn.value(), gid: gid.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_printed_as_the_c_program_prints_them() {
        let place = || Place { lid: 0, qpn: 0, psn: 0, gid: String::new() };
        let report = Report {
            local: place(),
            remote: place(),
            bytes: 8_192_000,
            iters: 1000,
            seconds: 0.008_27,
            mbit_per_second: 7924.55,
            usec_per_iter: 8.27,
            invalid_pages: vec![0, 2],
        };
        assert_eq!(
            report.text(),
            "8192000 bytes in 0.01 seconds = 7924.55 Mbit/sec\n1000 iters in 0.01 seconds = 8.27 usec/iter\n\
             invalid data in page 0\ninvalid data in page 2\n"
        );
    }
}
