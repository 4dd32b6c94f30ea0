//! The pinning diagnosis with fixture trees of every cgroup layout, and with damaged ones.
//!
//! A snapshot holds each whole message. The behaviour of a real kernel is tested in `memlock.rs`.

use proptest::prelude::*;
use rdma_core::memory::pinning::{
    Limit, PinningCause, PinningDiagnosis, PinningNeed, PinningProbe, PinningSnapshot, RdmaResource,
};
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cgroup").join(name)
}

fn read(name: &str) -> PinningSnapshot {
    let mut snapshot = PinningProbe::at(fixture(name)).read();
    snapshot.page_bytes = 4096; // the fixtures' machine, whatever this one has
    snapshot
}

/// Returns the text without the path of this checkout.
fn shown(text: impl std::fmt::Display, name: &str) -> String {
    text.to_string().replace(&fixture(name).display().to_string(), "")
}

/// Returns the limit that lacks bytes, and how many.
fn short_of(diagnosis: &PinningDiagnosis) -> (&'static str, u64) {
    match diagnosis.cause() {
        PinningCause::MemlockTooSmall { shortfall_bytes, .. } => ("memlock", *shortfall_bytes),
        PinningCause::MemoryCgroup { shortfall_bytes, .. } => ("memory cgroup", *shortfall_bytes),
        PinningCause::SystemMemory { shortfall_bytes, .. } => ("system", *shortfall_bytes),
        other => panic!("{other:?} is not short of bytes"),
    }
}

/// Returns the rdma limit that is reached: resource, limit and use.
fn full(diagnosis: &PinningDiagnosis) -> (RdmaResource, u64, u64) {
    match diagnosis.cause() {
        PinningCause::RdmaCgroup { resource, max, current, .. } => (*resource, *max, *current),
        other => panic!("{other:?} is not an rdma limit"),
    }
}

macro_rules! assert_message {
    ($snapshot:expr, $fixture:expr, $text:expr) => {
        insta::assert_snapshot!($snapshot, shown($text, $fixture))
    };
}

#[test]
fn each_layout_is_read_whole() {
    for name in ["v1", "hybrid", "v2", "v2-container", "v1-container"] {
        let snapshot = read(name);
        assert!(!snapshot.to_string().contains("not known ("), "{name}: {snapshot}");
        assert_message!(format!("summary_{name}"), name, snapshot);
    }
}

#[test]
fn the_container_does_not_see_the_limits_above_it() {
    for (name, hidden) in [("v1", false), ("hybrid", false), ("v2", false), ("v2-container", true)] {
        assert_eq!(read(name).memory_cgroups.unwrap().ancestors_hidden, hidden, "{name}");
    }
    assert!(read("v1-container").rdma_cgroups.unwrap().ancestors_hidden);
}

#[test]
fn eperm_with_a_limit_of_zero() {
    let diagnosis = read("v2").explain(libc::EPERM, PinningNeed::length(MIB), "rxe0");
    assert_eq!(diagnosis.cause(), &PinningCause::MemlockZero);
    assert_eq!((diagnosis.errno(), diagnosis.device()), (Some(libc::EPERM), "rxe0"));
    assert_message!("eperm_memlock_zero", "v2", diagnosis);
}

#[test]
fn eperm_with_room_to_pin_is_not_a_limit() {
    let diagnosis = read("v1").explain(libc::EPERM, PinningNeed::length(MIB), "rxe0");
    assert_eq!(diagnosis.cause(), &PinningCause::NotALimit);
    assert_message!("eperm_not_a_limit", "v1", diagnosis);
}

#[test]
fn enomem_from_memlock_counts_what_is_pinned_and_whole_pages() {
    let at_the_limit = read("v1").explain(libc::ENOMEM, PinningNeed::range(0x1fff, 45_057), "rxe0");
    let diagnosis = read("v1").explain(libc::ENOMEM, PinningNeed::range(0x1fff, 45_058), "rxe0");
    // 45057 bytes from the last byte of a page touch 12 pages. With the 4 pinned ones that is 16, the most
    // that fit.
    assert_eq!(at_the_limit.cause(), &PinningCause::NotExplained);
    let pinned =
        PinningCause::MemlockTooSmall { limit_bytes: 65536, pinned_bytes: 16384, shortfall_bytes: 4096 };
    assert_eq!(diagnosis.cause(), &pinned);
    assert_message!("enomem_memlock", "v1", diagnosis);
}

#[test]
fn enomem_from_memlock_in_a_user_namespace_says_why_the_capability_does_not_count() {
    let need = PinningNeed::length(MIB).registrations(4);
    let diagnosis = read("v2-container").explain(libc::ENOMEM, need, "mlx5_0");
    assert_eq!(short_of(&diagnosis), ("memlock", 4 * MIB));
    assert_message!("enomem_memlock_user_namespace", "v2-container", diagnosis);
}

#[test]
fn rings_are_an_estimate_and_an_object_without_any_is_not_refused_by_memlock() {
    let rings = read("v1").explain(libc::ENOMEM, PinningNeed::about(MIB), "mlx5_0");
    assert!(rings.to_string().contains("about 1048576 bytes (1 MiB) more are needed"), "{rings}");
    let none = read("v2").explain(libc::EPERM, PinningNeed::length(0), "rxe0");
    assert_eq!(none.cause(), &PinningCause::NotALimit);
}

#[test]
fn enomem_from_a_memory_cgroup_of_either_version() {
    let diagnosis = read("v1-container").explain(libc::ENOMEM, PinningNeed::length(5 * MIB), "mlx5_0");
    assert_eq!(short_of(&diagnosis), ("memory cgroup", MIB));
    assert_message!("enomem_memory_cgroup_v1", "v1-container", diagnosis);

    let mut snapshot = read("v2");
    snapshot.memlock.soft = Ok(Limit::Unlimited);
    let diagnosis = snapshot.explain(libc::ENOMEM, PinningNeed::length(300 * MIB), "rxe0");
    assert_message!("enomem_memory_cgroup_v2", "v2", diagnosis);
}

#[test]
fn enomem_of_an_ancestor_names_the_ancestor() {
    let mut snapshot = read("v1");
    snapshot.memlock.soft = Ok(Limit::Unlimited);
    let diagnosis = snapshot.explain(libc::ENOMEM, PinningNeed::length(73 * MIB), "rxe0");
    let PinningCause::MemoryCgroup { limit_file, shortfall_bytes, .. } = diagnosis.cause() else {
        panic!("{diagnosis}");
    };
    assert!(limit_file.ends_with("memory/system.slice/memory.limit_in_bytes"), "{limit_file:?}");
    assert_eq!(*shortfall_bytes, MIB, "256 MiB less the 184 that are used and not cache leave room for 72");
}

#[test]
fn enomem_of_the_system() {
    let diagnosis = read("hybrid").explain(libc::ENOMEM, PinningNeed::length(3000 * MIB), "rxe0");
    assert_eq!(short_of(&diagnosis), ("system", 1000 * MIB));
    assert_message!("enomem_system", "hybrid", diagnosis);
}

#[test]
fn enomem_that_no_limit_explains_blames_none() {
    let diagnosis = read("hybrid").explain(libc::ENOMEM, PinningNeed::length(MIB), "rxe0");
    assert_eq!(diagnosis.cause(), &PinningCause::NotExplained);
    assert_message!("enomem_not_explained", "hybrid", diagnosis);
}

#[test]
fn eagain_names_the_resource_and_the_group() {
    let diagnosis = read("v2").explain(libc::EAGAIN, PinningNeed::length(MIB), "rxe0");
    assert_message!("eagain_own_group", "v2", diagnosis);

    // In the hybrid tree the parent group refuses; in v1 the number of open devices does.
    let hybrid = read("hybrid").explain(libc::EAGAIN, PinningNeed::length(MIB), "rxe0");
    assert_eq!(full(&hybrid), (RdmaResource::HcaObject, 3, 3));
    assert_message!("eagain_ancestor", "hybrid", hybrid);
    let v1 = read("v1").explain(libc::EAGAIN, PinningNeed::length(0), "rxe0");
    assert_eq!(full(&v1), (RdmaResource::HcaHandle, 1, 1));
}

#[test]
fn eagain_at_opening_is_about_open_devices_alone() {
    let diagnosis = read("v1").explain_open(libc::EAGAIN, "mlx5_0");
    assert_eq!(full(&diagnosis), (RdmaResource::HcaHandle, 2, 2));
    assert_message!("eagain_open", "v1", diagnosis);
    // Here too many objects exist, and opening a device creates none.
    let other = read("v2").explain_open(libc::EAGAIN, "rxe0");
    assert_eq!(other.cause(), &PinningCause::NotExplained);
    assert_eq!(read("v2").explain_open(libc::EACCES, "rxe0").cause(), &PinningCause::NotALimit);
}

#[test]
fn eagain_with_room_left_points_to_what_cannot_be_seen() {
    for (name, device) in [("v2-container", "mlx5_0"), ("v1", "mlx5_7")] {
        let diagnosis = read(name).explain(libc::EAGAIN, PinningNeed::length(MIB), device);
        assert_eq!(diagnosis.cause(), &PinningCause::NotExplained);
        assert_message!(format!("eagain_not_explained_{name}"), name, diagnosis);
    }
}

#[test]
fn every_other_errno_is_not_a_limit() {
    for (name, errno) in [
        ("einval", libc::EINVAL),
        ("efault", libc::EFAULT),
        ("eopnotsupp", libc::EOPNOTSUPP),
        ("enospc", libc::ENOSPC),
    ] {
        let diagnosis = read("v2").explain(errno, PinningNeed::length(MIB), "rxe0");
        assert_eq!(diagnosis.cause(), &PinningCause::NotALimit);
        assert_message!(format!("other_{name}"), "v2", diagnosis);
    }
}

#[test]
fn a_prediction_names_the_first_limit_that_would_refuse() {
    let refused = |name: &str, need, device| read(name).check_before(need, device).unwrap_err();
    assert_message!("predict_memlock_zero", "v2", refused("v2", PinningNeed::length(1), "rxe0"));
    assert_message!("predict_memlock", "v1", refused("v1", PinningNeed::length(MIB), "rxe0"));
    assert_message!("predict_rdma", "hybrid", refused("hybrid", PinningNeed::length(MIB), "rxe0"));
    assert!(refused("v2", PinningNeed::length(1), "rxe0").errno().is_none());
}

#[test]
fn a_need_that_fits_is_admitted_to_the_last_byte() {
    let v1 = read("v1");
    assert_eq!(v1.check_before(PinningNeed::length(12 * 4096), "mlx5_0"), Ok(()));
    assert!(v1.check_before(PinningNeed::length(12 * 4096 + 1), "mlx5_0").is_err());
    let container = read("v1-container");
    assert_eq!(container.check_before(PinningNeed::length(4 * MIB), "mlx5_0"), Ok(()));
    assert!(container.check_before(PinningNeed::length(4 * MIB + 1), "mlx5_0").is_err());
    assert_eq!(container.check_before(PinningNeed::length(5 * MIB).resident(), "mlx5_0"), Ok(()));
}

#[test]
fn the_last_object_of_an_rdma_cgroup_is_admitted_and_no_more() {
    // mlx5_0 has 1999 of 2000 objects in this tree.
    assert_eq!(read("v1").check_before(PinningNeed::length(4096), "mlx5_0"), Ok(()));
    assert!(read("hybrid").check_before(PinningNeed::length(4096), "rxe0").is_err());
    assert_eq!(read("hybrid").check_before(PinningNeed::length(4096), "mlx5_0"), Ok(()));
}

#[test]
fn with_nothing_to_read_everything_is_not_known_and_nothing_is_blamed() {
    let empty = tempfile::tempdir().unwrap();
    let snapshot = PinningProbe::at(empty.path()).read();
    assert_eq!(snapshot.to_string().matches("not known (").count(), 8, "{snapshot}");
    assert_eq!(snapshot.check_before(PinningNeed::length(u64::MAX), "rxe0"), Ok(()));
    for (name, errno) in [("eperm", libc::EPERM), ("enomem", libc::ENOMEM), ("eagain", libc::EAGAIN)] {
        let diagnosis = snapshot.explain(errno, PinningNeed::length(MIB), "rxe0");
        assert_eq!(diagnosis.cause(), &PinningCause::NotExplained);
        let text = diagnosis.to_string().replace(&empty.path().display().to_string(), "");
        insta::assert_snapshot!(format!("nothing_known_{name}"), text);
    }
}

#[test]
fn a_doubtful_capability_is_said_to_be_in_doubt() {
    let tree = tempfile::tempdir().unwrap();
    let process = tree.path().join("proc/thread-self");
    std::fs::create_dir_all(&process).unwrap();
    std::fs::write(process.join("limits"), "Max locked memory 65536 65536 bytes\n").unwrap();
    let mut snapshot = PinningProbe::at(tree.path()).read();
    snapshot.page_bytes = 4096;
    let diagnosis = snapshot.explain(libc::ENOMEM, PinningNeed::length(MIB), "rxe0");
    let text = diagnosis.to_string().replace(&tree.path().display().to_string(), "");
    insta::assert_snapshot!("enomem_memlock_in_doubt", text);
}

#[test]
fn this_machine_is_read() {
    let snapshot = PinningProbe::new().read();
    assert_eq!(snapshot.page_bytes, rustix::param::page_size() as u64);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock);
    let told = |limit: Option<u64>| limit.map_or(Limit::Unlimited, Limit::AtMost);
    assert_eq!(snapshot.memlock.soft, Ok(told(limit.current)));
    assert_eq!(snapshot.memlock.hard, Ok(told(limit.maximum)));
    assert!(snapshot.memlock.pinned_bytes.is_ok() && snapshot.ipc_lock.effective.is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any file may contain anything: it is read or refused, and every message can be printed.
    #[test]
    fn rubbish_in_any_file_never_panics(
        name in prop::sample::select(vec!["v1", "hybrid", "v2", "v2-container"]),
        which in any::<prop::sample::Index>(),
        bytes in prop::collection::vec(any::<u8>(), 0..100),
        append: bool, errno in 0..140_i32, address: u64, length: u64, rails: u64,
    ) {
        let tree = tempfile::tempdir().unwrap();
        let mut files = Vec::new();
        copy(&fixture(name), tree.path(), &mut files);
        let file = &files[which.index(files.len())];
        let mut text = if append { std::fs::read(file).unwrap() } else { Vec::new() };
        text.extend(bytes);
        std::fs::write(file, text).unwrap();

        let snapshot = PinningProbe::at(tree.path()).read();
        let need = PinningNeed::range(address, length).registrations(rails);
        let errnos = [libc::EPERM, libc::ENOMEM, libc::EAGAIN, errno];
        let explained = errnos.iter().map(|errno| snapshot.explain(*errno, need, "rxe0"));
        for diagnosis in explained.chain(snapshot.check_before(need, "rxe0").err()) {
            prop_assert!(diagnosis.to_string().contains("mend: "));
        }
        prop_assert!(snapshot.to_string().contains("RLIMIT_MEMLOCK"));
    }
}

/// Copies a tree, links as links, and adds its files to `files`.
fn copy(from: &Path, to: &Path, files: &mut Vec<PathBuf>) {
    std::fs::create_dir_all(to).unwrap();
    let mut entries: Vec<_> = std::fs::read_dir(from).unwrap().map(Result::unwrap).collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            copy(&source, &target, files);
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(std::fs::read_link(&source).unwrap(), &target).unwrap();
        } else {
            std::fs::copy(&source, &target).unwrap();
            files.push(target);
        }
    }
}
