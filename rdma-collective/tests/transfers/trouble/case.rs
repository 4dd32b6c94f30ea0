//! A case: what a transfer moves, what goes wrong meanwhile, and which end gives it up.

use std::fmt;
use std::time::Duration;

use proptest::prelude::*;
use rdma_collective::kv::layout::Order;
use rdma_core::Wire;
use rdma_core::fault::{Fault, FaultPlan, Rule};

use crate::common::WIRES;
use crate::pair::SHAPE;

const ORDERS: [Order; 3] = [Order::LayerBlockPart, Order::LayerPartBlock, Order::BlockLayerPart];
/// The ends' devices try for longer than that.
const SHORT_FLAP_MS: u64 = 8;

/// The direction and the kind of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Push,
    Stream,
    Pull,
}

/// A fault at one end, from the time when the link is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Messages are lost, late or out of step now and then, all along.
    Lossy,
    /// A fault in one byte of a payload.
    Corrupt { nth: u64 },
    /// The end is gone.
    Kill { nth: u64 },
    /// The link of the end goes down, and comes back.
    Flap { nth: u64, ms: u64 },
}

impl Trouble {
    pub fn add_to(self, plan: &FaultPlan) {
        match self {
            Self::Lossy => {
                plan.add(Rule::new(Fault::Delay(Duration::from_millis(2))).with_probability(0.1));
                plan.add(Rule::new(Fault::Drop).with_probability(0.01));
                plan.add(Rule::new(Fault::Reorder).with_probability(0.02));
            }
            Self::Corrupt { nth } => plan.add(Rule::new(Fault::Corrupt).nth(nth)),
            Self::Kill { nth } => plan.add(Rule::new(Fault::Kill).nth(nth)),
            Self::Flap { nth, ms } => {
                plan.add(Rule::new(Fault::FlapPort(Duration::from_millis(ms))).nth(nth))
            }
        }
    }

    /// Whether the link outlives it.
    pub fn is_survived(self) -> bool {
        match self {
            Self::Lossy => true,
            Self::Corrupt { .. } | Self::Kill { .. } => false,
            Self::Flap { ms, .. } => ms <= SHORT_FLAP_MS,
        }
    }
}

/// How one end gives the transfer up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GiveUp {
    Never,
    /// An end gives up after `ms`.
    After {
        at_decode: bool,
        ms: u64,
    },
    /// The deadline of an end is only `ms` away.
    Deadline {
        at_decode: bool,
        ms: u64,
    },
}

#[derive(Clone)]
pub struct Case {
    pub way: Way,
    pub wire: Wire,
    pub order: Order,
    pub pairs: Vec<(u32, u32)>,
    pub write_bytes_max: u32,
    pub max_send_wr: u32,
    pub checksums: bool,
    /// At prefill and at decode.
    pub troubles: [Vec<Trouble>; 2],
    pub give_up: GiveUp,
    /// Between layers, when it goes by layer.
    pub layer_ms: u64,
    pub seed: u64,
}

impl Case {
    /// Whether decode's blocks are used again after the transfer: what is said of them is of no use then.
    pub fn is_used_again(&self) -> bool {
        self.seed.is_multiple_of(2)
    }

    /// The layer that is announced after `count` others, when it goes by layer: in any order.
    pub fn layer(&self, count: u32) -> u32 {
        let (first, layers) = ((self.seed % u64::from(SHAPE.layers)) as u32, SHAPE.layers);
        let turn = if (self.seed / 4).is_multiple_of(2) { count } else { layers - count };
        (first + turn) % layers
    }

    /// Whether it is pulled, and layer by layer.
    pub fn is_pulled_by_layer(&self) -> bool {
        self.way == Way::Pull && !(self.seed / 8).is_multiple_of(2)
    }

    /// Whether both ends give up on one thread, by handles, rather than one after the other.
    pub fn is_given_up_by_handles(&self) -> bool {
        (self.seed / 2).is_multiple_of(2)
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { way, wire, order, troubles, give_up, checksums, layer_ms, seed, .. } = self;
        write!(f, "{way:?} {wire:?} {order:?} {troubles:?} {give_up:?} checksums {checksums} ")?;
        write!(f, "layers every {layer_ms} ms, seed {seed}, writes of {} ", self.write_bytes_max)?;
        write!(f, "{} at once, {:?}", self.max_send_wr, self.pairs)
    }
}

/// Some of the blocks, paired in any order.
fn requests() -> impl Strategy<Value = Vec<(u32, u32)>> {
    let ids = || Just((0..SHAPE.blocks).collect::<Vec<_>>()).prop_shuffle();
    (ids(), ids(), 1_usize..=SHAPE.blocks as usize).prop_map(|(sources, destinations, count)| {
        sources.into_iter().zip(destinations).take(count).collect()
    })
}

fn troubles() -> impl Strategy<Value = Vec<Trouble>> {
    let each = prop_oneof![
        3 => Just(Trouble::Lossy),
        2 => (1_u64..120).prop_map(|nth| Trouble::Corrupt { nth }),
        2 => (1_u64..120).prop_map(|nth| Trouble::Kill { nth }),
        3 => (1_u64..120, 1_u64..=SHORT_FLAP_MS).prop_map(|(nth, ms)| Trouble::Flap { nth, ms }),
        1 => (1_u64..120, 10_u64..120).prop_map(|(nth, ms)| Trouble::Flap { nth, ms }),
    ];
    prop::collection::vec(each, 0..3)
}

fn give_up() -> impl Strategy<Value = GiveUp> {
    prop_oneof![
        3 => Just(GiveUp::Never),
        2 => (any::<bool>(), 0_u64..12).prop_map(|(at_decode, ms)| GiveUp::After { at_decode, ms }),
        1 => (any::<bool>(), 1_u64..30).prop_map(|(at_decode, ms)| GiveUp::Deadline { at_decode, ms }),
    ]
}

pub fn cases(way: Way) -> impl Strategy<Value = Case> {
    let how = (prop::sample::select(&WIRES), prop::sample::select(&ORDERS), 0_u64..4, any::<u64>());
    let options = (16_u32..600, 1_u32..40, any::<bool>());
    (requests(), how, options, [troubles(), troubles()], give_up()).prop_map(
        move |(
            pairs,
            (wire, order, layer_ms, seed),
            (write_bytes_max, max_send_wr, sums),
            troubles,
            give_up,
        )| {
            // Nothing else tells of a byte.
            let corrupts = |trouble: &Trouble| matches!(trouble, Trouble::Corrupt { .. });
            let checksums = sums || troubles.iter().flatten().any(corrupts);
            Case {
                way,
                wire,
                order,
                pairs,
                write_bytes_max,
                max_send_wr,
                checksums,
                troubles,
                give_up,
                layer_ms,
                seed,
            }
        },
    )
}
