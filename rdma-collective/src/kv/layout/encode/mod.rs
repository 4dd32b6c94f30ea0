//! The encoding of a layout that peers exchange; `docs/wire.md` has the table.

use super::{
    Attention, CacheType, GROUPS_MAX, Group, HeadOrder, LAYERS_MAX, Layout, LayoutError, Order, Place, Shape,
    TENSORS_MAX, TensorParallel, Tensors,
};
use crate::link::codec::{Ended, Reader};

/// The version of the encoding below.
const VERSION: u16 = 4;

impl Layout {
    /// Encodes the layout for the wire, behind `bytes`.
    pub(in crate::kv) fn encode_to(&self, bytes: &mut Vec<u8>) {
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((self.0.groups.len() as u16).to_le_bytes());
        for placed in &self.0.groups {
            placed.group.encode(bytes);
        }
    }

    /// Decodes the layout of a peer, and leaves what follows to the reader.
    ///
    /// # Errors
    /// [`LayoutError::OtherVersion`] names both versions; [`LayoutError::Malformed`] the field that is wrong; the
    /// errors of [`Layout::of`] for a layout that cannot be.
    pub(in crate::kv) fn decode_from(reader: &mut Reader<'_>) -> Result<Self, LayoutError> {
        let version = reader.u16().map_err(malformed("version"))?;
        if version != VERSION {
            return Err(LayoutError::OtherVersion { ours: VERSION, theirs: version });
        }
        let groups = usize::from(reader.u16().map_err(malformed("number of groups"))?);
        if groups > GROUPS_MAX {
            return Err(LayoutError::Malformed { field: "number of groups" });
        }
        let groups = (0..groups).map(|_| Group::decode(reader)).collect::<Result<Vec<_>, _>>()?;
        Self::of(groups)
    }
}

#[cfg(any(fuzzing, test))]
impl Layout {
    #[cfg(test)]
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode_to(&mut bytes);
        bytes
    }

    /// Decodes a layout behind which nothing follows.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, LayoutError> {
        let mut reader = Reader::new(bytes);
        let layout = Self::decode_from(&mut reader)?;
        if reader.rest().is_empty() { Ok(layout) } else { Err(LayoutError::Malformed { field: "end" }) }
    }
}

impl Group {
    fn encode(&self, bytes: &mut Vec<u8>) {
        let shape = self.shape();
        let (attention, first, second) = match shape.attention {
            Attention::Grouped { kv_heads, head_dim } => (0, kv_heads, head_dim),
            Attention::Latent { dim } => (1, 1, dim),
            Attention::Recurrent { heads, elements } => (2, heads, elements),
        };
        let order = match shape.order {
            Order::LayerBlockPart => 0,
            Order::LayerPartBlock => 1,
            Order::BlockLayerPart => 2,
        };
        let head_order = match shape.head_order {
            HeadOrder::Nhd => 0,
            HeadOrder::Hnd => 1,
        };
        let memory = match self.regular_tensors() {
            Some(Tensors::One) => 0,
            Some(Tensors::PerLayer) => 1,
            Some(Tensors::PerPart) => 2,
            None => 3,
        };
        let named = u8::from(!self.has_all_layers());
        // A layout has at most 64 groups.
        let shared = self.shared_with().map_or(0, |group| group as u8 + 1);
        bytes.extend([order, attention, shape.cache_type.code(), head_order, memory, named, shared, 0]);
        let TensorParallel { rank, size } = shape.tensor_parallel;
        for word in [shape.layers, shape.block_tokens, first, second, rank, size, shape.blocks] {
            bytes.extend(word.to_le_bytes());
        }
        if !self.has_all_layers() {
            // A layout is made of groups whose layers have numbers.
            put_runs(bytes, self.layer_numbers().unwrap_or_default().into_iter().map(u64::from));
        }
        if let Some((tensors, places)) = self.given_places() {
            put_runs(bytes, tensors.iter().copied());
            for field in PLACE_FIELDS {
                put_runs(bytes, by_part(places, shape.attention.parts()).map(field));
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, LayoutError> {
        let [order, attention, cache_type, head_order, memory, named, shared, reserved] =
            reader.array::<8>().map_err(malformed("shape"))?;
        let mut words = [0; 7];
        for word in &mut words {
            *word = reader.u32().map_err(malformed("shape"))?;
        }
        let wrong = |field| Err(LayoutError::Malformed { field });
        if reserved != 0 {
            return wrong("reserved");
        }
        let [layers, block_tokens, first, second, rank, size, blocks] = words;
        let attention = match (attention, first, second) {
            (0, kv_heads, head_dim) => Attention::Grouped { kv_heads, head_dim },
            (1, 1, dim) => Attention::Latent { dim },
            (2, heads, elements) => Attention::Recurrent { heads, elements },
            _ => return wrong("attention"),
        };
        let order = match order {
            0 => Order::LayerBlockPart,
            1 => Order::LayerPartBlock,
            2 => Order::BlockLayerPart,
            _ => return wrong("order"),
        };
        let head_order = match head_order {
            0 => HeadOrder::Nhd,
            1 => HeadOrder::Hnd,
            _ => return wrong("head order"),
        };
        let Some(&cache_type) = CacheType::ALL.get(usize::from(cache_type)) else {
            return wrong("cache type");
        };
        let tensor_parallel = TensorParallel { rank, size };
        let shape =
            Shape { layers, blocks, block_tokens, attention, cache_type, order, head_order, tensor_parallel };
        if layers > LAYERS_MAX {
            return Err(LayoutError::TooMany { what: "layers", max: LAYERS_MAX.into() });
        }
        let group = match named {
            0 => Self::new(shape),
            1 => {
                let numbers = take_runs(reader, layers as usize, "layer numbers")?;
                let numbers: Result<Vec<_>, _> = numbers.into_iter().map(u32::try_from).collect();
                let Ok(numbers) = numbers else { return wrong("layer numbers") };
                Self::new(shape).of_layers(numbers)
            }
            _ => return wrong("layers"),
        };
        let group = match shared.checked_sub(1) {
            None => group,
            Some(with) => group.sharing_with(with.into()),
        };
        match memory {
            0 => Ok(group),
            1 => Ok(group.in_tensors(Tensors::PerLayer)),
            2 => Ok(group.in_tensors(Tensors::PerPart)),
            3 => group.decode_places(reader),
            _ => wrong("memory"),
        }
    }
}

impl Group {
    /// Decodes tensors and places, which the caller gives at the other end.
    fn decode_places(self, reader: &mut Reader<'_>) -> Result<Self, LayoutError> {
        let (layers, parts) = (self.shape().layers, self.shape().attention.parts());
        let tensors = take_runs(reader, TENSORS_MAX, "tensors")?;
        let count = layers as usize * parts as usize;
        let mut columns = Vec::new();
        for _ in PLACE_FIELDS {
            columns.push(take_runs(reader, count, "places")?);
        }
        let place = |row: usize| -> Option<Place> {
            let field = |column: usize| columns.get(column)?.get(row).copied();
            let tensor = u32::try_from(field(0)?).ok()?;
            let [offset, block, token, head] = [field(1)?, field(2)?, field(3)?, field(4)?];
            Some(Place { tensor, offset, block, token, head })
        };
        let at = |layer: u32, part: u32| (part * layers + layer) as usize;
        let rows = (0..layers).flat_map(|layer| (0..parts).map(move |part| at(layer, part)));
        let places: Option<Vec<_>> = rows.map(place).collect();
        Ok(self.at(tensors, places.ok_or(LayoutError::Malformed { field: "places" })?))
    }
}

/// The fields of a place, in the order in which they are encoded.
const PLACE_FIELDS: [fn(&Place) -> u64; 5] = [
    |place| place.tensor.into(),
    |place| place.offset,
    |place| place.block,
    |place| place.token,
    |place| place.head,
];

/// The places of the first part of all layers, then those of the second: neighbours are alike in this order.
fn by_part(places: &[Place], parts: u32) -> impl Iterator<Item = &Place> {
    let parts = parts as usize;
    (0..parts).flat_map(move |part| places.iter().skip(part).step_by(parts))
}

/// Puts numbers as runs of equal distance: how many runs, then count, first number and distance of each.
pub(in crate::kv) fn put_runs(bytes: &mut Vec<u8>, numbers: impl Iterator<Item = u64>) {
    let mut runs: Vec<(u32, u64, u64)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((count @ 1, first, step)) => (*count, *step) = (2, number.wrapping_sub(*first)),
            Some((count, first, step))
                if number == first.wrapping_add(step.wrapping_mul(u64::from(*count))) =>
            {
                *count += 1;
            }
            _ => runs.push((1, number, 0)),
        }
    }
    bytes.extend((runs.len() as u16).to_le_bytes());
    for (count, first, step) in runs {
        bytes.extend(count.to_le_bytes());
        bytes.extend(first.to_le_bytes());
        bytes.extend(step.to_le_bytes());
    }
}

/// Takes runs of at most `most` numbers in all, none of which wraps.
pub(in crate::kv) fn take_runs(
    reader: &mut Reader<'_>,
    most: usize,
    field: &'static str,
) -> Result<Vec<u64>, LayoutError> {
    let wrong = LayoutError::Malformed { field };
    let runs = reader.u16().map_err(malformed(field))?;
    let mut numbers = Vec::new();
    for _ in 0..runs {
        let count = reader.u32().map_err(malformed(field))?;
        let (first, step) =
            (reader.u64().map_err(malformed(field))?, reader.u64().map_err(malformed(field))?);
        if count == 0 || count as usize > most - numbers.len() {
            return Err(wrong);
        }
        // A distance is signed: neighbours may descend.
        let last = i128::from(first) + i128::from(step as i64) * i128::from(count - 1);
        if u64::try_from(last).is_err() {
            return Err(wrong);
        }
        numbers.extend((0..u64::from(count)).map(|at| first.wrapping_add(step.wrapping_mul(at))));
    }
    Ok(numbers)
}

fn malformed(field: &'static str) -> impl Fn(Ended) -> LayoutError {
    move |Ended| LayoutError::Malformed { field }
}

#[cfg(test)]
mod tests;
