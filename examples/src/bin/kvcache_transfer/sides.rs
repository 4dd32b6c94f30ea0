//! The two sides of a transfer: their names, their ranks, and what of a layout differs between them.

use crate::args::Args;
use clap::ValueEnum;
use rdma_collective::kv::layout::{HeadOrder, LayoutError, Model, TensorParallel, Tensors};
use rdma_collective::kv::plan::sources;
use std::str::FromStr;

/// A side of a transfer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Has the blocks and writes them.
    Prefill,
    /// Has room for them and checks what arrives.
    #[default]
    Decode,
}

impl Role {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

/// A tensor-parallel rank of a side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rank {
    /// The side.
    pub role: Role,
    /// From 0.
    pub number: u32,
}

impl Rank {
    /// For messages: the side, and the rank if there are several.
    pub fn name(self, args: &Args) -> String {
        match args.tp.of(self.role).0 {
            1 => self.role.name().to_owned(),
            _ => format!("{} {}", self.role.name(), self.number),
        }
    }

    /// As the library has it.
    pub fn of(self, args: &Args) -> TensorParallel {
        TensorParallel { rank: self.number, size: args.tp.of(self.role).0 }
    }

    /// The ranks of the other side with which this one has a link, in ascending order.
    ///
    /// # Errors
    ///
    /// The sides have numbers of ranks into which the heads cannot be split.
    pub fn peers(self, args: &Args) -> Result<Vec<u32>, LayoutError> {
        let (whole, size) = (args.model.attention, args.tp.of(Role::Prefill).0);
        if self.role == Role::Decode {
            return sources(whole, size, self.of(args));
        }
        let mut heard = Vec::new();
        for decode in args.ranks(Role::Decode) {
            if sources(whole, size, decode.of(args))?.contains(&self.number) {
                heard.push(decode.number);
            }
        }
        Ok(heard)
    }
}

/// A value for prefill and one for decode; a single one counts for both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Both<T>(pub [T; 2]);

impl<T: Copy> Both<T> {
    /// The value for one side.
    pub fn of(&self, role: Role) -> T {
        self.0[role as usize]
    }
}

impl<T: FromStr + Copy> FromStr for Both<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        let (prefill, decode) = text.split_once(':').unwrap_or((text, text));
        Ok(Self([prefill.parse()?, decode.parse()?]))
    }
}

/// A tensor-parallel size: 1 to 64 ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u32);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let size = text.parse().ok().filter(|size| (1..=64).contains(size));
        size.map(Self).ok_or_else(|| format!("{text:?} is no number of ranks: 1 to 64"))
    }
}

/// An order of heads, by the name that servers give it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads(pub HeadOrder);

impl FromStr for Heads {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "nhd" => Ok(Self(HeadOrder::Nhd)),
            "hnd" => Ok(Self(HeadOrder::Hnd)),
            _ => Err(format!("{name:?} is no order of heads: nhd or hnd")),
        }
    }
}

/// How many tensors hold a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorCount {
    /// By what they hold.
    Named(Tensors),
    /// By their number.
    Number(u32),
}

impl FromStr for TensorCount {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "one" => Ok(Self::Named(Tensors::One)),
            "layer" => Ok(Self::Named(Tensors::PerLayer)),
            "part" => Ok(Self::Named(Tensors::PerPart)),
            _ => name
                .parse()
                .map(Self::Number)
                .map_err(|_| format!("{name:?} is neither one, layer, part nor a number")),
        }
    }
}

impl TensorCount {
    /// The tensors of a model's pool.
    ///
    /// # Errors
    ///
    /// The pool of the model cannot be split into so many.
    pub fn of(self, model: &Model) -> anyhow::Result<Tensors> {
        let (layers, parts) = (model.layers, model.layers.saturating_mul(model.attention.parts()));
        match self {
            Self::Named(tensors) => Ok(tensors),
            Self::Number(1) => Ok(Tensors::One),
            Self::Number(number) if number == layers => Ok(Tensors::PerLayer),
            Self::Number(number) if number == parts => Ok(Tensors::PerPart),
            Self::Number(number) => anyhow::bail!(
                "a pool of {} has no {number} tensors; it has 1, {layers} (one a layer) or {parts} (one a part of a layer)",
                model.name
            ),
        }
    }
}
