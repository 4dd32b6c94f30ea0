//! Covers: the layers and heads of a destination that a route brings, and the gaps that several routes leave together.

use std::ops::Range;

use super::Route;
use super::route::Entry;
use crate::kv::layout::Layout;

/// The layers and heads that a route brings to its destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::kv) struct Cover {
    groups: Vec<GroupCover>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct GroupCover {
    /// Positions of the layers in the destination, in ascending order; none when no head goes over.
    layers: Vec<u32>,
    /// Heads of the model.
    heads: Range<u32>,
}

/// A head of a layer that does not come exactly once. The layer is its number in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kv) enum Gap {
    /// No route brings the head.
    Missing { layer: u32, head: u32 },
    /// Two routes bring it, by their positions.
    Twice { layer: u32, head: u32, by: [usize; 2] },
}

impl Cover {
    pub(in crate::kv) fn of(route: &Route) -> Self {
        let layers = |entries: &[Entry]| {
            let mut layers: Vec<u32> = entries.iter().map(|entry| entry.layers[1]).collect();
            layers.dedup();
            layers
        };
        let groups = route.groups.iter();
        let groups =
            groups.map(|group| GroupCover { layers: layers(&group.entries), heads: group.heads.clone() });
        Self { groups: groups.collect() }
    }

    /// Whether any of a block goes over in a layer.
    pub(in crate::kv) fn has(&self, layer: u32, group: usize) -> bool {
        self.groups.get(group).is_some_and(|group| group.layers.binary_search(&layer).is_ok())
    }

    /// The heads of a layer that go over; none of a layer that does not.
    fn heads(&self, layer: u32, group: usize) -> Range<u32> {
        let group = self.groups.get(group).filter(|_| self.has(layer, group));
        group.map_or(0..0, |group| group.heads.clone())
    }
}

/// The first head of a layer of `destination` that the covers do not bring exactly once.
pub(in crate::kv) fn gap(destination: &Layout, covers: &[&Cover]) -> Option<Gap> {
    let placed = destination.placed().iter().enumerate();
    let mut rows =
        placed.flat_map(|(at, placed)| placed.layers.iter().map(move |layer| (at, *layer, placed)));
    rows.find_map(|(group, position, placed)| {
        let layer = destination.layer_numbers().get(position as usize).copied().unwrap_or(position);
        let brought = |(by, cover): (usize, &&Cover)| (cover.heads(position, group), by);
        let mut brought: Vec<_> = covers.iter().enumerate().map(brought).collect();
        brought.retain(|(heads, _)| !heads.is_empty());
        brought.sort_unstable_by_key(|(heads, by)| (heads.start, *by));
        let (mut next, mut last) = (placed.heads.start, 0);
        for (heads, by) in brought {
            if heads.start < next {
                return Some(Gap::Twice { layer, head: heads.start, by: [last, by] });
            }
            if heads.start > next {
                break;
            }
            (next, last) = (heads.end, by);
        }
        (next < placed.heads.end).then_some(Gap::Missing { layer, head: next })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::layout::{Group, Model, Order, Shape, TensorParallel};

    fn rank(rank: u32, size: u32) -> Layout {
        let whole = Model::LLAMA_3_1_8B.shape(16, 10, Order::LayerPartBlock);
        Layout::new(whole.of_rank(TensorParallel { rank, size }).unwrap()).unwrap()
    }

    /// Layers of the 8B model from `layers.start` on.
    fn stage(layers: Range<u32>) -> Layout {
        let whole = Model::LLAMA_3_1_8B.shape(16, 10, Order::LayerPartBlock);
        Layout::of([Group::new(Shape { layers: layers.end - layers.start, ..whole }).of_layers(layers)])
            .unwrap()
    }

    fn gap_of(sources: &[Layout], destination: &Layout) -> Option<Gap> {
        let covers: Vec<_> =
            sources.iter().map(|source| Cover::of(&Route::new(source, destination).unwrap())).collect();
        gap(destination, &covers.iter().collect::<Vec<_>>())
    }

    #[test]
    fn ranks_bring_each_head_once_together() {
        let [left, right] = [rank(2, 4), rank(3, 4)];
        assert_eq!(gap_of(&[right.clone(), left.clone()], &rank(1, 2)), None);
        assert_eq!(
            gap_of(std::slice::from_ref(&left), &rank(1, 2)),
            Some(Gap::Missing { layer: 0, head: 6 })
        );
        assert_eq!(
            gap_of(std::slice::from_ref(&right), &rank(1, 2)),
            Some(Gap::Missing { layer: 0, head: 4 })
        );
        let twice = gap_of(&[left.clone(), right, left], &rank(1, 2));
        assert_eq!(twice, Some(Gap::Twice { layer: 0, head: 4, by: [0, 2] }));
    }

    #[test]
    fn stages_bring_each_layer_once_together() {
        let whole = rank(0, 1);
        assert_eq!(gap_of(&[stage(16..32), stage(0..16)], &whole), None);
        assert_eq!(gap_of(&[stage(0..16)], &whole), Some(Gap::Missing { layer: 16, head: 0 }));
        assert_eq!(
            gap_of(&[stage(0..17), stage(16..32)], &whole),
            Some(Gap::Twice { layer: 16, head: 0, by: [0, 1] })
        );
    }
}
