//! A single call: the input of each rank, and the result that it must have.

use rdma_collective::collective::Communicator;
use rdma_collective::collective::{CollectiveError, OperationName};
use rdma_collective::collective::{DataType, Element, ReduceOp, bf16, f16};
use rdma_core::Deadline;

use crate::common::long;
use crate::oracle;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    AllReduce,
    AllGather,
    ReduceScatter,
    Broadcast,
    Reduce,
    Gather,
    Scatter,
    AllToAll,
}

pub const KINDS: [Kind; 7] = [
    Kind::AllGather,
    Kind::ReduceScatter,
    Kind::Broadcast,
    Kind::Reduce,
    Kind::Gather,
    Kind::Scatter,
    Kind::AllToAll,
];

impl Kind {
    pub fn has_root(self) -> bool {
        matches!(self, Self::Broadcast | Self::Reduce | Self::Gather | Self::Scatter)
    }

    /// Whether a buffer in place has a part for each rank.
    fn has_parts(self) -> bool {
        !matches!(self, Self::AllReduce | Self::Broadcast | Self::Reduce)
    }
}

/// Where a rank has its buffers. Ranks need not have them alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Slice,
    Slices,
    Tensor,
    Tensors,
}

pub const PLACES: [Place; 4] = [Place::Slice, Place::Slices, Place::Tensor, Place::Tensors];

#[derive(Debug, Clone, Copy)]
pub struct Call {
    pub kind: Kind,
    pub count: usize,
    pub data_type: DataType,
    pub op: ReduceOp,
    pub root: u32,
    pub seed: u64,
}

pub const CALL: Call =
    Call { kind: Kind::Reduce, count: 64, data_type: DataType::F32, op: ReduceOp::Sum, root: 0, seed: 1 };

/// A value that no rank has.
const CANARY: u8 = 0xa5;

/// A rank's buffers, the input first when there are two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buffers {
    pub input: Option<Vec<u8>>,
    pub output: Vec<u8>,
}

impl Call {
    /// The elements of a rank: one in four any bits at all, the others of a size at which sums round and cancel.
    fn input(self, rank: u32, count: usize) -> Vec<u64> {
        let (one, fraction) = match self.data_type {
            DataType::F16 => (0x3c00, 10),
            DataType::Bf16 => (0x3f80, 7),
            DataType::F32 => (0x3f80_0000, 23),
            DataType::F64 => (0x3ff0_0000_0000_0000, 52),
            _ => (0, 0),
        };
        let bits = 8 * self.data_type.size();
        let element = |index| {
            let mut mixed = self.seed ^ u64::from(rank) << 40 ^ index as u64;
            for _ in 0..2 {
                mixed = (mixed ^ mixed >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            }
            let any = mixed.rotate_left(32) & (u64::MAX >> (64 - bits));
            if mixed.is_multiple_of(4) || one == 0 {
                return any;
            }
            let sign = any & 1 << (bits - 1);
            sign | (one - ((mixed >> 2 & 7) << fraction)) | any & ((1 << fraction) - 1)
        };
        (0..count).map(element).collect()
    }

    fn bytes(self, elements: impl IntoIterator<Item = u64>) -> Vec<u8> {
        oracle::bytes(self.data_type, elements)
    }

    /// Whether the bits depend on the order in which ranks are reduced.
    pub fn depends_on_order(self) -> bool {
        matches!(self.kind, Kind::Reduce | Kind::ReduceScatter)
            && matches!(self.data_type, DataType::F16 | DataType::Bf16 | DataType::F32 | DataType::F64)
            && !matches!(self.op, ReduceOp::Max | ReduceOp::Min)
    }

    /// The elements of `range` reduced from rank `first` on around the ring.
    fn reduced(self, count: usize, range: std::ops::Range<usize>, first: u32, ranks: u32) -> Vec<u8> {
        let inputs: Vec<Vec<u64>> = (0..ranks).map(|rank| self.input(rank, count)).collect();
        let element = |index: usize| {
            let own = |step| inputs[((first + step) % ranks) as usize][index];
            let combine = |all, step| oracle::combine(self.data_type, self.op, all, own(step));
            let all = (1..ranks).fold(own(0), combine);
            // A rank that is alone copies.
            if ranks == 1 { all } else { oracle::finish(self.data_type, self.op, all, ranks) }
        };
        self.bytes(range.map(element))
    }

    /// The input of a rank and its result.
    pub fn buffers(self, rank: u32, ranks: u32, place: Place, reproducible: bool) -> [Buffers; 2] {
        let in_place = matches!(place, Place::Slice | Place::Tensor);
        let (count, n) = (self.count, ranks as usize);
        let own = |rank: u32| self.bytes(self.input(rank, count));
        let canaries = |count| vec![CANARY; count * self.data_type.size()];
        let part = rank as usize * count..(rank as usize + 1) * count;
        let bytes = part.start * self.data_type.size()..part.end * self.data_type.size();
        let is_root = rank == self.root;
        let first = |otherwise| if reproducible { 0 } else { otherwise };
        let (input, mut output, result) = match self.kind {
            Kind::AllReduce => panic!("it is tested elsewhere"),
            Kind::AllGather => {
                let result = (0..ranks).flat_map(own).collect();
                let mut output = canaries(n * count);
                if in_place {
                    output[bytes].copy_from_slice(&own(rank));
                }
                (own(rank), output, result)
            }
            Kind::ReduceScatter => {
                let all = self.bytes(self.input(rank, n * count));
                let reduced = self.reduced(n * count, part, first((rank + 1) % ranks), ranks);
                let mut result = all.clone();
                result[bytes].copy_from_slice(&reduced);
                let result = if in_place { result } else { reduced };
                (all, canaries(count), result)
            }
            Kind::Broadcast => {
                let input = if is_root { own(rank) } else { Vec::new() };
                let output = if in_place && is_root { own(rank) } else { canaries(count) };
                (input, output, own(self.root))
            }
            Kind::Reduce => {
                let reduced = || self.reduced(count, 0..count, first((self.root + 1) % ranks), ranks);
                let result = match (is_root, in_place) {
                    (true, _) => reduced(),
                    (false, true) => own(rank),
                    (false, false) => Vec::new(),
                };
                (own(rank), canaries(if is_root { count } else { 0 }), result)
            }
            Kind::Gather | Kind::Scatter | Kind::AllToAll => self.moved([rank, ranks], in_place),
        };
        if !in_place {
            return [output, result].map(|output| Buffers { input: Some(input.clone()), output });
        }
        if matches!(self.kind, Kind::ReduceScatter | Kind::Reduce | Kind::AllToAll) {
            output = input;
        }
        [output, result].map(|output| Buffers { input: None, output })
    }

    /// Input, output and result of calls that reduce nothing and differ from rank to rank.
    fn moved(self, [rank, ranks]: [u32; 2], in_place: bool) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        let (count, n, is_root) = (self.count, ranks as usize, rank == self.root);
        let own = |rank: u32| self.bytes(self.input(rank, count));
        let canaries = |count| vec![CANARY; count * self.data_type.size()];
        let part = rank as usize * count..(rank as usize + 1) * count;
        let bytes = part.start * self.data_type.size()..part.end * self.data_type.size();
        match self.kind {
            Kind::Gather => {
                let mut output = canaries(if is_root || in_place { n * count } else { 0 });
                if in_place {
                    output[bytes].copy_from_slice(&own(rank));
                }
                let result = if is_root { (0..ranks).flat_map(own).collect() } else { output.clone() };
                (own(rank), output, result)
            }
            Kind::Scatter => {
                let all = self.bytes(self.input(self.root, n * count));
                let mut output = canaries(if in_place { n * count } else { count });
                if in_place && is_root {
                    output.copy_from_slice(&all);
                }
                let mut result = output.clone();
                result[if in_place { bytes.clone() } else { 0..bytes.len() }].copy_from_slice(&all[bytes]);
                (if is_root { all } else { Vec::new() }, output, result)
            }
            _ => {
                let all = self.bytes(self.input(rank, n * count));
                let to_this = |from| self.input(from, n * count)[part.clone()].to_vec();
                let result = self.bytes((0..ranks).flat_map(to_this));
                (all, canaries(n * count), result)
            }
        }
    }

    /// Zeros in place, for who looks at errors alone.
    pub fn zeros(self, ranks: u32) -> Buffers {
        let parts = if self.kind.has_parts() { ranks as usize } else { 1 };
        Buffers { input: None, output: vec![0; parts * self.count * self.data_type.size()] }
    }

    /// Calls it on slices.
    pub fn call(
        self,
        comm: &mut Communicator,
        buffers: &mut Buffers,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        let Self { kind, data_type, op, root, .. } = self;
        let Buffers { input, output } = buffers;
        match (kind, input) {
            (Kind::AllReduce, None) => comm.all_reduce_bytes(output, data_type, op, deadline),
            (Kind::AllReduce, Some(input)) => {
                comm.all_reduce_bytes_into(input, output, data_type, op, deadline)
            }
            (Kind::AllGather, None) => comm.all_gather_bytes(output, data_type, deadline),
            (Kind::AllGather, Some(input)) => comm.all_gather_bytes_into(input, output, data_type, deadline),
            (Kind::ReduceScatter, None) => comm.reduce_scatter_bytes(output, data_type, op, deadline),
            (Kind::ReduceScatter, Some(input)) => {
                comm.reduce_scatter_bytes_into(input, output, data_type, op, deadline)
            }
            (Kind::Broadcast, None) => comm.broadcast_bytes(output, data_type, root, deadline),
            (Kind::Broadcast, Some(input)) => {
                comm.broadcast_bytes_into(input, output, data_type, root, deadline)
            }
            (Kind::Reduce, None) => comm.reduce_bytes(output, data_type, op, root, deadline),
            (Kind::Reduce, Some(input)) => {
                comm.reduce_bytes_into(input, output, data_type, op, root, deadline)
            }
            (Kind::Gather, None) => comm.gather_bytes(output, data_type, root, deadline),
            (Kind::Gather, Some(input)) => comm.gather_bytes_into(input, output, data_type, root, deadline),
            (Kind::Scatter, None) => comm.scatter_bytes(output, data_type, root, deadline),
            (Kind::Scatter, Some(input)) => comm.scatter_bytes_into(input, output, data_type, root, deadline),
            (Kind::AllToAll, None) => comm.all_to_all_bytes(output, data_type, deadline),
            (Kind::AllToAll, Some(input)) => comm.all_to_all_bytes_into(input, output, data_type, deadline),
        }
    }

    /// Calls it on tensors that are made for it.
    fn call_on_tensors<T: Element>(self, comm: &mut Communicator, buffers: &mut Buffers) {
        let Self { kind, op, root, .. } = self;
        let tensor = |bytes: &[u8]| {
            let mut tensor = comm.alloc::<T>(bytes.len() / size_of::<T>()).unwrap();
            T::as_bytes_mut(&mut tensor).copy_from_slice(bytes);
            tensor
        };
        let output = tensor(&buffers.output);
        let Some(input) = buffers.input.as_deref().map(tensor) else {
            let pending = match kind {
                Kind::AllReduce => comm.start_all_reduce(output, op, long()),
                Kind::AllGather => comm.start_all_gather(output, long()),
                Kind::ReduceScatter => comm.start_reduce_scatter(output, op, long()),
                Kind::Broadcast => comm.start_broadcast(output, root, long()),
                Kind::Reduce => comm.start_reduce(output, op, root, long()),
                Kind::Gather => comm.start_gather(output, root, long()),
                Kind::Scatter => comm.start_scatter(output, root, long()),
                Kind::AllToAll => comm.start_all_to_all(output, long()),
            };
            buffers.output = T::as_bytes(&pending.unwrap().wait(long()).unwrap()).to_vec();
            return;
        };
        let pending = match kind {
            Kind::AllReduce => comm.start_all_reduce_into(input, output, op, long()),
            Kind::AllGather => comm.start_all_gather_into(input, output, long()),
            Kind::ReduceScatter => comm.start_reduce_scatter_into(input, output, op, long()),
            Kind::Broadcast => comm.start_broadcast_into(input, output, root, long()),
            Kind::Reduce => comm.start_reduce_into(input, output, op, root, long()),
            Kind::Gather => comm.start_gather_into(input, output, root, long()),
            Kind::Scatter => comm.start_scatter_into(input, output, root, long()),
            Kind::AllToAll => comm.start_all_to_all_into(input, output, long()),
        };
        let (input, output) = pending.unwrap().wait(long()).unwrap();
        *buffers =
            Buffers { input: Some(T::as_bytes(&input).to_vec()), output: T::as_bytes(&output).to_vec() };
    }

    /// Whether the rank has what it must have, in both buffers, bit for bit.
    pub fn is_right(mut self, comm: &mut Communicator, place: Place) -> bool {
        let (rank, ranks) = (comm.rank(), comm.size());
        self.root %= ranks;
        let [mut buffers, expected] = self.buffers(rank, ranks, place, comm.options().reproducible);
        if matches!(place, Place::Slice | Place::Slices) {
            self.call(comm, &mut buffers, long()).unwrap();
            return buffers == expected;
        }
        match self.data_type {
            DataType::I8 => self.call_on_tensors::<i8>(comm, &mut buffers),
            DataType::U8 => self.call_on_tensors::<u8>(comm, &mut buffers),
            DataType::I16 => self.call_on_tensors::<i16>(comm, &mut buffers),
            DataType::U16 => self.call_on_tensors::<u16>(comm, &mut buffers),
            DataType::I32 => self.call_on_tensors::<i32>(comm, &mut buffers),
            DataType::U32 => self.call_on_tensors::<u32>(comm, &mut buffers),
            DataType::I64 => self.call_on_tensors::<i64>(comm, &mut buffers),
            DataType::U64 => self.call_on_tensors::<u64>(comm, &mut buffers),
            DataType::F16 => self.call_on_tensors::<f16>(comm, &mut buffers),
            DataType::F32 => self.call_on_tensors::<f32>(comm, &mut buffers),
            DataType::F64 => self.call_on_tensors::<f64>(comm, &mut buffers),
            DataType::Bf16 => self.call_on_tensors::<bf16>(comm, &mut buffers),
            other => panic!("{other} is not tested"),
        }
        buffers == expected
    }

    /// A place that is the rank's own.
    pub fn place(self, rank: u32) -> Place {
        PLACES[(self.seed >> (2 * rank)) as usize % PLACES.len()]
    }

    /// How errors quote it.
    pub fn is(self, name: &OperationName) -> bool {
        let Self { data_type, op, root, .. } = self;
        let (collective, of) = match self.kind {
            Kind::AllReduce => ("all-reduce", format!("{data_type} ({op})")),
            Kind::AllGather => ("all-gather", data_type.to_string()),
            Kind::ReduceScatter => ("reduce-scatter", format!("{data_type} ({op})")),
            Kind::Broadcast => ("broadcast", format!("{data_type} from rank {root}")),
            Kind::Reduce => ("reduce", format!("{data_type} ({op}) to rank {root}")),
            Kind::Gather => ("gather", format!("{data_type} to rank {root}")),
            Kind::Scatter => ("scatter", format!("{data_type} from rank {root}")),
            Kind::AllToAll => ("all-to-all", data_type.to_string()),
        };
        (name.collective, name.count, &name.of) == (collective, self.count as u64, &of)
    }
}
