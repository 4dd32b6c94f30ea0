//! A case: a change of the healthy tree, and the finding that it gives.

use rdma_core::doctor::{FindingId, Severity, Wants};

use crate::tree::{Tree, of};

/// Checks that `change` gives the finding: in a healthy tree, and with wants that give nothing before.
pub fn check(
    id: FindingId,
    severity: Severity,
    contains: &str,
    before: impl Fn(&mut Wants),
    change: impl Fn(&Tree, &mut Wants),
) {
    let tree = Tree::healthy();
    let mut wants = Wants::default();
    before(&mut wants);
    assert_eq!(tree.findings(&wants), [], "before the change");
    change(&tree, &mut wants);
    let findings = tree.findings(&wants);
    let found = of(&findings, id);
    assert!(!found.is_empty(), "no {id} in {findings:#?}");
    let texts: Vec<_> = found.iter().map(|finding| finding.to_string()).collect();
    assert!(texts.iter().any(|text| text.contains(contains)), "no {contains:?} in {texts:#?}");
    for (finding, text) in found.iter().zip(&texts) {
        assert_eq!(finding.severity, severity, "{text}");
        let mend = &finding.mend;
        assert!([&mend.shell, &mend.unit, &mend.pod].iter().all(|mend| !mend.is_empty()), "{text}");
        let root = tree.root().to_str().unwrap();
        assert!(finding.source.starts_with('$') || finding.source.starts_with(root), "{text}");
    }
}
