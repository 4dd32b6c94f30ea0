//! The server: the peer process, which carries orders out.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use rdma_core::{Opcode, QueuePair, ReadyToSend, Region, Segment, Work, Worker};

use super::protocol::{Answer, Lines, Request};
use crate::cases::helpers::{OPEN, bytes_of, filled, pattern};
use crate::{End, Lab};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Serves one connection after the other, until a client orders this process to die.
///
/// # Errors
///
/// The listener fails.
pub fn serve(lab: &Lab, listener: &TcpListener) -> Result<()> {
    loop {
        let (stream, from) = listener.accept()?;
        if let Err(error) = session(lab, stream) {
            eprintln!("peer {from}: {error}");
        }
    }
}

fn session(lab: &Lab, stream: TcpStream) -> Result<()> {
    stream.set_read_timeout(Some(2 * lab.patience + Duration::from_secs(60)))?;
    let mut lines = Lines::new(stream);
    let mut held = None;
    while let Some(request) = lines.hear::<Request>()? {
        let answer = match (request, &mut held) {
            (Request::Connect { to, bytes }, _) => connect(lab, to.into(), bytes).map(|(side, answer)| {
                held = Some(side);
                answer
            }),
            (Request::Die, _) => std::process::exit(0),
            (request, Some(side)) => side.act(lab, request),
            (_, None) => Err("not connected".into()),
        };
        lines.say(&answer.unwrap_or_else(|error| Answer::Error(error.to_string())))?;
    }
    Ok(())
}

/// The objects of the peer side of a connection.
struct Side {
    worker: Worker,
    pd: rdma_core::ProtectionDomain,
    qp: Option<QueuePair<ReadyToSend>>,
    region: Option<Region>,
}

fn connect(lab: &Lab, to: rdma_core::Endpoint, bytes: usize) -> Result<(Side, Answer)> {
    let (pd, options) = (lab.context.alloc_pd()?, lab.options());
    let region = pd.alloc_region(bytes, OPEN)?;
    let (mut worker, qp) = lab.half(&pd, &options)?;
    let end = lab.endpoint(&worker, &qp)?;
    let qp = lab.connect(&mut worker, qp, &to, &options)?;
    let answer = Answer::Connected { end: end.into(), region: region.remote().into() };
    Ok((Side { worker, pd, qp: Some(qp), region: Some(region) }, answer))
}

impl Side {
    fn act(&mut self, lab: &Lab, request: Request) -> Result<Answer> {
        match request {
            Request::PostRecv(len) => {
                let segment =
                    if len == 0 { Segment::Empty } else { Segment::Owned(self.pd.alloc_local(len)?) };
                let qp = self.qp.as_ref().ok_or("fenced")?;
                self.worker.post_recv(qp, segment).map_err(|refused| refused.error)?;
                Ok(Answer::Done)
            }
            Request::Wait => self.wait(lab),
            Request::Fill(seed) => {
                let region = self.region.as_ref().ok_or("revoked")?;
                region.copy_in(0, &pattern(seed, region.len()))?;
                Ok(Answer::Done)
            }
            Request::Holds { seed, at, len } => {
                let mut bytes = bytes_of(self.region.as_ref().ok_or("revoked")?)?;
                let end = at.checked_add(len).filter(|end| *end <= bytes.len()).ok_or("out of range")?;
                let inside = bytes[at..end] == pattern(seed, len)[..];
                bytes[at..end].fill(0);
                Ok(Answer::Is(inside && bytes.iter().all(|byte| *byte == 0)))
            }
            Request::Send { seed, len } => {
                let qp = self.qp.take().ok_or("fenced")?;
                let worker = std::mem::replace(&mut self.worker, lab.context.worker(Default::default())?);
                let mut end = End { worker, pd: self.pd.clone(), qp };
                let sent = filled(&end, &pattern(seed, len)).and_then(|buffer| {
                    end.worker.post(&end.qp, Work::send(buffer)).map_err(|refused| refused.error)?;
                    Ok(end.wait(lab)?.result?)
                });
                (self.worker, self.qp) = (end.worker, Some(end.qp));
                sent.map(|_| Answer::Done)
            }
            Request::Revoke => self.revoke(),
            Request::Fence => {
                let qp = self.qp.take().ok_or("fenced")?;
                self.worker.fence(qp, lab.soon())?;
                Ok(Answer::Done)
            }
            Request::Connect { .. } | Request::Die => Err("handled above".into()),
        }
    }

    fn wait(&mut self, lab: &Lab) -> Result<Answer> {
        let completion = self.worker.wait(lab.soon())?;
        Ok(match completion.result {
            Err(failure) => Answer::Failed(failure.status.0),
            Ok(success) => {
                let filled = if success.opcode == Opcode::Recv { success.bytes as usize } else { 0 };
                let data = completion
                    .buffer
                    .map_or(Vec::new(), |buffer| buffer[..filled.min(buffer.len()).min(256)].to_vec());
                Answer::Completed { bytes: success.bytes, imm: success.imm, data }
            }
        })
    }

    fn revoke(&mut self) -> Result<Answer> {
        let mut memory = self.region.take().ok_or("revoked")?.deregister()?;
        memory.fill(0xff);
        for _ in 0..50 {
            std::thread::sleep(Duration::from_millis(1));
            if memory.iter().any(|byte| *byte != 0xff) {
                return Ok(Answer::Is(false));
            }
        }
        Ok(Answer::Is(true))
    }
}
