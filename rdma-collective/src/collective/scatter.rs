//! Scatter as callers see it: in place and out of place, typed and by bytes.

use rdma_core::{Deadline, Refused};

use super::call::Collective;
use super::execute::Borrowed;
use super::{DataType, Element, Tensor};
use crate::collective::CollectiveError;
use crate::collective::communicator::{Communicator, Pending};

impl Communicator {
    /// Brings each rank its part of what rank `root` has: `data` is as long as all parts, one behind the other by rank.
    ///
    /// Afterwards each rank has its part in its place, which is from `rank * data.len() / size` on, and the rest stays as it was. All
    /// ranks call it with the same count, type and root.
    /// The slice is copied through memory of the library, so that nothing of it is in use when this returns, whatever
    /// happened.
    ///
    /// `Ok` says that this rank's part is done, on the root that `data` may be changed again, and not that the others have
    /// their parts: on one host what is small is left for them, some calls ahead at most. A rank that calls something
    /// else, or never comes, is told of by a later call.
    ///
    /// The first call that needs it connects each rank to those at distances of powers of two, `2 log2 n` of them, and takes
    /// the longer for that.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Schedule`] when `root` is no rank, and [`CollectiveError::Indivisible`] when the elements cannot be
    /// shared evenly among the ranks; then nothing is lost. Otherwise a rank that is lost, late until `deadline` or calls
    /// something else, by its number, or one that could not be connected: the data is then undefined, and the communicator has
    /// ended.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_core::Deadline;
    ///
    /// # use rdma_collective::bootstrap::{JobToken, Join, StoreClient, StoreOptions, StoreServer};
    /// # use rdma_collective::collective::{Communicator, CommunicatorOptions};
    /// # use rdma_collective::engine::{Engine, EngineOptions};
    /// # use rdma_core::{Device, SoftOptions};
    /// # let deadline = Deadline::after(Duration::from_secs(10));
    /// # let token = JobToken::random()?;
    /// # let server = StoreServer::bind("127.0.0.1:0".parse()?, StoreOptions::new(token, 1))?;
    /// # let join = Join { address: server.address(), token, rank: 0, world: 1 };
    /// # let mut store = StoreClient::connect(join, deadline)?;
    /// # let engine = Engine::new(&Device::soft(SoftOptions::default()).open()?, EngineOptions::default())?;
    /// # let mut comm = Communicator::new(&engine, &mut store, CommunicatorOptions::default(), deadline)?;
    /// let own = comm.rank() as usize * 1000;
    /// let mut data = vec![0; comm.size() as usize * 1000];
    /// if comm.rank() == 0 {
    ///     data.chunks_mut(1000).zip(0..).for_each(|(part, rank)| part.fill(rank));
    /// }
    /// comm.scatter(&mut data, 0, Deadline::after(Duration::from_secs(5)))?;
    /// assert_eq!(data[own..own + 1000], [comm.rank(); 1000]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "ncclScatter")]
    pub fn scatter<T: Element>(
        &mut self,
        data: &mut [T],
        root: u32,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.scatter_bytes(T::as_bytes_mut(data), T::DATA_TYPE, root, deadline)
    }

    /// Brings each rank its part of the `input` of rank `root`, into `output`; otherwise as
    /// [`scatter`](Self::scatter). The input of other ranks is not
    /// looked at, and may be empty.
    ///
    /// Ranks may mix the two.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::PartsDiffer`] when the root's `input` is not as long as there are ranks times `output`, and then nothing is
    /// lost there; or as for
    /// [`scatter`](Self::scatter).
    #[doc(alias = "ncclScatter")]
    pub fn scatter_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        root: u32,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.scatter_bytes_into(T::as_bytes(input), T::as_bytes_mut(output), T::DATA_TYPE, root, deadline)
    }

    /// [`scatter`](Self::scatter) for a type that is known at run time: the bytes of elements as in memory, at any
    /// alignment.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] when the bytes end inside an element, and then nothing is lost; or as for
    /// [`scatter`](Self::scatter).
    pub fn scatter_bytes(
        &mut self,
        data: &mut [u8],
        data_type: DataType,
        root: u32,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.call(Collective::Scatter.at(root), data_type, Borrowed::InPlace(data), deadline)
    }

    /// [`scatter_into`](Self::scatter_into) for a type that is known at run time.
    ///
    /// # Errors
    ///
    /// As for [`scatter_into`](Self::scatter_into) and [`scatter_bytes`](Self::scatter_bytes).
    pub fn scatter_bytes_into(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        data_type: DataType,
        root: u32,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.call(Collective::Scatter.at(root), data_type, Borrowed::out_of_place(input, output), deadline)
    }

    /// Begins to bring each rank its part of the `tensor` of rank `root`, and returns at once; the tensor comes back.
    ///
    /// It runs behind the operations that are pending. Ranks may mix this with the other calls.
    ///
    /// # Errors
    ///
    /// The tensor comes back when it cannot begin: [`CollectiveError::ForeignMemory`] when it is of another engine,
    /// [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or a buffer or root that cannot be, as for
    /// [`scatter`](Self::scatter). Waiting tells of the others; the tensor is lost then.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_core::Deadline;
    ///
    /// # use rdma_collective::bootstrap::{JobToken, Join, StoreClient, StoreOptions, StoreServer};
    /// # use rdma_collective::collective::{Communicator, CommunicatorOptions};
    /// # use rdma_collective::engine::{Engine, EngineOptions};
    /// # use rdma_core::{Device, SoftOptions};
    /// # let deadline = Deadline::after(Duration::from_secs(10));
    /// # let token = JobToken::random()?;
    /// # let server = StoreServer::bind("127.0.0.1:0".parse()?, StoreOptions::new(token, 1))?;
    /// # let join = Join { address: server.address(), token, rank: 0, world: 1 };
    /// # let mut store = StoreClient::connect(join, deadline)?;
    /// # let engine = Engine::new(&Device::soft(SoftOptions::default()).open()?, EngineOptions::default())?;
    /// # let mut comm = Communicator::new(&engine, &mut store, CommunicatorOptions::default(), deadline)?;
    /// let mut parts = comm.alloc::<f32>(comm.size() as usize * 1000)?;
    /// parts.fill(1.5);
    /// let parts = comm.start_scatter(parts, 0, deadline)?.wait(deadline)?;
    /// let own = comm.rank() as usize * 1000;
    /// assert!(parts[own..own + 1000].iter().all(|element| *element == 1.5));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_scatter<T: Element>(
        &mut self,
        tensor: Tensor<T>,
        root: u32,
        deadline: Deadline,
    ) -> Result<Pending<Tensor<T>>, Refused<Tensor<T>, CollectiveError>> {
        self.start_in_place(Collective::Scatter.at(root), tensor, deadline)
    }

    /// Begins to bring each rank its part of the `input` of rank `root`, into `output`, and returns at once; both come back. Otherwise as
    /// [`start_scatter`](Self::start_scatter).
    ///
    /// # Errors
    ///
    /// As for [`start_scatter`](Self::start_scatter) and [`scatter_into`](Self::scatter_into).
    #[expect(clippy::type_complexity, reason = "both tensors go in and come back")]
    pub fn start_scatter_into<T: Element>(
        &mut self,
        input: Tensor<T>,
        output: Tensor<T>,
        root: u32,
        deadline: Deadline,
    ) -> Result<Pending<(Tensor<T>, Tensor<T>)>, Refused<(Tensor<T>, Tensor<T>), CollectiveError>> {
        self.start_out_of_place(Collective::Scatter.at(root), input, output, deadline)
    }
}
