//! Runs: equal pieces of one block in one layer, in the order in which a plan moves them.

use std::ops::Range;
use std::sync::Arc;

use super::Plan;
use super::route::Entry;
use super::segments::Segment;
use crate::kv::layout::nest::{DIMS, Dim, Nest};

/// Equal pieces of bytes at fixed distances, in both pools of a [`Route`](super::Route).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First byte in the source pool.
    pub source: u64,
    /// First byte in the destination pool.
    pub destination: u64,
    /// Bytes of a piece; never 0.
    pub len: u64,
    /// Number of pieces; never 0.
    pub count: u32,
    /// From a piece to the next in the source pool.
    pub source_step: u64,
    /// From a piece to the next in the destination pool.
    pub destination_step: u64,
    /// Position of the destination block in its list.
    pub(super) place: u32,
    /// Layer of the destination of the byte `skip` bytes before the first.
    pub(super) layer: u32,
    pub(super) skip: u64,
    /// Bytes of a layer, where a piece goes on into the next layer; otherwise the bytes of a piece.
    pub(super) layer_bytes: u64,
}

impl Run {
    /// Bytes of all pieces.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.len * self.count as u64
    }

    /// Source offset, destination offset and length of each piece.
    pub fn pieces(self) -> impl Iterator<Item = (u64, u64, u64)> {
        (0..u64::from(self.count)).map(move |at| {
            (self.source + at * self.source_step, self.destination + at * self.destination_step, self.len)
        })
    }

    /// Source and destination offset of the last piece.
    pub(super) const fn last(&self) -> (u64, u64) {
        let steps = self.count as u64 - 1;
        (self.source + steps * self.source_step, self.destination + steps * self.destination_step)
    }

    /// Layers of the destination that it has bytes of, and the position of its block.
    pub(in crate::kv) fn touches(&self) -> (Range<u32>, u32) {
        let layer = |byte: u64| self.layer + (byte / self.layer_bytes) as u32;
        (layer(self.skip)..layer(self.skip + self.len - 1) + 1, self.place)
    }

    /// The first `count` pieces, and the rest.
    pub(super) fn split(self, count: u32) -> (Self, Option<Self>) {
        let left = self.count.saturating_sub(count);
        let rest = Self {
            source: self.source + u64::from(count) * self.source_step,
            destination: self.destination + u64::from(count) * self.destination_step,
            count: left,
            ..self
        };
        (Self { count: self.count - left, ..self }, (left > 0).then_some(rest))
    }

    /// The first `len` bytes of a single piece, and the rest.
    pub(super) fn cut(self, len: u64) -> (Self, Self) {
        let rest = Self {
            source: self.source + len,
            destination: self.destination + len,
            len: self.len - len,
            skip: self.skip + len,
            ..self
        };
        (Self { len, ..self }, rest)
    }
}

/// The runs of some layers of a plan, or of all. Keeps the plan alive.
#[derive(Debug)]
pub(in crate::kv) struct Runs {
    plan: Arc<Plan>,
    /// Layers of the source.
    layers: Range<u32>,
    group: usize,
    /// Entries of the group that are left.
    entries: Range<usize>,
    segment: usize,
    nest: Nest,
    /// Class and tokens for which the nest was made.
    made_for: Option<(u32, u32)>,
    /// Position in the two outer loops.
    at: [u32; DIMS - 1],
}

impl Runs {
    pub(super) fn new(plan: &Arc<Plan>, layers: Range<u32>) -> Self {
        let mut runs = Self {
            plan: Arc::clone(plan),
            layers,
            group: 0,
            entries: 0..0,
            segment: 0,
            nest: Nest { dims: [Dim::ONE; DIMS], len: 0 },
            made_for: None,
            at: [0; DIMS - 1],
        };
        runs.enter(0);
        runs
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Goes to a group.
    fn enter(&mut self, group: usize) {
        (self.group, self.segment, self.made_for) = (group, 0, None);
        let plan = &*self.plan;
        let Some(route) = plan.route.groups.get(group) else { return };
        let at = |layer: u32| route.entries.partition_point(|entry| entry.layers[0] < layer);
        let joined = plan.joins_layers(group).is_some();
        self.entries = if joined { 0..1 } else { at(self.layers.start)..at(self.layers.end) };
    }

    /// Makes the loops of a segment, unless they are there.
    fn prepare(&mut self, entry: &Entry, tokens: u32) {
        if self.made_for == Some((entry.class, tokens)) {
            return;
        }
        let Some(route) = self.plan.route.groups.get(self.group) else { return };
        self.nest = route.nest(&entry.steps, tokens, self.plan.by());
        if let Some(bytes) = self.plan.joins_layers(self.group) {
            self.nest.len = bytes;
        }
        self.made_for = Some((entry.class, tokens));
    }

    fn run(&self, entry: &Entry, segment: &Segment) -> Run {
        let [outer, middle, inner] = self.nest.dims;
        let [a, b] = self.at.map(u64::from);
        let offset =
            |side: usize| entry.start(side, segment) + a * outer.steps[side] + b * middle.steps[side];
        let len = self.nest.len;
        let layer_bytes = match self.plan.joins_layers(self.group) {
            Some(_) => self.plan.route.groups.get(self.group).and_then(|group| group.adjacent).unwrap_or(len),
            None => len,
        };
        let [source_step, destination_step] = inner.steps;
        Run {
            source: offset(0),
            destination: offset(1),
            len,
            count: inner.count,
            source_step,
            destination_step,
            place: segment.places[1],
            layer: entry.layers[1],
            skip: 0,
            layer_bytes,
        }
    }

    /// Goes to the next position of the two outer loops; `false` when there is none.
    fn step(&mut self) -> bool {
        for (at, dim) in self.at.iter_mut().zip(&self.nest.dims).rev() {
            *at += 1;
            if *at < dim.count {
                return true;
            }
            *at = 0;
        }
        false
    }
}

impl Iterator for Runs {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        loop {
            let route = self.plan.route.groups.get(self.group)?;
            let entry = route.entries.get(self.entries.start).filter(|_| !self.entries.is_empty());
            let Some(&entry) = entry else {
                self.enter(self.group + 1);
                continue;
            };
            let segments = self.plan.segments.get(self.group)?;
            let Some(&segment) = segments.get(self.segment) else {
                self.segment = 0;
                self.entries.start += 1;
                continue;
            };
            if !self.plan.wants(&entry, &segment) {
                self.segment += 1;
                continue;
            }
            self.prepare(&entry, segment.tokens);
            let run = self.run(&entry, &segment);
            if !self.step() {
                self.segment += 1;
            }
            return Some(run);
        }
    }
}
