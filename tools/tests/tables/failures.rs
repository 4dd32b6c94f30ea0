//! The failure table of `docs/kubernetes.md`.

use std::collections::BTreeSet;

use rdma_core::doctor::FindingId;

const PAGE: &str = include_str!("../../../docs/kubernetes.md");

/// Cells of the table, without its head and the rows that are titles.
fn rows() -> Vec<[&'static str; 3]> {
    let (_, section) = PAGE.split_once("\n## Failures\n").expect("the page has the section");
    let lines = section.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let rows = lines.skip(1).filter(|line| !line.starts_with("**"));
    rows.map(|line| line.split(" | ").collect::<Vec<_>>().try_into().expect("three cells")).collect()
}

#[test]
fn the_failure_table_has_each_finding_and_no_other_with_symptom_and_mend() {
    let rows = rows();
    let ids: Vec<_> = rows.iter().map(|[_, id, _]| id.trim_matches('`')).collect();
    let known: BTreeSet<_> = FindingId::ALL.iter().map(|id| id.as_str()).collect();
    assert_eq!(ids.iter().copied().collect::<BTreeSet<_>>(), known);
    assert_eq!(ids.len(), known.len(), "a finding has two rows");
    for [seen, id, mend] in rows {
        assert!(!seen.trim().is_empty() && !mend.trim().is_empty(), "{id}");
    }
}
