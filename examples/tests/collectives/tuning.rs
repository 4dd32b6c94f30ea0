//! Tables of ways: measured by `tune`, named by `RDMA_TUNING_FILE`, and seen in what is said.

use crate::ALLREDUCE;
use crate::common::{Ended, run, start_with};

const TUNE: &str = env!("CARGO_BIN_EXE_tune");

fn allreduce(file: &str, line: &str) -> Ended {
    let variables = [("RDMA_TUNING_FILE", file), ("NCCL_DEBUG", "INFO")];
    start_with(ALLREDUCE, &format!("--device soft --ranks 2 -n 1 {line}"), &variables).finish()
}

#[test]
fn what_tune_writes_is_taken_and_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tune").display().to_string();
    let others = "rdma-collective tuning 1\nall-reduce 3 mapped 16 tree\nall-reduce 2 mapped any tree\nend\n";
    std::fs::write(&path, others).unwrap();
    let line = format!(
        "--device soft --wire mapped --ranks 2 -b 8 -e 32 -n 2 -w 0 --repeats 1 --collectives allreduce,alltoall,barrier -o {path}"
    );
    let text = run(TUNE, &line).expect(0).stdout;
    assert!(text.contains("# tune: 2 ranks, peers mapped"), "{text}");
    assert!(text.contains("pieces/slices") && text.contains("bruck"), "{text}");
    let written = std::fs::read_to_string(&path).unwrap();
    let rows: Vec<Vec<&str>> = written.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["rdma-collective", "tuning", "1"]);
    let of = |ranks: &str, collective: &str| {
        let is_of = |row: &&Vec<&str>| row[0] == collective && row.get(1) == Some(&ranks);
        rows.iter().filter(is_of).cloned().collect::<Vec<_>>()
    };
    assert_eq!(of("3", "all-reduce"), [["all-reduce", "3", "mapped", "16", "tree"]], "{written}");
    let own = of("2", "all-reduce");
    assert!(own.last().is_some_and(|row| row[3] == "32") && !of("2", "all-to-all").is_empty(), "{written}");
    let barriers = of("2", "barrier");
    assert!(barriers.len() == 1 && barriers[0][3] == "any", "{written}");
    assert!(own.windows(2).all(|pair| pair[0][4] != pair[1][4]), "{written}");

    let ended = allreduce(&path, "--wire mapped -b 8 -e 64 -f 2").expect(0);
    // A row is of all sizes up to its own, and beyond the last one the table that is built in is.
    for bytes in [8, 16, 32, 64] {
        let row = own.iter().find(|row| row[3].parse::<u32>().unwrap() >= bytes);
        let way = row.map_or("flat", |row| row[4].split(',').next().unwrap());
        let source = row.map_or("built in", |_| &path);
        let said = ended.stdout.lines().chain(ended.stderr.lines());
        let line = said.filter(|line| line.contains(&format!("all-reduce of up to {bytes} bytes: {way}")));
        let count = line.filter(|line| line.ends_with(&format!("({source})"))).count();
        assert_eq!(count, 2, "{bytes}: {way} of {source}\n{}{}", ended.stdout, ended.stderr);
    }
}

#[test]
fn without_a_file_the_table_is_printed_and_over_links_only_what_they_carry() {
    let line = "--device soft --wire tcp --ranks 3 -b 4 -e 4 -n 1 -w 0 --repeats 1";
    let text = run(TUNE, line).expect(0).stdout;
    for collective in
        ["all-reduce", "all-gather", "reduce-scatter", "broadcast", "reduce", "gather", "scatter", "barrier"]
    {
        assert!(text.lines().any(|line| line.starts_with(collective) && line.contains(" links ")), "{text}");
    }
    assert!(!text.contains("direct") && text.ends_with("end\n"), "{text}");
}

#[test]
fn a_choice_that_cannot_be_carried_out_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tune").display().to_string();
    std::fs::write(&path, "rdma-collective tuning 1\nall-reduce 2 mapped any flat\nend\n").unwrap();
    let ended = allreduce(&path, "--wire mapped -b 64K -e 64K").expect(0);
    let expected = format!(
        "all-reduce of up to 65536 bytes: direct, or ring where slices are borrowed in place of flat ({path})"
    );
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert_eq!(said.matches(&expected).count(), 2, "{expected}\n{said}");
}

#[test]
fn a_tuning_file_that_is_damaged_or_of_another_version_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tune").display().to_string();
    let head = "rdma-collective tuning 1\n";
    for (text, expected) in [
        ("rdma-collective tuning 7\nend\n".to_owned(), "version 7, and this release reads version 1"),
        (format!("{head}all-reduce 2 mapped 8K flat\n"), "no `end`"),
        (format!("{head}all-reduce 2 mapped 8K fl\0t\nend\n"), "line 2"),
        (String::new(), "begins with \"rdma-collective tuning 1\""),
    ] {
        std::fs::write(&path, &text).unwrap();
        let ended = allreduce(&path, "-b 8 -e 8").expect(1);
        assert!(
            ended.stderr.contains(expected) && ended.stderr.contains(&path),
            "{text:?}: {}",
            ended.stderr
        );
        let ended = run(TUNE, &format!("--device soft --ranks 2 -b 8 -e 8 -n 1 -o {path}")).expect(1);
        assert!(ended.stderr.contains(expected), "{text:?}: {}", ended.stderr);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "it is kept");
    }
    std::fs::write(&path, format!("{head}end\n")).unwrap();
    allreduce(&path, "-b 8 -e 8").expect(0);
    let ended = run(TUNE, "--device soft --ranks 2 -b 8 -e 8 -o /nonexistent/a.tune").expect(1);
    assert!(ended.stderr.contains("there is no folder /nonexistent"), "{}", ended.stderr);
    assert!(run(TUNE, "-b 9 -e 15").expect(1).stderr.contains("no power of two"));
}

#[test]
fn what_nccl_alone_has_is_warned_of_and_left_out() {
    let reduce = |algorithms: &str, level: &str| {
        let variables = [("NCCL_ALGO", algorithms), ("NCCL_DEBUG", level)];
        start_with(ALLREDUCE, "--device soft --ranks 2 -b 64K -e 64K -n 1", &variables).finish()
    };
    let ended = reduce("NVLSTree,CollnetDirect", "WARN").expect(0);
    let said = format!("{}{}", ended.stdout, ended.stderr);
    let warned = "WARN NCCL_ALGO: ignored algorithms of NCCL alone: NVLSTree, CollnetDirect;";
    assert_eq!(said.matches(warned).count(), 2, "{said}");
    let ended = reduce("ring;allreduce:tree,nvls", "INFO").expect(0);
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert_eq!(said.matches("all-reduce of up to 65536 bytes: tree in place of").count(), 2, "{said}");
    let ended = reduce("ring,nvsl", "NONE").expect(1);
    assert!(ended.stderr.contains("NCCL_ALGO is \"ring,nvsl\""), "{}", ended.stderr);
}
