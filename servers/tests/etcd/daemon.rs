//! An etcd of a test's own.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// An etcd with ports and a data folder of its own, which ends with this.
pub struct Daemon {
    /// The address of its clients.
    pub address: SocketAddr,
    peers: SocketAddr,
    data: PathBuf,
    child: Option<Child>,
}

impl Daemon {
    /// An etcd that does not run yet; `None` where there is none.
    ///
    /// # Panics
    ///
    /// There is no etcd and this is CI.
    pub fn new(test: &str) -> Option<Self> {
        if Command::new("etcd").arg("--version").output().is_err() {
            assert!(
                std::env::var_os("CI").is_none_or(|ci| ci != "true"),
                "there is no etcd: install etcd-server"
            );
            eprintln!("skipped: there is no etcd (Debian: etcd-server)");
            return None;
        }
        let data = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("etcd-{test}"));
        // Both at once, so that they differ.
        let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [address, peers] = ports.map(|listener| listener.local_addr().unwrap());
        let mut daemon = Self { address, peers, data, child: None };
        daemon.forget();
        Some(daemon)
    }

    /// Runs etcd, with the data that it had.
    pub fn start(&mut self) {
        let (clients, peers) = (format!("http://{}", self.address), format!("http://{}", self.peers));
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(&self.data);
        command.args(["--name", "one", "--initial-cluster", &format!("one={peers}")]);
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        self.child = Some(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    }

    /// Kills etcd.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Removes the data of an etcd that does not run.
    pub fn forget(&mut self) {
        assert!(self.child.is_none());
        _ = std::fs::remove_dir_all(&self.data);
    }

    /// Stops etcd amid whatever it does. All of its threads have stopped then.
    pub fn stop(&self) {
        kill_process(self.pid(), Signal::STOP).unwrap();
        assert!(waitpid(Some(self.pid()), WaitOptions::UNTRACED).unwrap().unwrap().1.stopped());
    }

    /// Lets a stopped etcd go on.
    pub fn go_on(&self) {
        kill_process(self.pid(), Signal::CONT).unwrap();
    }

    fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().unwrap())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}
