//! The step from INIT to RTR: chooses the wire that reaches the peer, and starts answering it.

use std::io;

use super::super::fabric::{Command, FabricGuard};
use super::super::gid;
use super::super::options::Wire;
use super::super::qp::{Carrier, Peer};
use super::super::wire::{Hello, QpRef, UnmappedReason};
use super::{QpEntry, Worker};
use crate::backend::interface::Slot;
use crate::error::ConnectError;
use crate::{Endpoint, PathOptions, PortNum, Psn, QpNum, QpState};

impl Worker {
    /// Moves the queue pair in `slot` to RTR: it answers the requests of `peer` from now on.
    pub(super) fn receive_from(
        &self,
        slot: Slot,
        peer: &Endpoint,
        options: &PathOptions,
    ) -> Result<(), ConnectError> {
        let opened = &self.context.opened;
        let mend = "the queue pair must be in INIT, and the path MTU one that verbs defines";
        let entry = self.entry(slot).map_err(|source| refused(QpNum(0), source, mend))?;
        // Choosing the wire and the step take one hold of the lock. Otherwise the rendezvous could end in between, and
        // would find the queue pair without a wire.
        let mut guard = self.fabric.lock();
        let table = guard.devices.get(opened.device).map_or_else(Vec::new, |device| device.gids.clone());
        let own = table.iter().find(|entry| entry.index == options.gid_index).map(|entry| entry.gid);
        let Some(source_gid) = own else {
            let (device, index) = (opened.name.clone(), options.gid_index);
            return Err(ConnectError::NoSuchGid { device, port: PortNum(1), index, table });
        };
        let (source_qp, destination_gid, destination_qp) = (entry.num, peer.gid, peer.qp_num);
        let hello = Hello { source_gid, source_qp, destination_gid, destination_qp };
        let carrier = self.carrier(&mut guard, entry, &hello, options.other_host)?;
        to_ready_to_receive(&mut guard, entry.id, &hello, carrier, peer.psn, options)
            .map_err(|errno| refused(entry.num, io::Error::from_raw_os_error(errno), mend))
    }

    /// Chooses the wire to the peer. For the mapped wire this also begins the rendezvous.
    fn carrier(
        &self,
        guard: &mut FabricGuard<'_>,
        entry: QpEntry,
        hello: &Hello,
        other_host: bool,
    ) -> Result<Carrier, ConnectError> {
        let peer = hello.destination_gid;
        let wire = guard.devices.get(self.context.opened.device).map_or(Wire::Local, |device| device.wire);
        let here = guard.by_gid.contains_key(&peer);
        let unreachable =
            |mend: &str| Err(refused(entry.num, io::Error::from_raw_os_error(libc::ENETUNREACH), mend));
        match wire {
            Wire::Auto if other_host => {}
            Wire::Auto | Wire::Local if here => return Ok(Carrier::Local),
            Wire::Local => {
                return unreachable(
                    "the peer's GID is of no open device of this process, and the wire is Local: use Wire::Auto",
                );
            }
            Wire::Mapped => {
                let begun = begin_rendezvous(guard, entry.id, hello, false);
                return begun.map(|()| Carrier::Mapped).or_else(|reason| {
                    unreachable(&format!(
                        "the peer is not mapped: {reason}; with Wire::Auto both meet over TCP then"
                    ))
                });
            }
            Wire::Auto if gid::listens_at(peer).is_some() && self.shares_memory(guard) => {
                let begun = begin_rendezvous(guard, entry.id, hello, true);
                let Err(reason) = begun else { return Ok(Carrier::Mapped) };
                guard.log_unmapped(self.context.opened.device, peer, &reason, true);
            }
            Wire::Auto | Wire::Tcp => {}
        }
        if gid::listens_at(peer).is_some() {
            return Ok(Carrier::Tcp);
        }
        unreachable(
            "the peer's GID is not that of a software device that listens: exchange the GID at index 1, \
             and let the peer open its device with another wire than Local",
        )
    }

    /// Whether the device shares memory with processes of this host.
    fn shares_memory(&self, guard: &FabricGuard<'_>) -> bool {
        guard.devices.get(self.context.opened.device).is_some_and(|device| device.exports.is_some())
    }
}

/// Begins the rendezvous with the peer, which must be a process of this host. `other_wire` says that TCP may be taken
/// instead: then the rendezvous refuses while descriptors are scarce, and leaves the last ones to TCP.
fn begin_rendezvous(
    guard: &mut FabricGuard<'_>,
    id: QpRef,
    hello: &Hello,
    other_wire: bool,
) -> Result<(), UnmappedReason> {
    // Outside INIT the step is refused below; a connection that exists must stay as it is.
    let ready = guard.qps.get(id).is_some_and(|qp| qp.state == QpState::INIT);
    if ready { guard.guarded().rendezvous.connect(id, hello, other_wire) } else { Ok(()) }
}

/// Moves a queue pair in INIT to RTR: it answers its peer, whose first request has sequence number `psn`.
fn to_ready_to_receive(
    guard: &mut FabricGuard<'_>,
    id: QpRef,
    hello: &Hello,
    carrier: Carrier,
    psn: Psn,
    options: &PathOptions,
) -> Result<(), i32> {
    if options.mtu.is_some_and(|mtu| mtu.bytes().is_none()) {
        return Err(libc::EINVAL);
    }
    let here = guard.by_gid.contains_key(&hello.destination_gid);
    let qp = guard.qps.get_mut(id).ok_or(libc::EINVAL)?;
    let peer = Peer { gid: hello.destination_gid, qp_num: hello.destination_qp, found: None };
    qp.receive_from(hello.source_gid, peer, psn.value(), carrier, options.min_rnr_timer.code())?;
    qp.mapped.peer_in_process = here;
    let device = qp.device;
    // A peer that asked too early was refused and waits: it may be accepted now.
    guard.commands.push_back(Command::RetryWaiting);
    if carrier != Carrier::Local && gid::listens_at(hello.destination_gid).is_some() {
        guard.commands.push_back(Command::Connect { device, qp: id, hello: *hello });
    }
    Ok(())
}

fn refused(qp_num: QpNum, source: io::Error, mend: &str) -> ConnectError {
    ConnectError::Refused { qp_num, to: QpState::RTR, source, mend: mend.to_owned() }
}
