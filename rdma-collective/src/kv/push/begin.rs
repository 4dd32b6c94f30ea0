//! Pushes meet their grants: a plan is made, or the grant is refused.

use std::sync::Arc;
use std::time::Instant;

use super::post::Posting;
use super::{Granted, Pushes, Stage, State, unwatch};
use crate::comm::Core;
use crate::comm::link::imm::WRITES_MAX;
use crate::error::KvError;
use crate::kv::link::Link;
use crate::kv::message::{self, Begin, Refuse};
use crate::kv::plan::{BlockPair, BlockPlan};
use crate::kv::pool::Pool;

impl Pushes {
    /// Brings pushes that wait together with grants that are whole.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        let mut any = false;
        for place in &mut self.grants {
            let Some(granted) =
                place.as_ref().filter(|granted| granted.blocks.len() == granted.total as usize)
            else {
                continue;
            };
            let waiting = self.pushes.iter_mut().flatten().find(|state| {
                let waits = matches!(state.stage, Stage::Waiting) && !state.deadline.expired_at(now);
                waits && state.request == granted.grant.request
            });
            if let Some(state) = waiting
                && let Some(granted) = place.take()
            {
                any = true;
                let plan = plan(&self.pool, &self.link, state, &granted, self.write_bytes_max, now);
                match plan {
                    Ok((plan, writes)) => {
                        let lease = state.hold.lease_id();
                        let grant = granted.grant.grant;
                        let begin = Begin { grant, lease, writes, write_bytes_max: self.write_bytes_max };
                        state.stage =
                            Stage::Begun { grant, begun: now, writes, all_posted: None, confirmed: None };
                        self.posting.push_back(Posting::new(state.id, begin, granted, plan));
                    }
                    Err(error) => {
                        let blocks = state.hold.blocks().len() as u32;
                        state.stage = Stage::Refusing(Refuse { grant: granted.grant.grant, blocks }, error);
                    }
                }
            }
        }
        any
    }

    pub(super) fn refuse(&mut self, core: &mut Core) {
        for place in &mut self.pushes {
            let Some(state) = place else { continue };
            if let Stage::Refusing(refuse, error) = &state.stage
                && self.link.tell(core, message::REFUSE, |body| refuse.write(body))
            {
                let error = error.clone();
                state.end(Err(error));
                unwatch(&self.link, core);
                if state.abandoned {
                    *place = None;
                }
            }
        }
    }
}

/// What goes where, and in how many writes.
fn plan(
    pool: &Pool,
    link: &Link,
    state: &State,
    granted: &Granted,
    write_bytes_max: u32,
    now: Instant,
) -> Result<(Arc<BlockPlan>, u32), KvError> {
    let request = state.request;
    if granted.expires.is_some_and(|expires| now >= expires) {
        return Err(KvError::GrantExpired { request });
    }
    let blocks = state.hold.blocks();
    if blocks.len() != granted.blocks.len() {
        let (source_blocks, granted) = (blocks.len() as u32, granted.blocks.len() as u32);
        return Err(KvError::BlockCounts { request, source_blocks, granted });
    }
    let pairs = blocks.iter().zip(&granted.blocks);
    let pairs: Vec<_> = pairs.map(|(&source, &destination)| BlockPair { source, destination }).collect();
    let plan = Arc::new(BlockPlan::new(*pool.layout(), link.theirs, &pairs, write_bytes_max)?);
    let writes = Arc::clone(&plan).into_descriptors().count() as u64;
    let verdicts = u64::from(pool.layout().shape().layers) * pairs.len() as u64;
    match u32::try_from(writes) {
        Ok(count) if count <= WRITES_MAX && verdicts <= u32::MAX.into() => Ok((plan, count)),
        _ => Err(KvError::TooManyWrites { writes, max: WRITES_MAX }),
    }
}
