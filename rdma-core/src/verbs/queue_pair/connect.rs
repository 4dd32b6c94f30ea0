//! Transitions of a queue pair: RESET to INIT to RTR to RTS.

use std::time::Duration;

use super::{Init, QueuePair, ReadyToReceive, ReadyToSend, Reset, State};
use crate::error::ConnectError;
use crate::{
    Access, Deadline, Endpoint, InitOptions, PathOptions, PortAttributes, PortState, ProtectionDomain,
    QueuePairOptions, Refused, RetryOptions, Worker, gid,
};

/// Result of a transition: the queue pair in its new state, or the unchanged queue pair with the error.
type Moved<T, S> = Result<QueuePair<T>, Refused<QueuePair<S>, ConnectError>>;

impl QueuePair<Reset> {
    /// Moves from RESET to INIT, from where on receives may be posted.
    ///
    /// # Errors
    ///
    /// The queue pair comes back in RESET.
    ///
    /// - [`ConnectError::PortDown`] when the port is not ACTIVE.
    /// - [`ConnectError::Query`] when the port does not exist.
    /// - [`ConnectError::UndeclaredAccess`] when the access has bits without a name.
    /// - [`ConnectError::Refused`] when the device refuses.
    ///
    /// See `ibv_modify_qp(3)`.
    #[doc(alias = "ibv_modify_qp")]
    pub fn init(mut self, worker: &mut Worker, options: &InitOptions) -> Moved<Init, Reset> {
        let step = match options.access.undeclared() {
            Some(bits) => Err(ConnectError::UndeclaredAccess { bits }),
            None => {
                active_port(worker, options).and_then(|_| worker.core()?.modify_to_init(self.handle, options))
            }
        };
        if step.is_ok() {
            self.init = options.clone();
        }
        self.moved(step)
    }
}

impl QueuePair<Init> {
    /// Returns the values that the peer needs to connect to this queue pair, which sends from the GID at
    /// `gid_index`.
    ///
    /// # Errors
    ///
    /// [`ConnectError::NoSuchGid`], with the entries of the table, and [`ConnectError::PortDown`].
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

    /// Moves from INIT to RTR, from where on requests of the peer are carried out.
    ///
    /// The path MTU is the smaller one of both ports' unless `path` names one.
    ///
    /// # Errors
    ///
    /// The queue pair comes back in INIT.
    ///
    /// - [`ConnectError::NoSuchGid`] and [`ConnectError::PortDown`] for this side's port.
    /// - [`ConnectError::GidBeyondPath`] when the index of the GID is above 255.
    /// - [`ConnectError::Refused`] when the device refuses; the message has the usual cause.
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
            worker.core()?.modify_to_rtr(self.handle, peer, &PathOptions { mtu: Some(mtu), ..path.clone() })
        });
        self.moved(step)
    }

    /// Moves from INIT to RTS in one call.
    ///
    /// # Errors
    ///
    /// The errors of both transitions. The trap: after an error the queue pair is gone. It is fenced, so that
    /// its receives complete with `WR_FLUSH_ERR` and give their buffers back. Take the two transitions one by
    /// one to keep it.
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
    /// Moves from RTR to RTS, from where on any request may be posted.
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
        let step = worker.core().map_err(ConnectError::from);
        let step = step.and_then(|core| core.modify_to_rts(self.handle, self.psn, retry));
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

/// Fences a queue pair that cannot be returned to the caller, so that it no longer occupies its worker's
/// queue.
fn give_up<S: State>(worker: &mut Worker, refused: Refused<QueuePair<S>, ConnectError>) -> ConnectError {
    if let Err(kept) = worker.fence(refused.object, Deadline::after(Duration::ZERO)) {
        crate::log::warn!(error = %kept.error, "a queue pair that failed to connect could not be fenced; it stays until its worker is dropped");
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

/// Connects two queue pairs of one worker to each other, with default options and with remote write and read
/// rights.
///
/// Meant for examples, tests and self-checks: a device that cannot reach itself cannot reach others.
/// [`Worker`] has an example.
///
/// # Errors
///
/// Any error of creating and connecting the queue pairs.
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
