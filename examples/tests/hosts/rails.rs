//! Hosts with two cables for data: a cable that is pulled amid operations costs time, and no element.

use std::thread::sleep;
use std::time::Duration;

use examples::collectives::Collective;
use examples::columns::parse::ParsedTable;

use super::{Hosts, Running, hosts_with, is_soak, start_over, turn};

/// The megabits a second of each cable, so that operations last long enough to be amid one.
const MEGABITS: u32 = 1000;

#[test]
fn a_cable_that_is_pulled_amid_operations_costs_no_element() {
    let _turn = turn();
    let Some(hosts) = hosts_with(|| Hosts::with_rails(2, 3, Some(MEGABITS))) else { return };
    for round in 0..if is_soak() { 100 } else { 1 } {
        let line = "-b 16M -e 16M -n 20 -w 1 -c 1 -T 60";
        // The ranks meet over the first cable.
        let over = ("soft,soft", [("NCCL_SOCKET_IFNAME", "eth1,eth2")]);
        let mut ranks = start_over(&hosts, 1, (Collective::AllReduce, None), line, over);
        ranks[0].wait_for("busbw");
        sleep(Duration::from_millis(100 + 37 * round % 1000));
        let (host, lane) = (round as usize % 2, round as usize / 2 % 2);
        hosts.cut_rail(host, lane + 1).unwrap();
        let ended: Vec<_> = ranks.into_iter().map(Running::finish).collect();
        hosts.mend(host).unwrap();
        let text = &ended.into_iter().map(|rank| rank.expect(0)).next().unwrap().stdout;
        let table = ParsedTable::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        table.verify(Collective::AllReduce, 2).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!((table.rows.len(), table.out_of_bounds, table.ok), (1, 0, true), "{text}");
        let lost = format!("# Lane {lane} (soft{lane}) to rank 1 was lost on the way (");
        assert!(text.contains(&lost), "round {round}, host {host}, lane {lane}:\n{text}");
    }
}
