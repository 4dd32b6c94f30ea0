//! INIT to RTR: which wire reaches the peer.

use std::io;

use super::super::engine::state::State as QpStep;
use super::super::fabric::{Command, FabricGuard};
use super::super::gid;
use super::super::options::Wire;
use super::super::qp::{Carrier, Peer};
use super::super::wire::{Hello, QpRef, UnmappedReason};
use super::{QpEntry, Worker};
use crate::backend::interface::Slot;
use crate::error::ConnectError;
use crate::{Endpoint, Mtu, PathOptions, PortNum, QpNum, QpState};

impl Worker {
    /// Connects a queue pair to `peer`, whose requests it answers from now on.
    pub(super) fn receive_from(
        &self,
        slot: Slot,
        peer: &Endpoint,
        options: &PathOptions,
    ) -> Result<(), ConnectError> {
        let opened = &self.context.opened;
        let mend = "the queue pair must be in INIT, and the path MTU one that verbs defines";
        let place = self.place(slot).map_err(|source| refused(QpNum(0), source, mend))?;
        // In one hold of the lock, so that what comes of the meeting finds the queue pair on its wire.
        let mut guard = self.fabric().lock();
        let table = guard.devices.get(opened.device).map_or_else(Vec::new, |device| device.gids.clone());
        let own = table.iter().find(|entry| entry.index == options.gid_index).map(|entry| entry.gid);
        let Some(source_gid) = own else {
            let (device, index) = (opened.name.clone(), options.gid_index);
            return Err(ConnectError::NoSuchGid { device, port: PortNum(1), index, table });
        };
        let (source_qp, destination_gid, destination_qp) = (place.num, peer.gid, peer.qp_num);
        let hello = Hello { source_gid, source_qp, destination_gid, destination_qp };
        let carrier = self.carrier(&mut guard, place, &hello, options.other_host)?;
        let timer = options.min_rnr_timer.code();
        step(&mut guard, place.id, (&hello, carrier), (peer.psn.value(), timer), options.mtu)
            .map_err(|errno| refused(place.num, io::Error::from_raw_os_error(errno), mend))
    }

    /// Which wire reaches the peer; on the mapped one the rendezvous has begun.
    fn carrier(
        &self,
        guard: &mut FabricGuard<'_>,
        place: QpEntry,
        hello: &Hello,
        apart: bool,
    ) -> Result<Carrier, ConnectError> {
        let peer = hello.destination_gid;
        let wire = guard.devices.get(self.context.opened.device).map_or(Wire::Local, |device| device.wire);
        let here = guard.by_gid.contains_key(&peer);
        let unreachable =
            |mend: &str| Err(refused(place.num, io::Error::from_raw_os_error(libc::ENETUNREACH), mend));
        match wire {
            Wire::Auto if apart => {}
            Wire::Auto | Wire::Local if here => return Ok(Carrier::Local),
            Wire::Local => {
                return unreachable(
                    "the peer's GID is of no open device of this process, and the wire is Local: use Wire::Auto",
                );
            }
            Wire::Mapped => {
                return self.meet(guard, place.id, hello, false).map(|()| Carrier::Mapped).or_else(
                    |reason| {
                        let mend = format!(
                            "the peer is not mapped: {reason}; with Wire::Auto both meet over TCP then"
                        );
                        unreachable(&mend)
                    },
                );
            }
            Wire::Auto if gid::listens_at(peer).is_some() && self.is_exposed(guard) => {
                return Ok(self.meet(guard, place.id, hello, true).map_or_else(
                    |reason| {
                        guard.log_unmapped(self.context.opened.device, peer, &reason, true);
                        Carrier::Tcp
                    },
                    |()| Carrier::Mapped,
                ));
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

    /// Whether processes of this host can find the device.
    fn is_exposed(&self, guard: &FabricGuard<'_>) -> bool {
        guard.devices.get(self.context.opened.device).is_some_and(|device| device.exports.is_some())
    }

    /// Asks for the peer among the processes of this host; whether another wire reaches it, too.
    fn meet(
        &self,
        guard: &mut FabricGuard<'_>,
        id: QpRef,
        hello: &Hello,
        other_wire: bool,
    ) -> Result<(), UnmappedReason> {
        let export = self.is_exposed(guard);
        // Else the step is refused, and a connection that there is stays as it is.
        let ready = guard.qps.get(id).is_some_and(|qp| qp.state == QpStep::Init);
        match (export, ready) {
            (true, true) => guard.guarded().rendezvous.connect(id, hello, other_wire),
            (true, false) => Ok(()),
            (false, _) => Err(UnmappedReason::NoNeighbour),
        }
    }
}

/// Has a queue pair in INIT answer its peer from now on, at that sequence number and with that timer.
fn step(
    guard: &mut FabricGuard<'_>,
    id: QpRef,
    (hello, carrier): (&Hello, Carrier),
    (psn, rnr_timer): (u32, u8),
    mtu: Option<Mtu>,
) -> Result<(), i32> {
    if mtu.is_some_and(|mtu| mtu.bytes().is_none()) {
        return Err(libc::EINVAL);
    }
    let here = guard.by_gid.contains_key(&hello.destination_gid);
    let qp = guard.qps.get_mut(id).ok_or(libc::EINVAL)?;
    let peer = Peer { gid: hello.destination_gid, qp_num: hello.destination_qp, found: None };
    qp.receive_from(hello.source_gid, peer, psn, carrier, rnr_timer)?;
    qp.mapped.peer_in_process = here;
    // From now on the wire may hear the peer, too.
    guard.commands.push_back(Command::RetryWaiting);
    if carrier != Carrier::Local && gid::listens_at(hello.destination_gid).is_some() {
        guard.commands.push_back(Command::Connect { qp: id, hello: *hello });
    }
    Ok(())
}

fn refused(qp_num: QpNum, source: io::Error, mend: &str) -> ConnectError {
    ConnectError::Refused { qp_num, to: QpState::RTR, source, mend: mend.to_owned() }
}
