//! RESET to INIT to RTR to RTS.

use std::time::Duration;

use super::{Init, QueuePair, ReadyToReceive, ReadyToSend, Reset, State};
use crate::error::ConnectError;
use crate::{
    Access, Deadline, Endpoint, InitOptions, PathOptions, PortAttributes, PortState, ProtectionDomain,
    QueuePairOptions, Refused, RetryOptions, Worker, gid,
};

/// A transition's outcome: the queue pair in its new state, or as it was with the reason.
type Moved<T, S> = Result<QueuePair<T>, Refused<QueuePair<S>, ConnectError>>;

impl QueuePair<Reset> {
    /// RESET to INIT: receives may be posted from now on.
    ///
    /// # Errors
    ///
    /// [`ConnectError::PortDown`], [`ConnectError::Query`] for a port that does not exist,
    /// [`ConnectError::Refused`]; the queue pair comes back in RESET.
    ///
    /// See `ibv_modify_qp(3)`.
    #[doc(alias = "ibv_modify_qp")]
    pub fn init(mut self, worker: &mut Worker, options: &InitOptions) -> Moved<Init, Reset> {
        let step =
            active_port(worker, options).and_then(|_| worker.core().modify_to_init(self.handle, options));
        if step.is_ok() {
            self.init = options.clone();
        }
        self.moved(step)
    }
}

impl QueuePair<Init> {
    /// What the peer needs to connect to this queue pair, sending from the GID at `gid_index`.
    ///
    /// # Errors
    ///
    /// [`ConnectError::NoSuchGid`] with the table there is, [`ConnectError::PortDown`].
    pub fn endpoint(&self, worker: &Worker, gid_index: u32) -> Result<Endpoint, ConnectError> {
        let port = active_port(worker, &self.init)?;
        let table = worker.context().gids(self.init.port)?;
        let Some(entry) = table.iter().find(|entry| entry.index == gid_index) else {
            let device = worker.context().name().to_owned();
            return Err(ConnectError::NoSuchGid { device, port: self.init.port, index: gid_index, table });
        };
        Ok(Endpoint {
            qp_num: self.num(),
            psn: self.psn,
            lid: port.lid,
            gid: entry.gid,
            mtu: port.active_mtu,
        })
    }

    /// INIT to RTR: the peer's requests are carried out from now on.
    ///
    /// # Errors
    ///
    /// [`ConnectError::NoSuchGid`], [`ConnectError::PortDown`], [`ConnectError::Refused`] with
    /// the usual cause; the queue pair comes back in INIT.
    ///
    /// See `ibv_modify_qp(3)`.
    #[doc(alias = "ibv_modify_qp")]
    pub fn ready_to_receive(
        self,
        worker: &mut Worker,
        peer: &Endpoint,
        path: &PathOptions,
    ) -> Moved<ReadyToReceive, Init> {
        let step = self.endpoint(worker, path.gid_index).and_then(|own| {
            let mtu = path.mtu.unwrap_or(own.mtu.min(peer.mtu));
            worker.core().modify_to_rtr(self.handle, peer, &PathOptions { mtu: Some(mtu), ..path.clone() })
        });
        self.moved(step)
    }

    /// INIT to RTR to RTS in one call.
    ///
    /// # Errors
    ///
    /// As for the two steps. The queue pair is then fenced, and receives posted to it complete
    /// with `WR_FLUSH_ERR`; take the two steps to keep it.
    pub fn connect(
        self,
        worker: &mut Worker,
        peer: &Endpoint,
        path: &PathOptions,
        retry: &RetryOptions,
    ) -> Result<QueuePair<ReadyToSend>, ConnectError> {
        match self.ready_to_receive(worker, peer, path) {
            Ok(receiving) => {
                receiving.ready_to_send(worker, retry).map_err(|refused| give_up(worker, refused))
            }
            Err(refused) => Err(give_up(worker, refused)),
        }
    }
}

impl QueuePair<ReadyToReceive> {
    /// RTR to RTS: everything may be posted from now on.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Refused`]; the queue pair comes back in RTR.
    ///
    /// See `ibv_modify_qp(3)`.
    #[doc(alias = "ibv_modify_qp")]
    pub fn ready_to_send(
        self,
        worker: &mut Worker,
        retry: &RetryOptions,
    ) -> Moved<ReadyToSend, ReadyToReceive> {
        let step = worker.core().modify_to_rts(self.handle, self.psn, retry);
        self.moved(step)
    }
}

impl<S: State> QueuePair<S> {
    fn moved<T: State>(self, step: Result<(), ConnectError>) -> Moved<T, S> {
        match step {
            Ok(()) => Ok(self.into_state()),
            Err(error) => Err(Refused { object: self, error }),
        }
    }
}

/// Ends a queue pair that cannot be given back, so that it takes nothing of its worker any more.
fn give_up<S: State>(worker: &mut Worker, refused: Refused<QueuePair<S>, ConnectError>) -> ConnectError {
    if let Err(kept) = worker.fence(refused.object, Deadline::after(Duration::ZERO)) {
        tracing::warn!(error = %kept.error, "a queue pair that was not connected stays until its worker goes");
    }
    refused.error
}

fn active_port(worker: &Worker, options: &InitOptions) -> Result<PortAttributes, ConnectError> {
    let port = worker.context().port(options.port)?;
    if port.state != PortState::ACTIVE {
        let device = worker.context().name().to_owned();
        return Err(ConnectError::PortDown { device, port: options.port, state: port.state });
    }
    Ok(port)
}

/// Two queue pairs of one worker, connected to each other with default options and all remote rights.
///
/// For examples, tests and self-checks: a device that cannot talk to itself cannot talk to others.
///
/// # Errors
///
/// Whatever creating and connecting them runs into.
pub fn loopback(
    worker: &mut Worker,
    pd: &ProtectionDomain,
) -> Result<(QueuePair<ReadyToSend>, QueuePair<ReadyToSend>), Box<dyn std::error::Error + Send + Sync>> {
    let init = InitOptions { access: Access::REMOTE_WRITE | Access::REMOTE_READ, ..InitOptions::default() };
    let port = worker.context().port(init.port)?;
    let table = worker.context().gids(init.port)?;
    let chosen = gid::choose(init.port, &table, &gid::Preference::new(port.link_layer))?;
    let path = PathOptions { gid_index: chosen.entry.index, ..PathOptions::default() };
    let mut make = || -> Result<QueuePair<Init>, Box<dyn std::error::Error + Send + Sync>> {
        let created = worker.create_queue_pair(pd, &QueuePairOptions::default())?;
        Ok(created.init(worker, &init).map_err(|refused| refused.error)?)
    };
    let (left, right) = (make()?, make()?);
    let (left_end, right_end) =
        (left.endpoint(worker, path.gid_index)?, right.endpoint(worker, path.gid_index)?);
    let right = right.connect(worker, &left_end, &path, &RetryOptions::default())?;
    let left = left.connect(worker, &right_end, &path, &RetryOptions::default())?;
    Ok((left, right))
}
