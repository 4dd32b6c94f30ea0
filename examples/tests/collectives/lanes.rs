//! Collectives over several devices a rank, and several queue pairs on each.

use crate::common::{Ended, free_port, program, run, start_with};
use crate::{ALLREDUCE, measured};
use examples::collectives::Collective;
use examples::columns::parse::ParsedTable;

const QUEUE_PAIRS: &str = "NCCL_IB_QPS_PER_CONNECTION";

fn with_queue_pairs(program: &str, line: &str, queue_pairs: &str) -> Ended {
    start_with(program, line, &[(QUEUE_PAIRS, queue_pairs), ("NCCL_DEBUG", "INFO")]).finish()
}

/// The table of a program that succeeded, of which no element is wrong.
#[track_caller]
fn right(ended: Ended, collective: Collective, ranks: usize) -> Ended {
    let ended = ended.expect(0);
    let table = ParsedTable::parse(&ended.stdout).unwrap_or_else(|error| panic!("{error}\n{}", ended.stdout));
    table.verify(collective, ranks).unwrap_or_else(|error| panic!("{error}\n{}", ended.stdout));
    assert!(measured(&table).all(|measured| measured.wrong == Some(0.0)), "{}", ended.stdout);
    ended
}

#[test]
fn every_collective_goes_over_two_devices() {
    for collective in Collective::ALL.iter().copied() {
        let line = "--device soft,soft --ranks 3 -b 1K -e 4M -f 4096 -n 2 -r all -d int32";
        let text = right(run(program(collective), line), collective, 3).stdout;
        assert!(text.contains("# Lanes 2 (soft0, soft1)\n"), "{text}");
        assert!(text.contains("[soft0,soft1] software device, wire "), "{text}");
        assert!(!text.contains("#  soft1: ") && !text.contains("#  soft0: "), "{text}");
    }
}

#[test]
fn lanes_are_devices_times_queue_pairs() {
    for (devices, queue_pairs, header) in [
        ("--device soft", "3", Some("# Lanes 3 (soft0 x 3)")),
        ("--device auto", "2", Some("# Lanes 2 (")),
        ("--device soft --device soft", "2", Some("# Lanes 4 (soft0 x 2, soft1 x 2)")),
        ("--device soft", "1", None),
        ("--device soft", "", None),
    ] {
        let line = format!("{devices} --ranks 2 -b 1M -e 1M -n 1 -m 2 -u 1 -o avg --reproducible");
        let ended = right(with_queue_pairs(ALLREDUCE, &line, queue_pairs), Collective::AllReduce, 2);
        match header {
            Some(header) => assert!(ended.stdout.contains(header), "{}", ended.stdout),
            None => assert!(!ended.stdout.contains("# Lanes"), "{}", ended.stdout),
        }
        let said = format!("{QUEUE_PAIRS} set by environment to {queue_pairs}");
        assert_eq!(ended.stderr.contains(&said), !queue_pairs.is_empty(), "{}", ended.stderr);
    }
}

#[test]
fn a_device_that_dies_amid_the_run_costs_no_element() {
    for collective in [Collective::AllReduce, Collective::AllToAll, Collective::Gather] {
        let line = "--device soft,soft --ranks 2 -b 2M -e 8M -f 2 -n 2 --fault kill@5";
        let ended = start_with(program(collective), line, &[("NCCL_DEBUG", "WARN")]).finish();
        let ended = right(ended, collective, 2);
        let lost = "# Lane 0 (soft0) to rank 1 was lost on the way (";
        assert!(ended.stdout.contains(lost), "{}", ended.stdout);
        assert!(ended.stderr.contains("The link goes on over 1 of 2 lanes"), "{}", ended.stderr);
    }
}

#[test]
fn a_byte_that_a_lane_changes_is_counted() {
    let line = "--device soft,soft --ranks 2 -b 16M -e 16M -n 1 -w 0 --fault corrupt@2";
    let text = run(ALLREDUCE, line).expect(1).stdout;
    assert!(ParsedTable::parse(&text).unwrap().out_of_bounds >= 1, "{text}");
}

#[test]
fn tune_measures_over_several_devices() {
    let line = "--device soft,soft --ranks 2 -b 4 -e 4 -n 1 -w 0 --repeats 1 --collectives allreduce";
    let ended = run(env!("CARGO_BIN_EXE_tune"), line).expect(0);
    assert!(ended.stdout.contains("allreduce"), "{}", ended.stdout);
}

#[test]
fn devices_and_lanes_that_cannot_be_say_what_to_change() {
    let line = "--device soft,soft --ranks 2 -b 8 -e 8";
    for (queue_pairs, told) in [
        ("129", "NCCL_IB_QPS_PER_CONNECTION is \"129\": set it to a number from 1 to 128"),
        ("many", "NCCL_IB_QPS_PER_CONNECTION is \"many\": set it to a number from 1 to 128"),
    ] {
        let ended = with_queue_pairs(ALLREDUCE, line, queue_pairs).expect(1);
        assert!(ended.stderr.contains(told) && ended.stdout.is_empty(), "{}", ended.stderr);
    }
    let ended = with_queue_pairs(ALLREDUCE, line, "16").expect(0);
    let told = "# Lanes 8 (soft0 x 4, soft1 x 4)";
    let ignored = "# Ignored NCCL_IB_QPS_PER_CONNECTION=16 beyond 4";
    assert!(ended.stdout.contains(told) && ended.stdout.contains(ignored), "{}", ended.stdout);
    let ended = run(ALLREDUCE, "--device soft,nosuch0 --ranks 2 -b 8 -e 8").expect(1);
    assert!(ended.stderr.contains("nosuch0"), "{}", ended.stderr);
    for (devices, told) in [("auto,soft", "auto: name each"), ("soft,,soft", "--device")] {
        let ended = run(ALLREDUCE, &format!("--device {devices} -b 8 -e 8")).expect(2);
        assert!(ended.stderr.contains(told), "{}", ended.stderr);
    }
}

#[test]
fn ranks_with_another_number_of_lanes_are_told() {
    let port = free_port().to_string();
    let rank = |rank, queue_pairs| {
        let variables = [
            ("RANK", rank),
            ("WORLD_SIZE", "2"),
            ("MASTER_ADDR", "127.0.0.1"),
            ("MASTER_PORT", port.as_str()),
            (QUEUE_PAIRS, queue_pairs),
        ];
        start_with(ALLREDUCE, "--device soft -b 8 -e 8 -T 60", &variables)
    };
    let (first, second) = (rank("0", "1"), rank("1", "2"));
    let (first, second) = (first.finish().expect(1), second.finish().expect(1));
    assert!(first.stderr.contains("lanes is 1 here and 2 on rank 1"), "{}", first.stderr);
    assert!(second.stderr.contains("lanes is 2 here and 1 on rank 0"), "{}", second.stderr);
}
