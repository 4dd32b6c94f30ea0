//! All schedules on up to 1,024 ranks of a simulated network: their cost, and how close it is to theory.
//!
//! The optimum is that of the alpha-beta model: a number of latencies, and a number of times that the bytes pass a
//! NIC. A ring with several chunks under way hides latencies, and so is faster than its optimum. Halving and doubling
//! sends the whole buffer twice more where the number of ranks is not a power of two.

use std::fmt::Write as _;
use std::sync::Arc;

use super::simulate::time::{Costs, Failure, Report, simulate};
use super::*;
use crate::collective::DataType;
use crate::collective::ScheduleError;
use crate::groups::Groups;
use crate::tests::netsim::{Hosts, Wire};
use crate::tests::soak::{Sample, is_soak};

type Steps = Box<dyn Iterator<Item = Step>>;

/// A schedule with its name and its theoretical cost.
struct Case {
    name: &'static str,
    /// The steps, and the bytes of scratch memory.
    schedule: fn(Operation) -> Result<(Steps, usize), ScheduleError>,
    /// From how many ranks a rank receives; the slots are sized for that.
    senders: fn(u32) -> usize,
    /// By the number of ranks: the least number of latencies, and of times that the bytes of a buffer or part pass a
    /// NIC.
    theory: fn(f64) -> [f64; 2],
    /// Bytes of a buffer, or of a part.
    bytes: &'static [usize],
}

fn rounds(steps: Result<P2pSchedule, ScheduleError>) -> Result<(Steps, usize), ScheduleError> {
    steps.map(|steps| {
        let scratch = steps.scratch_bytes();
        (Box::new(steps) as Steps, scratch)
    })
}

fn log(ranks: u32) -> usize {
    ranks.next_power_of_two().ilog2() as usize
}

const SHORT: usize = 8;
const MIDDLE: usize = 64 << 10;
const LONG: usize = 16 << 20;

const CASES: [Case; 8] = [
    Case {
        name: "ring",
        schedule: |operation| Ring::all_reduce(operation).map(|steps| (Box::new(steps) as Steps, 0)),
        senders: |_| 1,
        theory: |n| [2.0 * (n - 1.0), 2.0 * (n - 1.0) / n],
        bytes: &[MIDDLE, LONG],
    },
    Case {
        name: "halving-doubling",
        schedule: |operation| rounds(P2pSchedule::halving(operation, u32::MAX)),
        senders: log,
        theory: |n| [2.0 * n.log2().ceil(), 2.0 * (n - 1.0) / n],
        bytes: &[MIDDLE, LONG],
    },
    Case {
        name: "tree broadcast",
        schedule: |operation| rounds(P2pSchedule::broadcast(operation, 0)),
        senders: |_| 1,
        theory: |n| [n.log2().ceil(), n.log2().ceil()],
        bytes: &[SHORT, MIDDLE, LONG],
    },
    Case {
        name: "tree reduce",
        schedule: |operation| rounds(P2pSchedule::reduce(operation, 0)),
        senders: log,
        theory: |n| [n.log2().ceil(), n.log2().ceil()],
        bytes: &[SHORT, MIDDLE, LONG],
    },
    Case {
        name: "tree gather",
        schedule: |operation| rounds(P2pSchedule::gather(operation, 0)),
        senders: log,
        theory: |n| [n.log2().ceil(), n - 1.0],
        bytes: &[SHORT, MIDDLE],
    },
    Case {
        name: "tree scatter",
        schedule: |operation| rounds(P2pSchedule::scatter(operation, 0)),
        senders: |_| 1,
        theory: |n| [n.log2().ceil(), n - 1.0],
        bytes: &[SHORT, MIDDLE],
    },
    Case {
        name: "all-to-all in pairs",
        schedule: |operation| rounds(P2pSchedule::all_to_all(operation)),
        senders: |ranks| ranks as usize - 1,
        // All parts are sent at once, and the network takes no time for a message but for its bytes.
        theory: |n| [1.0, n - 1.0],
        bytes: &[SHORT, 1 << 10],
    },
    Case {
        name: "all-to-all, Bruck",
        schedule: |operation| rounds(P2pSchedule::all_to_all_short(operation)),
        senders: log,
        theory: |n| [n.log2().ceil(), n.log2().ceil() * n / 2.0],
        bytes: &[SHORT, 1 << 10],
    },
];

impl Case {
    /// Slots so small that all slots of a rank have at most 4 MiB, whatever the number of links.
    fn staging(&self, ranks: u32) -> Staging {
        let senders = (self.senders)(ranks);
        let slots = if senders > 64 { 2 } else { 8 };
        let slot_bytes = ((4 << 20) / senders.next_power_of_two() / slots).min(256 << 10);
        Staging { slots: slots as u16, slot_bytes, ..Staging::default() }
    }

    /// The cost of a run, and the library's memory on the rank that needs most.
    fn run(&self, ranks: u32, bytes: usize, wire: Wire) -> Result<(Report, usize), Failure> {
        let (staging, mut scratch) = (self.staging(ranks), 0);
        let programs: Vec<Steps> = (0..ranks)
            .map(|rank| {
                let operation =
                    Operation { rank, ranks, count: bytes / 4, data_type: DataType::F32, staging };
                let (steps, needs) = (self.schedule)(operation).unwrap();
                scratch = needs.max(scratch);
                steps
            })
            .collect();
        let report = simulate(programs, staging.slots, Costs { wire, arithmetic: 0 })?;
        let slots = report.senders * usize::from(staging.slots) * staging.slot_bytes;
        Ok((report, slots + scratch))
    }

    /// The theoretical time in picoseconds.
    fn optimum(&self, ranks: u32, bytes: usize, wire: Wire) -> f64 {
        let [latencies, times] = (self.theory)(f64::from(ranks));
        latencies * wire.latency as f64 + times * bytes as f64 * wire.byte as f64
    }
}

#[test]
fn ring_and_halving_doubling_are_within_a_twentieth_of_the_optimum_at_1024_ranks_and_what_all_take() {
    let mut table = String::from(
        "schedule             ranks      bytes messages  bytes sent peers memory KiB          us     optimum ratio\n",
    );
    let mut sample = Sample::one_of(5);
    for case in &CASES {
        for ranks in [16, 100, 1024] {
            for &bytes in case.bytes {
                if ranks == 1024 && sample.leaves_out() {
                    continue;
                }
                let (report, memory) = case.run(ranks, bytes, Wire::FAST).unwrap();
                let (time, optimum) = (report.time as f64, case.optimum(ranks, bytes, Wire::FAST));
                let Report { messages, bytes: sent, peers, .. } = report;
                writeln!(
                    table,
                    "{:20} {ranks:5} {bytes:10} {messages:8} {sent:11} {peers:5} {:10} {:11.1} {:11.1} {:5.2}",
                    case.name,
                    memory >> 10,
                    time / 1e6,
                    optimum / 1e6,
                    time / optimum,
                )
                .unwrap();
                assert!(memory <= 8 << 20, "{} has {memory} bytes on a rank", case.name);
                if ranks == 1024 && ["ring", "halving-doubling"].contains(&case.name) {
                    let ratio = time / optimum;
                    assert!((0.95..=1.05).contains(&ratio), "{} of {bytes} bytes: {ratio:.3}", case.name);
                }
            }
        }
    }
    if is_soak() {
        insta::assert_snapshot!("up_to_1024_ranks", table);
    }
    let all =
        include_str!("snapshots/rdma_collective__collective__schedule__tests__scale__up_to_1024_ranks.snap");
    for line in table.lines() {
        assert!(
            all.lines().any(|of_all| of_all == line),
            "not in the snapshot, which SOAK=full writes: {line}"
        );
    }
}

#[test]
fn what_is_lost_costs_time_and_nothing_else_and_the_same_seed_is_the_same_run() {
    for case in &CASES {
        let bytes = case.bytes[0];
        // As many as take no longer than they are worth.
        let ranks = if (case.theory)(1024.0)[0] > 1000.0 {
            64
        } else if (case.senders)(1024) == 1023 && !is_soak() {
            256
        } else {
            1024
        };
        let quiet = case.run(ranks, bytes, Wire::FAST).unwrap().0;
        let lossy =
            |seed| case.run(ranks, bytes, Wire { lost_of_million: 1000, seed, ..Wire::FAST }).unwrap().0;
        let reports: Vec<_> = (1..3).map(lossy).collect();
        for (seed, report) in (1..).zip(&reports) {
            assert_eq!(lossy(seed), *report, "{} with seed {seed}", case.name);
            let Report { messages, bytes, peers, .. } = *report;
            assert_eq!((messages, bytes, peers), (quiet.messages, quiet.bytes, quiet.peers));
            assert!(report.time >= quiet.time);
        }
        assert!(reports.iter().any(|report| report.lost > 0), "nothing of {} was lost", case.name);
        assert!(reports.iter().any(|report| report.trace != reports[0].trace), "{}: seeds alike", case.name);
    }
}

/// A rank leaves out one message: all ranks that need it are stuck, and again with the same seed.
#[test]
fn a_run_that_fails_fails_again_in_the_same_way() {
    let fails = |seed| {
        let staging = Staging::default();
        let programs = (0..64).map(|rank| {
            let operation = Operation { rank, ranks: 64, count: 1 << 12, data_type: DataType::F32, staging };
            let forgets = move |step: &Step| match step {
                Step::Put { to, .. } => rank != 21 || *to != 20,
                _ => true,
            };
            P2pSchedule::halving(operation, u32::MAX).unwrap().filter(forgets)
        });
        let wire = Wire { lost_of_million: 10_000, seed, ..Wire::FAST };
        simulate(programs, staging.slots, Costs { wire, arithmetic: 0 }).unwrap_err()
    };
    let first = fails(7);
    assert!(first.what.contains("is stuck at Some(WaitCount"), "{first:?}");
    assert_eq!(fails(7), first);
    assert_ne!(fails(8).trace, first.trace);
}

#[test]
fn a_message_of_another_length_and_a_slot_that_is_given_back_too_early_are_found() {
    let staging = Staging { slots: 1, ..Staging::default() };
    let with = |count, change: fn(&mut Vec<Step>)| {
        let programs = (0..2).map(|rank| {
            let count = if rank == 0 { 1 << 10 } else { count };
            let operation = Operation { rank, ranks: 2, count, data_type: DataType::F32, staging };
            let mut steps: Vec<Step> = Ring::all_reduce(operation).unwrap().collect();
            change(&mut steps);
            steps.into_iter()
        });
        simulate(programs, 1, Costs { wire: Wire::FAST, arithmetic: 0 }).map_err(|failure| failure.what)
    };
    assert!(with(1 << 10, |_| {}).is_ok());
    assert!(with(1 << 9, |_| {}).unwrap_err().contains("expects"));
    let early = with(1 << 10, |steps| {
        let credit = steps.iter().position(|step| matches!(step, Step::Signal { .. })).unwrap();
        steps.swap(credit - 1, credit);
    });
    assert!(early.unwrap_err().contains("has not read"));
    let none = with(1 << 10, |steps| steps.retain(|step| !matches!(step, Step::Signal { .. })));
    assert!(none.unwrap_err().contains("is stuck at Some(Put"));
}

/// The costs of the ring and of the hierarchy on `[hosts, ranks of each]`. Ranks are in blocks, so that the ring
/// leaves each host once; the hierarchy has the slots of links to all ranks, 32 MiB together.
fn ring_and_hierarchy([hosts, each]: [u32; 2], bytes: usize, wire: Wire) -> [Report; 2] {
    let (ranks, costs) = (hosts * each, Costs { wire, arithmetic: 0 });
    let Staging { slots, slot_bytes, .. } = Staging::default();
    let share = ((32 << 20) / (usize::from(slots) * (ranks as usize - 1))) & !7;
    let of = |rank, slot_bytes| {
        let staging = Staging { slot_bytes, ..Staging::default() };
        Operation { rank, ranks, count: bytes / 4, data_type: DataType::F32, staging }
    };
    let host = Arc::new(Groups::by((0..ranks).map(|rank| rank / each)));
    let ring = |rank| Ring::all_reduce(of(rank, slot_bytes)).unwrap();
    let hierarchy = |rank| P2pSchedule::hierarchical(of(rank, share.min(slot_bytes)), &host).unwrap();
    [
        simulate((0..ranks).map(ring), slots, costs).unwrap(),
        simulate((0..ranks).map(hierarchy), slots, costs).unwrap(),
    ]
}

/// 20 GB/s and half a microsecond inside a host.
#[test]
fn hosts_first_takes_fewer_bytes_between_hosts_and_less_time_though_all_of_a_host_have_one_nic() {
    let mut table = String::from("nics          bytes schedule      between hosts          us\n");
    for (nics, shared) in [("one a host", true), ("one a rank", false)] {
        let hosts = Some(Hosts { ranks: 8, latency: 500_000, byte: 50, shared });
        for bytes in [8 << 10, MIDDLE, 256 << 10, 1 << 20, 4 << 20, LONG] {
            let [ring, hierarchy] = ring_and_hierarchy([8, 8], bytes, Wire { hosts, ..Wire::FAST });
            for (name, Report { far, time, .. }) in [("ring", &ring), ("hierarchical", &hierarchy)] {
                writeln!(table, "{nics:10} {bytes:8} {name:12} {far:14} {:11.1}", *time as f64 / 1e6)
                    .unwrap();
            }
            assert!(hierarchy.far < ring.far && hierarchy.time < ring.time, "{bytes}: {table}");
        }
    }
    insta::assert_snapshot!("eight_hosts", table);
}

#[test]
fn short_ones_go_inside_hosts_first_in_less_time_on_any_network_where_hosts_are_alike() {
    let slower = Wire { latency: 20_000_000, byte: 320, ..Wire::FAST };
    let faster = Wire { latency: 2_000_000, byte: 40, ..Wire::FAST };
    let rows = [(8..=31, 64 << 10), (32..=64, 128 << 10)];
    let shapes =
        [[2, 4], [3, 4], [2, 8], [4, 4], [2, 15], [5, 6], [7, 4], [2, 16], [8, 4], [2, 32], [8, 8], [16, 4]];
    for shape in shapes {
        let row = rows.iter().find(|(ranks, _)| ranks.contains(&(shape[0] * shape[1])));
        let (_, bytes_max) = row.expect("all have one");
        for (wire, byte) in [(Wire::FAST, 50), (Wire::FAST, 125), (slower, 100), (faster, 50)] {
            for (part, shared) in [64, 8, 1].into_iter().flat_map(|part| [true, false].map(|nic| (part, nic)))
            {
                let (bytes, hosts) =
                    (bytes_max / part, Some(Hosts { ranks: shape[1], latency: 500_000, byte, shared }));
                let [ring, hierarchy] = ring_and_hierarchy(shape, bytes, Wire { hosts, ..wire });
                let ratio = hierarchy.time as f64 / ring.time as f64;
                assert!(ratio < 0.9, "{shape:?}, {bytes}, {wire:?}: {ratio:.2}");
            }
        }
    }
}
