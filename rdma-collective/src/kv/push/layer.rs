//! The layers of pushes: announced by the user in any order, posted in that order, and sent. Reads stages and changes
//! none.

use super::offer::OfferState;
use super::post::Posting;
use super::{Pushes, Stage, State};
use crate::kv::KvError;
use crate::kv::note::Note;
use crate::kv::plan::{Route, writes_of};

/// The layers of a push that goes layer by layer. All are layers of the source but those of `summed`.
#[derive(Debug, Default)]
pub(super) struct Layers {
    /// The layers that may be read, in the order of their announcements, in which they are posted.
    announced: Vec<u32>,
    /// Number of writes of each layer that are not known to be done; empty before the push has met its grant.
    left: Vec<u32>,
    /// Number of layers of the destination, from the first on, that this side reads no more for their checksums.
    summed: u32,
}

impl Layers {
    /// Notes how many writes each layer has.
    pub(super) fn begin(&mut self, ends: &[u32], checksums: bool) {
        self.left = (0..ends.len()).map(|layer| writes_of(ends, layer).len() as u32).collect();
        self.summed = if checksums { 0 } else { u32::MAX };
    }

    /// Notes that a write of a layer is done.
    pub(super) fn done(&mut self, layer: u32) {
        if let Some(left) = self.left.get_mut(layer as usize) {
            *left = left.saturating_sub(1);
        }
    }

    /// Notes how many layers of the destination are summed up.
    pub(super) fn sum(&mut self, summed: u32) {
        self.summed = summed;
    }

    /// Whether this side reads nothing of a layer any more.
    fn is_sent(&self, layer: u32, route: &Route) -> bool {
        let summed = route.destination_layer(layer).is_none_or(|theirs| theirs < self.summed);
        self.left.get(layer as usize) == Some(&0) && summed
    }
}

impl Pushes {
    /// Announces a layer of a transfer whose outcome was not taken: its writes may be posted from now on.
    pub(in crate::kv) fn layer_ready(&mut self, id: u64, layer: u32) -> Result<(), KvError> {
        if let Some(offered) = self.offer_of(id) {
            let request = offered.request();
            return Err(offered.error().unwrap_or(KvError::LayerRepeated { request, layer }));
        }
        let Some(state) = self.pushes.iter_mut().flatten().find(|state| state.id() == id) else {
            return Ok(());
        };
        if let Some(error) = state.error() {
            return Err(error);
        }
        match &mut state.layers {
            // A push whose grant wants a part of the layers ends when it has sent those, and hears of the others later.
            Some(layers) if !layers.announced.contains(&layer) => layers.announced.push(layer),
            _ => return Err(KvError::LayerRepeated { request: state.request, layer }),
        }
        Ok(())
    }

    /// Sets the note that a push has promised whose outcome was not taken.
    pub(in crate::kv) fn set_note(&mut self, id: u64, note: Note) -> Result<(), KvError> {
        if let Some(offered) = self.offer_of(id) {
            let request = offered.request();
            return Err(offered.error().unwrap_or(KvError::NoteNotDue { request }));
        }
        let Some(state) = self.pushes.iter_mut().flatten().find(|state| state.id() == id) else {
            return Ok(());
        };
        if let Some(error) = state.error() {
            return Err(error);
        }
        if state.note.set(note) { Ok(()) } else { Err(KvError::NoteNotDue { request: state.request }) }
    }

    /// The result of sending a layer; `None` while its bytes may still be read.
    pub(in crate::kv) fn layer_sent(&self, id: u64, layer: u32) -> Option<Result<(), KvError>> {
        if let Some(offered) = self.offer_of(id) {
            return offered.outcome();
        }
        let state = self.push(id)?;
        let sent = state.layers.as_ref().is_some_and(|layers| layers.is_sent(layer, &self.link.route));
        match &state.stage {
            // The layer was sent, whatever became of the others.
            _ if sent => Some(Ok(())),
            Stage::Ended(outcome) => Some(outcome.clone().map(drop)),
            Stage::Waiting | Stage::Writing(_) | Stage::Quiescing { .. } => None,
        }
    }

    /// The blocks of which decode wants nothing; `None` before the push has met its grant.
    pub(in crate::kv) fn skipped(&self, id: u64) -> Option<Result<Vec<u32>, KvError>> {
        if let Some(offered) = self.offer_of(id) {
            return Some(offered.error().map_or_else(|| Ok(Vec::new()), Err));
        }
        let state = self.push(id)?;
        match &state.stage {
            Stage::Waiting => None,
            Stage::Ended(Err(error)) => Some(Err(error.clone())),
            Stage::Writing(_) | Stage::Quiescing { .. } | Stage::Ended(Ok(_)) => {
                Some(Ok(state.skipped.clone()))
            }
        }
    }

    /// Whether the result of sending a layer is still to come.
    pub(super) fn is_sending(&self, id: u64, layer: u32) -> bool {
        (self.offer_of(id).is_some() || self.push(id).is_some()) && self.layer_sent(id, layer).is_none()
    }

    /// The layer of a push that is posted after those that were; `None` until it is announced.
    pub(super) fn next_layer(&self, posting: &Posting) -> Option<u32> {
        let layers = self.layers_of(posting)?;
        layers.announced.get(posting.layers_begun()).copied()
    }

    /// Number of layers of the destination, from the first on, whose bytes this side may read for their checksums.
    /// They are those that do not wait for a layer of the source.
    pub(super) fn layers_to_sum(&self, posting: &Posting, from: u32) -> u32 {
        let route = &self.link.route;
        let all = route.destination().layers();
        let Some(layers) = self.layers_of(posting) else { return all };
        let waits = |theirs: &u32| {
            route.source_layer(*theirs).is_some_and(|layer| !layers.announced.contains(&layer))
        };
        (from..all).find(waits).unwrap_or(all)
    }

    fn layers_of(&self, posting: &Posting) -> Option<&Layers> {
        self.push_at(posting.key())?.layers.as_ref()
    }

    fn offer_of(&self, id: u64) -> Option<&OfferState> {
        self.offers.iter().find(|offered| offered.id() == id)
    }
}

impl State {
    /// The error of a push that has ended with one, or is about to.
    fn error(&self) -> Option<KvError> {
        match &self.stage {
            Stage::Ended(outcome) => outcome.as_ref().err().cloned(),
            Stage::Quiescing { of, cause, .. } if of.confirmed.is_none() => Some(cause.clone()),
            Stage::Waiting | Stage::Writing(_) | Stage::Quiescing { .. } => None,
        }
    }
}
