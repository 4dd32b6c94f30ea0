//! The answer for one layer of a transfer, before the other layers are there. Reads stages and changes none.

use super::Receives;
use super::state::{Stage, State};
use crate::kv::TransferError;
use crate::kv::verdict::{BlockVerdict, Verdicts};

/// The result of a layer: one verdict for each position in the request.
pub(in crate::kv) type Layer = Result<Vec<BlockVerdict>, TransferError>;

impl Receives {
    /// The result of a layer; `None` while it fills.
    pub(in crate::kv) fn layer(&self, id: u64, layer: u32) -> Option<Layer> {
        let state = self.state(id)?;
        let places = 0..state.hold.blocks().len();
        let row = |verdicts: &Verdicts| -> Vec<_> {
            let verdict = |place| verdicts.get(layer, place).unwrap_or(BlockVerdict::Missing);
            places.clone().map(verdict).collect()
        };
        match &state.stage {
            // The transfer is about to end with an error, which then answers for this layer.
            Stage::Confirming(..) if state.unchecked.is_some() => None,
            Stage::Confirming(verdicts, _) | Stage::Ended(Ok(verdicts)) => Some(Ok(row(verdicts))),
            Stage::Ended(Err(error)) => {
                let row = row(&error.verdicts);
                let whole = !row.contains(&BlockVerdict::Missing);
                Some(if whole { Ok(row) } else { Err(error.clone()) })
            }
            Stage::Filling | Stage::Revoking(_) | Stage::Unchecked(_) => {
                state.is_there(layer).then(|| Ok(state.row(layer)))
            }
        }
    }

    /// Whether the result of a layer is still to come.
    pub(super) fn is_filling(&self, id: u64, layer: u32) -> bool {
        self.state(id).is_some_and(|state| match &state.stage {
            Stage::Filling | Stage::Revoking(_) | Stage::Unchecked(_) => !state.is_there(layer),
            Stage::Confirming(..) => state.unchecked.is_some(),
            Stage::Ended(_) => false,
        })
    }

    /// The verdicts so far on a transfer that has not ended.
    pub(in crate::kv) fn so_far(&self, id: u64) -> Option<Verdicts> {
        let state = self.state(id)?;
        Some(state.verdicts(self.pool.layout()).of(state.hold.origin()))
    }
}

impl State {
    /// Whether all writes of a layer have arrived.
    pub(super) fn has_layer(&self, layer: u32) -> bool {
        self.begin.as_ref().is_some_and(|begun| {
            let Some(plan) = &begun.plan else { return false };
            // A layer that the peer does not have is complete.
            let Some(theirs) = plan.route().source_layer(layer) else { return !begun.layers_left.is_empty() };
            begun.layers_left.get(theirs as usize) == Some(&0)
        })
    }

    /// Whether a layer has arrived, and was checked if checksums are wanted.
    fn is_there(&self, layer: u32) -> bool {
        if self.grant.checksums { self.checked.has_layer(layer) } else { self.has_layer(layer) }
    }

    fn row(&self, layer: u32) -> Vec<BlockVerdict> {
        let corrupt = |place| self.checked.is_corrupt(layer, place);
        let verdict = |place| if corrupt(place) { BlockVerdict::Corrupt } else { BlockVerdict::Valid };
        (0..self.hold.blocks().len() as u32).map(verdict).collect()
    }
}
