//! Mounts among others, escapes and arbitrary bytes.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn mount(version: Version, root: &str, mount_point: &str) -> CgroupMount {
    CgroupMount { version, root: root.into(), mount_point: mount_point.into(), options: vec!["rw".into()] }
}

#[test]
fn cgroup_mounts_are_found_among_others() {
    let text = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 master:1 - cgroup2 cgroup2 rw,nsdelegate\n\
                31 22 0:27 /a\\040b /mnt/c\\134d rw - cgroup cgroup rw,cpu,memory\n\
                rubbish - cgroup2\n";
    let mounts = parse(text);
    assert_eq!(mounts.len(), 2);
    assert_eq!(
        (mounts[0].version, mounts[0].directory(Path::new("/r"))),
        (Version::V2, "/r/sys/fs/cgroup".into())
    );
    assert_eq!((mounts[1].root.as_str(), mounts[1].mount_point.as_str()), ("/a b", "/mnt/c\\d"));
    assert!(mounts[1].serves(Version::V1, "memory") && !mounts[1].serves(Version::V1, "rdma"));
    assert!(mounts[0].serves(Version::V2, "rdma") && !mounts[1].serves(Version::V2, "rdma"));
}

#[test]
fn a_mount_shows_what_lies_below_its_root() {
    let all = mount(Version::V2, "/", "/sys/fs/cgroup");
    assert_eq!(all.below("/a/b"), Some(vec!["a", "b"]));
    assert_eq!(all.below("/"), Some(vec![]));
    assert_eq!(all.below("/../sibling"), None);
    let part = mount(Version::V1, "/docker/x", "/sys/fs/cgroup");
    assert_eq!(part.below("/docker/x/y"), Some(vec!["y"]));
    assert_eq!(part.below("/docker/xy"), None);
    assert_eq!(part.below("/docker"), None);
    assert_eq!(mount(Version::V2, "/..", "/sys/fs/cgroup").below("/../a"), None);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_passed_over(
        bytes in vec(any::<u8>(), 0..200),
        fields in vec("\\PC{0,8}", 0..12),
    ) {
        let (mount, options) = (fields.join(" "), fields.join(","));
        let bytes = String::from_utf8_lossy(&bytes);
        let text = format!("{bytes}\n{mount} - cgroup2 {options}");
        for mount in parse(&text) {
            let _ = (mount.below("/a/b"), mount.directory(Path::new("/")));
        }
    }

    #[test]
    fn escapes_are_undone(path in "/[ -~\t\n]{0,40}") {
        let escaped: String = path.chars().map(|c| match c {
            ' ' | '\t' | '\n' | '\\' => format!("\\{:03o}", c as u32),
            c => c.to_string(),
        }).collect();
        prop_assert_eq!(unescape(&escaped), path);
    }
}
