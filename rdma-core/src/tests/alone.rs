//! Tests that change or count what belongs to the whole process: each runs in a process of its own.

/// Runs `body` in a process that runs nothing else: this executable runs itself again for the test `name` of `module`
/// (`module_path!()`).
pub(crate) fn alone(module: &str, name: &str, body: impl FnOnce()) {
    const ALONE: &str = "RDMA_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return body();
    }
    let test = format!("{}::{name}", module.split_once("::").unwrap().1);
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    let output = again.args([&test, "--exact", "--test-threads=1"]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
