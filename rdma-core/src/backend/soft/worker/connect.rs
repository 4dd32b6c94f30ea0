//! INIT to RTR: which wire reaches the peer.

use std::io;

use super::super::engine::state::State as QpStep;
use super::super::fabric::{Command, Hold};
use super::super::gid;
use super::super::options::Wire;
use super::super::qp::{Carrier, Peer};
use super::super::wire::{Hello, QpRef, Reason};
use super::{Place, Worker};
use crate::backend::interface::Slot;
use crate::error::ConnectError;
use crate::{Endpoint, PathOptions, PortNum, QpState};

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
        let Ok(place) = self.place(slot) else {
            return self.modify(slot, QpState::RTR, mend, |_, _| Err(libc::EINVAL));
        };
        let (hello, carrier, here) = {
            let mut hold = self.fabric().lock();
            let table = hold.devices.get(opened.device).map_or_else(Vec::new, |device| device.gids.clone());
            let own = table.iter().find(|entry| entry.index == options.gid_index).map(|entry| entry.gid);
            let hello = Hello {
                source_gid: own.unwrap_or_default(),
                source_qp: place.num,
                destination_gid: peer.gid,
                destination_qp: peer.qp_num,
            };
            if own.is_none() {
                let (device, index) = (opened.name.clone(), options.gid_index);
                return Err(ConnectError::NoSuchGid { device, port: PortNum(1), index, table });
            }
            let carrier = self.carrier(&mut hold, place, &hello)?;
            (hello, carrier, hold.by_gid.contains_key(&peer.gid))
        };
        self.modify(slot, QpState::RTR, mend, |hold, id| {
            if options.mtu.is_some_and(|mtu| mtu.bytes().is_none()) {
                return Err(libc::EINVAL);
            }
            let qp = hold.qps.get_mut(id).ok_or(libc::EINVAL)?;
            let peer_here = Peer { gid: peer.gid, qp_num: peer.qp_num, found: None };
            let timer = options.min_rnr_timer.code();
            qp.receive_from(hello.source_gid, peer_here, peer.psn.value(), carrier, timer)?;
            qp.mapped.here = here;
            // From now on the wire may hear the peer, too.
            hold.commands.push_back(Command::Heed);
            if carrier != Carrier::Local && gid::listens_at(peer.gid).is_some() {
                hold.commands.push_back(Command::Connect { qp: id, hello });
            }
            Ok(())
        })
    }

    /// Which wire reaches the peer; on the mapped one the rendezvous has begun.
    fn carrier(&self, hold: &mut Hold<'_>, place: Place, hello: &Hello) -> Result<Carrier, ConnectError> {
        let peer = hello.destination_gid;
        let wire = hold.devices.get(self.context.opened.device).map_or(Wire::Local, |device| device.wire);
        let here = hold.by_gid.contains_key(&peer);
        let refused = |errno, mend: &str| {
            Err(ConnectError::Refused {
                qp_num: place.num,
                to: QpState::RTR,
                source: io::Error::from_raw_os_error(errno),
                mend: mend.to_owned(),
            })
        };
        match wire {
            Wire::Auto | Wire::Local if here => return Ok(Carrier::Local),
            Wire::Local => {
                return refused(
                    libc::ENETUNREACH,
                    "the peer's GID is of no open device of this process, and the wire is Local: use Wire::Auto",
                );
            }
            Wire::Mapped => {
                return self.meet(hold, place.id, hello).map(|()| Carrier::Mapped).or_else(|reason| {
                    let mend =
                        format!("the peer is not mapped: {reason}; with Wire::Auto both meet over TCP");
                    refused(libc::ENETUNREACH, &mend)
                });
            }
            Wire::Auto | Wire::Tcp => {}
        }
        if gid::listens_at(peer).is_some() {
            return Ok(Carrier::Tcp);
        }
        refused(
            libc::ENETUNREACH,
            "the peer's GID is not that of a software device that listens: exchange the GID at index 1, \
             and let the peer open its device with another wire than Local",
        )
    }

    /// Asks for the peer among the processes of this host.
    fn meet(&self, hold: &mut Hold<'_>, id: QpRef, hello: &Hello) -> Result<(), Reason> {
        let exposed = hold.devices.get(self.context.opened.device).is_some_and(|it| it.exposure.is_some());
        // Else the step is refused, and a connection that there is stays as it is.
        let ready = hold.qps.get(id).is_some_and(|qp| qp.state == QpStep::Init);
        match (exposed, ready) {
            (true, true) => hold.guarded().rendezvous.connect(id, hello),
            (true, false) => Ok(()),
            (false, _) => Err(Reason::NoNeighbour),
        }
    }
}
