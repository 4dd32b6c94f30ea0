//! Not there yet: the types have no values.

#[allow(dead_code, reason = "the software device that uses it lands next")]
mod engine;
#[allow(dead_code, reason = "the software device that uses it lands next")]
mod wire;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::interface::{self, RawCompletion, RawPostError, RawRecv, RawSend, RawWorker, Slot};
use crate::error::*;
use crate::memory::Registration;
use crate::*;

#[derive(Debug, Clone)]
pub(crate) enum Device {}
pub(crate) enum Context {}
pub(crate) enum ProtectionDomain {}
pub(crate) enum Worker {}

impl interface::Context for Context {
    type Pd = ProtectionDomain;
    type Worker = Worker;
    fn name(&self) -> &str {
        match *self {}
    }
    fn query_device(&self) -> Result<DeviceAttributes, QueryError> {
        match *self {}
    }
    fn query_port(&self, _: PortNum) -> Result<PortAttributes, QueryError> {
        match *self {}
    }
    fn gid_table(&self, _: PortNum) -> Result<Vec<GidEntry>, QueryError> {
        match *self {}
    }
    fn alloc_pd(self: &Arc<Self>) -> Result<Self::Pd, CreateError> {
        match **self {}
    }
    fn create_worker(self: &Arc<Self>, _: &WorkerOptions) -> Result<Self::Worker, CreateError> {
        match **self {}
    }
    fn next_event(&self) -> Result<Option<AsyncEvent>, QueryError> {
        match *self {}
    }
    fn event_fd(&self) -> BorrowedFd<'_> {
        match *self {}
    }
}
#[allow(unsafe_code)]
impl interface::ProtectionDomain for ProtectionDomain {
    unsafe fn register(
        &self,
        _: *mut u8,
        _: usize,
        _: Access,
    ) -> Result<Box<dyn Registration>, RegisterError> {
        match *self {}
    }
}
#[allow(unsafe_code)]
impl RawWorker for Worker {
    type Pd = ProtectionDomain;
    fn create_qp(&mut self, _: Slot, _: &Self::Pd, _: &QueuePairOptions) -> Result<QpNum, CreateError> {
        match *self {}
    }
    fn modify_to_init(&mut self, _: Slot, _: &InitOptions) -> Result<(), ConnectError> {
        match *self {}
    }
    fn modify_to_rtr(&mut self, _: Slot, _: &Endpoint, _: &PathOptions) -> Result<(), ConnectError> {
        match *self {}
    }
    fn modify_to_rts(&mut self, _: Slot, _: Psn, _: &RetryOptions) -> Result<(), ConnectError> {
        match *self {}
    }
    fn modify_to_err(&mut self, _: Slot) -> io::Result<()> {
        match *self {}
    }
    fn query_state(&self, _: Slot) -> io::Result<QpState> {
        match *self {}
    }
    fn peer_access(&self, _: Slot) -> PeerAccess {
        match *self {}
    }
    unsafe fn post_send(&mut self, _: Slot, _: &[RawSend]) -> Result<(), RawPostError> {
        match *self {}
    }
    unsafe fn post_recv(&mut self, _: Slot, _: &[RawRecv]) -> Result<(), RawPostError> {
        match *self {}
    }
    fn poll(&mut self, _: &mut [RawCompletion]) -> Result<usize, PollError> {
        match *self {}
    }
    fn request_notify(&mut self) -> Result<(), PollError> {
        match *self {}
    }
    fn channel_fd(&self) -> BorrowedFd<'_> {
        match *self {}
    }
    fn consume_events(&mut self) -> Result<(), PollError> {
        match *self {}
    }
    fn destroy_qp(&mut self, _: Slot) -> io::Result<()> {
        match *self {}
    }
}
mod options;
pub use options::{SoftOptions, Wire};
impl Device {
    pub(crate) fn new(_: SoftOptions) -> Self {
        unreachable!("the software device lands next")
    }
    pub(crate) fn name(&self) -> &str {
        match *self {}
    }
    pub(crate) fn open(&self) -> Result<Context, OpenError> {
        match *self {}
    }
}
