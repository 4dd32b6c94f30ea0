//! Hosts that are namespaces of this machine: each has a network, a name and a boot of its own, and a cable to one
//! switch, or to several. Ranks of one host map each other's memory, and reach ranks of another host over TCP alone.
//!
//! A host has no name in `/run/netns`: the process that holds its namespaces ends with the value of [`Hosts`], and with
//! the process that made it, even by SIGKILL. So nothing is left on the machine.

mod keeper;

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::process::Command;

use keeper::Keeper;
use thiserror::Error;

/// The most hosts: their addresses share a last byte.
pub const HOSTS_MAX: usize = 200;

/// The name, address and boot of a host: the kernel's boot id is what tells hosts apart, so each host has a random one.
const HOST: &str = "
hostname $1
mount -t tmpfs none /mnt
cat /proc/sys/kernel/random/uuid >/mnt/boot_id
mount --bind /mnt/boot_id /proc/sys/kernel/random/boot_id
umount -l /mnt
ip link set lo up";
/// A switch, named `$1`.
const SWITCH: &str = "ip link add name $1 type bridge; ip link set $1 up";
/// A cable from the switch `$4` to the interface `$3` of the host whose process `$2` is.
const CABLE: &str =
    "ip link add name $1 type veth peer name $3 netns $2; ip link set $1 master $4; ip link set $1 up";
/// The end of the cable at the host.
const PLUG: &str = "ip address add $1/24 dev $2; ip link set $2 up";
/// Room for one burst of segments that the kernel forms at once, and a queue of 20 ms, as a small switch has.
const SLOW: &str = "tc qdisc add dev $1 root tbf rate $2mbit burst 128kb latency 20ms";

/// Namespaces could not be made or changed.
#[derive(Debug, Error)]
#[error(
    "hosts of namespaces cannot be made or changed: {0}; run as root, or where a user may make namespaces, with \
     util-linux (unshare, nsenter, setpriv) and iproute2 (ip, tc)"
)]
pub struct HostsError(String);

/// Hosts on one switch, or on several: each rail has a switch and a network of its own.
#[derive(Debug)]
pub struct Hosts {
    switch: Keeper,
    rails: usize,
    hosts: Vec<Keeper>,
}

/// A rank's place in a job that is spread over hosts.
#[derive(Debug, Clone)]
pub struct Place {
    /// The host that the rank runs on.
    pub host: usize,
    /// The variables by which the rank knows its number and where all ranks meet.
    pub variables: [(&'static str, String); 6],
}

impl Hosts {
    /// Makes so many hosts, whose cables carry so many megabits a second in each direction, or as much as the machine
    /// can.
    ///
    /// # Errors
    ///
    /// The system refuses, which it does to most users but root, or a program is missing.
    pub fn new(count: usize, megabits: Option<u32>) -> Result<Self, HostsError> {
        Self::with_rails(count, 1, megabits)
    }

    /// Makes so many hosts with so many cables each, the first of which is `eth0` at the host.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_rails(count: usize, rails: usize, megabits: Option<u32>) -> Result<Self, HostsError> {
        if count.max(rails) > HOSTS_MAX {
            return Err(HostsError(format!(
                "{count} hosts on {rails} rails have no addresses, {HOSTS_MAX} have"
            )));
        }
        let switch = Keeper::new(None, "", &[])?;
        for rail in 0..rails {
            switch.run(SWITCH, &[&switch_of(rail)])?;
        }
        let mut hosts = Self { switch, rails, hosts: Vec::new() };
        for number in 0..count {
            hosts.add(number, megabits)?;
        }
        Ok(hosts)
    }

    fn add(&mut self, number: usize, megabits: Option<u32>) -> Result<(), HostsError> {
        let host = Keeper::new(Some(&self.switch), HOST, &[&name(number)])?;
        for rail in 0..self.rails {
            let (port, eth, switch) = (port(number, rail), format!("eth{rail}"), switch_of(rail));
            self.switch.run(CABLE, &[&port, &host.id().to_string(), &eth, &switch])?;
            host.run(PLUG, &[&Self::on_rail(number, rail).to_string(), &eth])?;
            if let Some(rate) = megabits {
                self.switch.run(SLOW, &[&port, &rate.to_string()])?;
                host.run(SLOW, &[&eth, &rate.to_string()])?;
            }
        }
        self.hosts.push(host);
        Ok(())
    }

    /// The address of a host, on its first rail.
    #[must_use]
    pub fn address(host: usize) -> Ipv4Addr {
        Self::on_rail(host, 0)
    }

    fn on_rail(host: usize, rail: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, rail as u8, host as u8 + 1)
    }

    /// A command that runs a program on a host, by its whole path and in the folder `/`. The program has the process id
    /// of the command, and is killed when the thread that started it ends.
    ///
    /// # Panics
    ///
    /// There is no such host.
    #[must_use]
    pub fn command(&self, host: usize, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.hosts[host].enter();
        command.args(["setpriv", "--pdeathsig", "KILL", "--"]).arg(program);
        command
    }

    /// The beginning of a command line that runs a program on a host, for a script.
    ///
    /// # Panics
    ///
    /// There is no such host.
    #[must_use]
    pub fn prefix(&self, host: usize) -> String {
        let enter = self.hosts[host].enter();
        let words = std::iter::once(enter.get_program()).chain(enter.get_args());
        words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
    }

    /// The places of a job with `per_host` ranks on each host, in the order of ranks, which meet at a port of host 0.
    pub fn places(&self, per_host: usize, port: u16) -> impl Iterator<Item = Place> {
        let ranks = self.hosts.len() * per_host;
        (0..ranks).map(move |rank| Place {
            host: rank / per_host,
            variables: [
                ("RANK", rank.to_string()),
                ("WORLD_SIZE", ranks.to_string()),
                ("LOCAL_RANK", (rank % per_host).to_string()),
                ("LOCAL_WORLD_SIZE", per_host.to_string()),
                ("MASTER_ADDR", Self::address(0).to_string()),
                ("MASTER_PORT", port.to_string()),
            ],
        })
    }

    /// Takes a host off the network as if somebody had pulled its cables: nothing that was sent to it is answered any
    /// more, not even by a reset.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn cut(&self, host: usize) -> Result<(), HostsError> {
        (0..self.rails).try_for_each(|rail| self.cut_rail(host, rail))
    }

    /// Pulls one cable of a host, like [`cut`](Self::cut).
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn cut_rail(&self, host: usize, rail: usize) -> Result<(), HostsError> {
        self.switch.run("ip link set $1 down", &[&port(host, rail)])
    }

    /// Puts a host that was cut off on the network again.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn mend(&self, host: usize) -> Result<(), HostsError> {
        (0..self.rails).try_for_each(|rail| self.switch.run("ip link set $1 up", &[&port(host, rail)]))
    }
}

/// The name by which a host's programs and their errors call it.
#[must_use]
pub fn name(host: usize) -> String {
    format!("host{host}")
}

/// The switch's end of a host's cable.
fn port(host: usize, rail: usize) -> String {
    format!("port{host}r{rail}")
}

fn switch_of(rail: usize) -> String {
    format!("switch{rail}")
}
