//! Every file of the healthy tree, taken away and truncated: it bears on nothing, or a finding names it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rdma_core::doctor::{Finding, FindingId, Severity, Wants};

use crate::bad_trees::{all, files};
use crate::tree::Tree;

/// A text in the paths of files, and the finding that names such a file: where it lacks, and where it is empty. The
/// first row with a text in the path counts.
type Row = (&'static str, Option<FindingId>, Option<FindingId>);

/// A file that each machine has.
const fn needed(text: &'static str, id: FindingId) -> Row {
    (text, Some(id), Some(id))
}

/// A file that drivers may lack, and that has a text where it is there.
const fn optional(text: &'static str, id: FindingId) -> Row {
    (text, None, Some(id))
}

/// A file of which it matters that it is there.
const fn present(text: &'static str, id: FindingId) -> Row {
    (text, Some(id), None)
}

/// A file that no finding rests on, in this tree: names and numbers for reports, and values beside one that decides.
const fn nothing(text: &'static str) -> Row {
    (text, None, None)
}

const ROWS: &[Row] = &[
    nothing("0000:15:01.0/config"),
    nothing("0000:95:01.0/config"),
    needed("/config", FindingId::AcsRedirect),
    nothing("00.0/vendor"),
    nothing("00.0/device"),
    needed("/numa_node", FindingId::NumaRemote),
    nothing("/net/lo/"),
    needed("/mtu", FindingId::NetdevMtu),
    needed("/operstate", FindingId::NetdevDown),
    needed("/flags", FindingId::NetdevDown),
    nothing("/net/eth"),
    needed("/net/fib_trie", FindingId::GidElsewhere),
    nothing("/net/if_inet6"),
    nothing("/bonding_masters"),
    needed("/node_type", FindingId::Transport),
    nothing("_guid"),
    nothing("/fw_ver"),
    nothing("/hw_rev"),
    nothing("/board_id"),
    optional("/hca_type", FindingId::SlowPort),
    needed("/ports/1/state", FindingId::PortDown),
    needed("/phys_state", FindingId::PortDown),
    needed("/link_layer", FindingId::NoUsableGid),
    needed("/rate", FindingId::SlowPort),
    nothing("/ports/1/lid"),
    nothing("/ports/1/sm_"),
    nothing("/cap_mask"),
    needed("/gids/3", FindingId::EmptyGid),
    needed("/types/3", FindingId::EmptyGid),
    needed("/ndevs/3", FindingId::EmptyGid),
    nothing("/gids/"),
    nothing("/gid_attrs/"),
    optional("/symbol_error", FindingId::LinkErrors),
    optional("/link_downed", FindingId::LinkErrors),
    nothing("/port_xmit_data"),
    optional("/packet_seq_err", FindingId::SequenceErrors),
    optional("/out_of_sequence", FindingId::SequenceErrors),
    optional("/local_ack_timeout_err", FindingId::AckTimeouts),
    optional("/rnr_nak_retry_err", FindingId::RnrRetries),
    optional("/np_cnp_sent", FindingId::Congestion),
    nothing("/lifespan"),
    needed("/ibdev", FindingId::NodeMissing),
    nothing("/abi_version"),
    present("dev/infiniband/uverbs", FindingId::NodeMissing),
    nothing("/rdma_cm"),
    present("/cpulist", FindingId::NumaRemote),
    nothing("/osrelease"),
    nothing("/nvidia/version"),
    needed("/meminfo", FindingId::MemoryCgroup),
    needed("/mlx5.driver", FindingId::ProviderNotConfigured),
    present("/libibverbs.so.1", FindingId::NoLibibverbs),
    present("/libmlx5.so.1", FindingId::NoProvider),
    needed("/thread-self/status", FindingId::NumaRemote),
    nothing("/uid_map"),
    needed("/thread-self/cgroup", FindingId::MemoryCgroup),
    needed("/thread-self/limits", FindingId::Descriptors),
    needed("/mountinfo", FindingId::ShmTooSmall),
    needed("/memory.max", FindingId::MemoryCgroup),
    nothing("/memory."),
    present("/rdma.", FindingId::RdmaCgroup),
    present("/fs/cgroup/cgroup.procs", FindingId::MemoryCgroup),
    nothing("/cgroup."),
];

/// Files whose half names something else: another device, another interface, fewer addresses.
const HALVES: &[(&str, FindingId)] = &[
    ("/ibdev", FindingId::NodeMissing),
    ("/ndevs/3", FindingId::GidElsewhere),
    ("/ndevs/3", FindingId::GidLinkLocal),
    ("/net/fib_trie", FindingId::GidElsewhere),
    ("/net/fib_trie", FindingId::GidLinkLocal),
];

fn row(file: &Path) -> usize {
    let path = file.to_str().unwrap();
    ROWS.iter().position(|(text, ..)| path.contains(text)).unwrap_or_else(|| panic!("no row for {path}"))
}

/// Looks for any device, and for each by its name and the index of its GID, so that each file counts.
fn look(tree: &Tree) -> Vec<Finding> {
    let machine = tree.read();
    let named = |device: &str| {
        let mut wants = all();
        (wants.device, wants.gid_index) = (Some(device.to_owned()), Some(3));
        wants
    };
    let looks: [Wants; 3] = [all(), named("mlx5_0"), named("mlx5_1")];
    looks.iter().flat_map(|wants| machine.findings(wants)).collect()
}

/// Returns the path without the links of sysfs, also where the file is gone.
fn real(path: &Path) -> PathBuf {
    let of_folder = || Some(fs::canonicalize(path.parent()?).ok()?.join(path.file_name()?));
    fs::canonicalize(path).ok().or_else(of_folder).unwrap_or_else(|| path.to_owned())
}

fn names(finding: &Finding, file: &Path) -> bool {
    let source = real(Path::new(&finding.source));
    // The folder of providers holds links to files beside it. Files of a cgroup tell whether one beside them must be
    // there.
    let is_beside = finding.id == FindingId::NoProvider || source.to_str().unwrap().contains("/fs/cgroup/");
    file.starts_with(&source) || is_beside && file.parent() == source.parent()
}

/// Returns what is wrong with the findings of a tree in which a file was changed.
fn wrong(tree: &Tree, file: &Path, expected: Option<FindingId>) -> Option<String> {
    let findings = look(tree);
    let found = findings.iter().map(|finding| (finding.id, names(finding, file))).collect::<BTreeSet<_>>();
    let is_right = match expected {
        Some(id) => found.contains(&(id, true)),
        None => found.is_empty(),
    };
    (!is_right).then(|| format!("{}: {expected:?} is expected, found {found:?}", file.display()))
}

#[test]
fn a_tree_that_lacks_any_one_file() {
    let tree = Tree::healthy();
    let (mut all_files, mut used, mut wrongs) = (Vec::new(), BTreeSet::new(), Vec::new());
    files(tree.root(), &mut all_files);
    for file in all_files {
        let whole = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        used.insert(row(&file));
        wrongs.extend(wrong(&tree, &file, ROWS[row(&file)].1));
        fs::write(file, whole).unwrap();
    }
    assert!(wrongs.is_empty(), "{wrongs:#?}");
    assert_eq!(look(&tree), []);
    assert_eq!(used, (0..ROWS.len()).collect(), "a row has no file");
}

#[test]
fn a_tree_that_is_truncated() {
    let tree = Tree::healthy();
    let (mut all_files, mut wrongs) = (Vec::new(), Vec::new());
    files(tree.root(), &mut all_files);
    assert!(all_files.len() > 100, "{}", all_files.len());
    for file in &all_files {
        let whole = fs::read(file).unwrap();
        // Half of a text may be a shorter text of sense, such as a smaller number.
        fs::write(file, &whole[..whole.len() / 2]).unwrap();
        let path = file.to_str().unwrap();
        let may_give =
            |finding: &Finding| HALVES.iter().any(|(text, id)| path.contains(text) && finding.id == *id);
        let strangers = look(&tree).into_iter().filter(|finding| !names(finding, file) && !may_give(finding));
        wrongs.extend(strangers.map(|finding| format!("half of {path}: {finding}")));
        fs::write(file, "").unwrap();
        wrongs.extend(wrong(&tree, file, ROWS[row(file)].2));
        fs::write(file, whole).unwrap();
    }
    assert!(wrongs.is_empty(), "{wrongs:#?}");
    assert_eq!(look(&tree), []);
    for file in &all_files {
        fs::write(file, "").unwrap();
    }
    let findings = look(&tree);
    let not_visible = findings.iter().filter(|finding| finding.severity == Severity::NotVisible).count();
    assert!(not_visible > 20, "{findings:#?}");
    assert_eq!(tree.read().devices.unwrap().len(), 2);
}
