//! Limits on pinning with a real kernel and device: each refusal has its own message, and later work
//! succeeds.
//!
//! The tests need root and an RDMA device (soft-RoCE will do), so they are ignored by default; `cargo xtask
//! soft-roce` runs them. Limits belong to a process, so each test runs again in a child of its own, which
//! gives up CAP_IPC_LOCK and sets the limit. Messages without a device are tested in `pinning.rs`.

use rdma_core::error::RegisterError;
use rdma_core::{Access, Context, DeviceList, LocalBuf, ProtectionDomain, Region, WorkerOptions};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::{env, fs, io};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Set in a child: the directory of the cgroup that it should join, or "none".
const CHILD: &str = "MEMLOCK_TEST_CHILD";

#[test]
#[ignore = "needs an RDMA device: cargo xtask soft-roce"]
fn a_memlock_limit_of_zero() {
    if let Role::Parent(child) = start("a_memlock_limit_of_zero", None) {
        return assert_passed(&child);
    }
    let (context, pd) = open();
    limit_memlock(0, None);
    insta::assert_snapshot!(refusal(&context, &register(&pd, MIB)), @r#"
    ibv_reg_mr of 1048576 bytes failed: Operation not permitted (os error 1); RLIMIT_MEMLOCK is 0, so nothing may be pinned (EPERM): all of the 1048576 bytes (1 MiB) needed are too many
      CAP_IPC_LOCK, which lifts this limit: not held
    mend: lift the limit, or raise it to 1048576 bytes (1 MiB) at least:
      shell:         ulimit -l unlimited
                     for good: `* - memlock unlimited` in /etc/security/limits.d/rdma.conf, and log in anew
      systemd unit:  [Service] LimitMEMLOCK=infinity
      pod spec:      securityContext.capabilities.add: ["IPC_LOCK"] on the container
                     for a user other than root: LimitMEMLOCK=infinity in the unit of the container runtime
    "#);

    limit_memlock(MIB, None);
    register(&pd, MIB).expect("the limit is lifted");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask soft-roce"]
fn a_memlock_limit_that_is_too_small() {
    if let Role::Parent(child) = start("a_memlock_limit_that_is_too_small", None) {
        return assert_passed(&child);
    }
    let (context, pd) = open();
    limit_memlock(64 * KIB, Some(64 * KIB));
    let held = register(&pd, 16 * KIB).expect("it fits");
    insta::assert_snapshot!(refusal(&context, &register(&pd, MIB)), @r#"
    ibv_reg_mr of 1048576 bytes failed: Cannot allocate memory (os error 12); RLIMIT_MEMLOCK is too small (ENOMEM): the limit is 65536 bytes (64 KiB), 16384 bytes (16 KiB) are pinned already, 1048576 bytes (1 MiB) more are needed, 999424 bytes (976 KiB) too many
      CAP_IPC_LOCK, which lifts this limit: not held
    mend: lift the limit, or raise it to 1064960 bytes (1.0 MiB) at least:
      shell:         as root, ulimit -l unlimited; others may not pass the hard limit of 65536 bytes (64 KiB)
                     for good: `* - memlock unlimited` in /etc/security/limits.d/rdma.conf, and log in anew
      systemd unit:  [Service] LimitMEMLOCK=infinity
      pod spec:      securityContext.capabilities.add: ["IPC_LOCK"] on the container
                     for a user other than root: LimitMEMLOCK=infinity in the unit of the container runtime
    "#);

    let warning = warnings(|| register(&pd, 64 * MIB).map(drop).unwrap_err());
    assert!(warning.contains("this registration may fail: RLIMIT_MEMLOCK is too small"), "{warning:?}");

    let more = register(&pd, 48 * KIB).expect("it fits to the last page");
    register(&pd, 1).expect_err("not one page more");
    drop((held, more));
    register(&pd, 64 * KIB).expect("what was given back can be used again");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask soft-roce"]
fn an_rdma_cgroup_that_is_full() {
    let directory = match start("an_rdma_cgroup_that_is_full", Some("rdma")) {
        Role::Parent(child) => return assert_passed(&child),
        Role::Child(directory) => directory,
    };
    // Two objects: the protection domain and one memory region.
    let limit = format!("{} hca_object=2", device_name());
    fs::write(directory.join("rdma.max"), limit).expect("rdma.max can be written");
    fs::write(directory.join("cgroup.procs"), "0").expect("the group can be joined");

    let (context, pd) = open();
    let held = pd.alloc_region(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE).expect("the second object");
    let refused: Result<Region, _> = pd.alloc_region(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    let text = refusal(&context, &refused).replace(&directory.display().to_string(), "CGROUP");
    insta::assert_snapshot!(text, @r#"
    ibv_reg_mr of 4096 bytes failed: Resource temporarily unavailable (os error 11); the rdma cgroup is full (EAGAIN): the limit of DEVICE is 2 hca_object, 2 are in use, 1 more is needed, 1 too many
      the limit stands in CGROUP/rdma.max
    mend: close what is no longer used, or raise the limit:
      shell:         as root, echo "DEVICE hca_object=max" > CGROUP/rdma.max
      systemd unit:  no setting of its own; [Service] ExecStartPre=+/bin/sh -c 'echo "DEVICE hca_object=max" > CGROUP/rdma.max'
      pod spec:      no field of its own: the container runtime sets it (OCI linux.resources.rdma:
                     hcaHandles, hcaObjects), or the plugin that serves the pod's `rdma/...` resource
    "#);

    let worker = context.worker(WorkerOptions::default()).expect_err("a completion queue is an object too");
    assert!(worker.to_string().contains("the rdma cgroup is full (EAGAIN)"), "{worker}");

    drop(held);
    register(&pd, 4096).expect("an object was given back");
}

/// On most kernels a lack of memory kills the process, so the warning must come before.
#[test]
#[ignore = "needs an RDMA device: cargo xtask soft-roce"]
fn a_memory_cgroup_that_is_too_small() {
    let directory = match start("a_memory_cgroup_that_is_too_small", Some("memory")) {
        Role::Parent(child) => {
            let stderr = String::from_utf8_lossy(&child.stderr);
            assert!(
                stderr.contains("this registration may fail: the memory cgroup is too small"),
                "{stderr}"
            );
            let beyond = "refused: 268435456 bytes are more than what";
            assert!(
                stderr.contains(beyond) && stderr.contains("memory.max says: 167772160 bytes"),
                "{stderr}"
            );
            let refused = stderr.contains("refused: ibv_reg_mr of 100663296 bytes failed");
            let killed = child.status.signal() == Some(libc::SIGKILL);
            assert!(refused || killed, "neither refused nor killed ({})\n{stderr}", child.status);
            return;
        }
        Role::Child(directory) => directory,
    };
    let limit_files = ["memory.max", "memory.limit_in_bytes"].map(|name| directory.join(name));
    let limit_file = limit_files.into_iter().find(|file| file.exists()).expect("one of both versions");
    fs::write(limit_file, (160 * MIB).to_string()).expect("the limit can be set");
    fs::write(directory.join("cgroup.procs"), "0").expect("the group can be joined");

    tracing_subscriber::fmt().with_ansi(false).with_writer(io::stderr).init();
    let (_, pd) = open();
    // More than the group can ever have is refused at once. More than it has now is only warned about.
    let beyond = register(&pd, 256 * MIB).map(drop).unwrap_err();
    eprintln!("refused: {beyond}");
    let _held = register(&pd, 96 * MIB).expect("there is room for one");
    let refused = register(&pd, 96 * MIB).map(drop).unwrap_err();
    eprintln!("refused: {refused}");
}

/// The process of a test that is running: every test runs in two.
enum Role {
    /// The process that the harness started; its child has ended.
    Parent(Output),
    /// The process that gives up CAP_IPC_LOCK, with the directory of its cgroup if the test asked for one.
    Child(PathBuf),
}

/// Runs the test again in a child, if this is the parent; the child may join a cgroup of `controller`.
fn start(test: &str, controller: Option<&str>) -> Role {
    if let Some(group) = env::var_os(CHILD) {
        drop_ipc_lock();
        return Role::Child(group.into());
    }
    let group = controller.map(Group::create);
    let directory = group.as_ref().map_or(Path::new("none"), |group| &group.directory);
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture"]).env(CHILD, directory);
    // The child compares snapshots, but the sources may be read-only where it runs.
    command.env("INSTA_UPDATE", "no").env("INSTA_WORKSPACE_ROOT", env!("CARGO_MANIFEST_DIR"));
    let output = command.output().expect("the child starts");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let device = stdout.lines().find(|line| line.starts_with("device "));
    println!("{}", device.unwrap_or("the child opened no device"));
    Role::Parent(output)
}

fn assert_passed(child: &Output) {
    let (stdout, stderr) = (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
    assert!(child.status.success(), "the child failed ({})\n{stdout}\n{stderr}", child.status);
    assert!(stdout.contains("1 passed"), "the child ran no test\n{stdout}");
}

fn device_name() -> String {
    let list = DeviceList::probe();
    let Some(device) = list.devices().first() else {
        panic!("this test needs an RDMA device, and there is none: {}", list.unavailable().unwrap_or("?"));
    };
    device.name().to_owned()
}

fn open() -> (Context, ProtectionDomain) {
    let list = DeviceList::probe();
    let context = list.find(&device_name()).unwrap().open().expect("the device opens");
    println!("\ndevice {}", context.name());
    let pd = context.alloc_pd().expect("a protection domain");
    (context, pd)
}

fn register(pd: &ProtectionDomain, bytes: u64) -> Result<LocalBuf, RegisterError> {
    pd.alloc_local(usize::try_from(bytes).unwrap())
}

/// Returns the message of a refusal, with the name of the device replaced.
fn refusal<T>(context: &Context, result: &Result<T, RegisterError>) -> String {
    match result {
        Ok(_) => panic!("{} was not refused", context.name()),
        Err(error) => error.to_string().replace(context.name(), "DEVICE"),
    }
}

/// Returns the log of `work`.
fn warnings<T>(work: impl FnOnce() -> T) -> String {
    let (reader, writer) = io::pipe().unwrap();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(Mutex::new(writer)).finish();
    tracing::subscriber::with_default(subscriber, work);
    io::read_to_string(reader).unwrap()
}

/// Gives up CAP_IPC_LOCK in this thread, which is the one that registers.
fn drop_ipc_lock() {
    let mut sets = capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, sets).unwrap();
}

fn limit_memlock(soft: u64, hard: Option<u64>) {
    setrlimit(Resource::Memlock, Rlimit { current: Some(soft), maximum: hard })
        .expect("the limit can be set");
}

/// A cgroup for one test, removed once the child has ended.
struct Group {
    directory: PathBuf,
}

impl Group {
    fn create(controller: &str) -> Self {
        let top = Path::new("/sys/fs/cgroup");
        let v1 = top.join(controller);
        let parent = if v1.join("cgroup.procs").exists() {
            v1
        } else {
            let v2 = [top.to_owned(), top.join("unified")].into_iter().find(|at| has(at, controller));
            let v2 = v2.unwrap_or_else(|| panic!("this test needs the {controller} controller of cgroups"));
            let hand_down = fs::write(v2.join("cgroup.subtree_control"), format!("+{controller}"));
            hand_down.expect("the controller can be handed down");
            v2
        };
        let directory = parent.join(format!("memlock-test-{}-{controller}", std::process::id()));
        fs::create_dir(&directory).expect("this test needs root, to create a cgroup");
        Self { directory }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.directory) {
            eprintln!("{} is left behind: {error}", self.directory.display());
        }
    }
}

fn has(directory: &Path, controller: &str) -> bool {
    let controllers: io::Result<String> = fs::read_to_string(directory.join("cgroup.controllers"));
    controllers.is_ok_and(|controllers| controllers.split_whitespace().any(|name| name == controller))
}
