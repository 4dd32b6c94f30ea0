//! The client: gives orders to the peer process, and works with its own end.

use std::net::TcpStream;
use std::time::Duration;

use rdma_core::RemoteMemory;

use super::protocol::{Answer, Lines, Request};
use crate::{CaseResult, End, Lab};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Our end of a connection to the peer process, and the line to give it orders.
pub(super) struct Remote {
    pub(super) end: End,
    /// The region that the peer exports.
    pub(super) region: RemoteMemory,
    lines: Lines,
}

impl Remote {
    /// Connects to the peer process, which exports a region of `bytes`.
    pub(super) fn connect(lab: &Lab, options: &crate::PairOptions, bytes: usize) -> Result<Self> {
        let peer = lab.peer.as_ref().ok_or("no peer process: name one with --peer HOST:PORT")?;
        let stream = TcpStream::connect(peer)?;
        stream.set_read_timeout(Some(2 * lab.patience))?;
        let mut lines = Lines::new(stream);
        let pd = lab.context.alloc_pd()?;
        let (mut worker, qp) = lab.half(&pd, options)?;
        let own = lab.endpoint(&worker, &qp)?;
        lines.say(&Request::Connect { to: own.into(), bytes })?;
        match lines.hear()? {
            Some(Answer::Connected { end, region }) => {
                let qp = lab.connect(&mut worker, qp, &end.into(), options)?;
                Ok(Self { end: End { worker, pd, qp }, region: region.into(), lines })
            }
            other => Err(format!("the peer did not connect: {other:?}").into()),
        }
    }

    /// Gives an order and waits for the answer.
    pub(super) fn ask(&mut self, request: Request) -> Result<Answer> {
        self.tell(request)?;
        self.answer()
    }

    /// Gives an order; the answer comes later.
    pub(super) fn tell(&mut self, request: Request) -> CaseResult {
        self.lines.say(&request)
    }

    /// Waits for the answer to the last order.
    pub(super) fn answer(&mut self) -> Result<Answer> {
        match self.lines.hear()? {
            Some(Answer::Error(error)) => Err(format!("the peer: {error}").into()),
            Some(answer) => Ok(answer),
            None => Err("the peer closed the connection".into()),
        }
    }

    /// Gives an order, whose answer must be `expected`.
    pub(super) fn expect(&mut self, request: Request, expected: &Answer) -> CaseResult {
        let answer = self.ask(request)?;
        if answer == *expected {
            Ok(())
        } else {
            Err(format!("{request:?}: {answer:?}, not {expected:?}").into())
        }
    }
}

/// A pause of 20 ms, for acknowledgements of the peer to arrive.
pub(super) const A_MOMENT: Duration = Duration::from_millis(20);
