//! The block perftest prints before its table: what runs where, and both sides' addresses.

use super::RULE;
use super::exchange::Endpoint;
use super::plan::Plan;
use super::test::{Measure, Verb};
use std::fmt::Write;

/// The device's part of the block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Name of the device.
    pub name: String,
    /// How bytes travel (`tcp`, `local`, `RoCE v2`).
    pub wire: String,
    /// `Ethernet`, `IB`, or `Unspecified`.
    pub link: String,
    /// Path MTU in bytes.
    pub mtu: u32,
    /// Index into its GID table, where it has one.
    pub gid_index: Option<u32>,
}

/// The block, as the server or the client prints it.
pub fn block(plan: &Plan, device: &DeviceInfo, client: bool) -> String {
    let mut text = format!("{RULE}\n                    {}\n", plan.test.title());
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(text, " {name:<16}: {value}");
    };
    line("Device", &device.name);
    line("Wire", &device.wire);
    line("Number of qps", &plan.queue_pairs);
    line("Connection type", &"RC");
    if client {
        line("TX depth", &plan.tx_depth);
    }
    if plan.test.verb() == Verb::Send && (!client || plan.test.measure() == Measure::Latency) {
        line("RX depth", &plan.rx_depth);
    }
    if plan.test.measure() == Measure::Bandwidth {
        line("CQ Moderation", &plan.cq_moderation);
    }
    line("Mtu", &format_args!("{}[B]", device.mtu));
    line("Link type", &device.link);
    if let Some(index) = device.gid_index {
        line("GID index", &index);
    }
    match plan.reads {
        Some(reads) => line("Outstand reads", &reads),
        _ => line("Max inline data", &format_args!("{}[B]", plan.inline_bytes)),
    }
    line("Data ex. method", &"Ethernet");
    text + RULE + "\n"
}

/// The line of one queue pair's address, and its GID's where it has one.
pub fn address(side: &str, endpoint: &Endpoint) -> String {
    let Endpoint { lid, qpn, psn, rkey, addr, gid } = endpoint;
    let mut text = format!(
        " {side} address: LID {lid:#06x} QPN {qpn:#06x} PSN {psn:#06x} RKey {rkey:#08x} VAddr {addr:#018x}\n"
    );
    if let Some(gid) = gid {
        // perftest writes a GID's bytes in decimal, so that an IPv4 address can be read off its end.
        let bytes: Vec<String> = gid.iter().map(|byte| format!("{byte:02}")).collect();
        let _ = writeln!(text, " GID: {}", bytes.join(":"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perftest::args::{Flags, ReadBw, SendBw, WriteBw, WriteLat};
    use clap::Parser;

    fn device() -> DeviceInfo {
        DeviceInfo {
            name: "rxe0".into(),
            wire: "RoCE v2".into(),
            link: "Ethernet".into(),
            mtu: 4096,
            gid_index: Some(1),
        }
    }

    #[test]
    fn the_block_says_what_runs_where() {
        let plan = WriteBw::parse_from(["write_bw"]).plan();
        let mut text = block(&plan, &device(), true);
        let mut gid = [0; 16];
        gid[10..].copy_from_slice(&[255, 255, 10, 9, 0, 1]);
        let endpoint = Endpoint {
            lid: 0,
            qpn: 0x11,
            psn: 0xabcde,
            rkey: 0x1f00,
            addr: 0x7f00_1234_5000,
            gid: Some(gid),
        };
        text += &address("local", &endpoint);
        text += &address("remote", &Endpoint { gid: None, ..endpoint });
        insta::assert_snapshot!(text);
    }

    #[test]
    fn reads_are_never_inline() {
        let plan = Plan { reads: Some(16), ..ReadBw::parse_from(["read_bw"]).plan() };
        let text = block(&plan, &device(), true);
        assert!(text.contains(" Outstand reads  : 16\n") && !text.contains("inline"), "{text}");
    }

    #[test]
    fn who_receives_says_how_many() {
        let plan = SendBw::parse_from(["send_bw"]).plan();
        assert!(block(&plan, &device(), false).contains(" RX depth        : 512\n"));
        assert!(!block(&plan, &device(), true).contains("RX depth"));
    }

    #[test]
    fn latency_has_no_moderation_and_a_server_no_depth() {
        let plan = WriteLat::parse_from(["write_lat"]).plan();
        let software = DeviceInfo { gid_index: None, ..device() };
        let text = block(&plan, &software, false);
        assert!(text.contains("RDMA_Write Latency Test"));
        assert!(!text.contains("CQ Moderation") && !text.contains("TX depth") && !text.contains("GID"));
    }
}
