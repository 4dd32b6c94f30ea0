//! All-to-all as callers see it: in place and out of place, typed and by bytes.

use rdma_core::{Deadline, Refused};

use super::call::Collective;
use super::execute::Borrowed;
use super::{DataType, Element, Tensor};
use crate::collective::CollectiveError;
use crate::collective::communicator::{Communicator, Pending};

impl Communicator {
    /// Brings part `j` of rank `i` to rank `j` as its part `i`, for all of them: `data` has one part for each rank, one behind the
    /// other by rank, before and after.
    ///
    /// All ranks call it with the same count and type.
    /// The slice is copied through memory of the library, so that nothing of it is in use when this returns, whatever
    /// happened.
    ///
    /// The first call that needs it connects each rank to all others, and takes the longer for that.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Indivisible`] when the elements cannot be shared evenly among the ranks, and then nothing is lost.
    /// Otherwise a rank that is lost, late until `deadline` or calls something else, by its number, or one that could not be
    /// connected: the data is then undefined, and the communicator has ended.
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
    /// let mut data: Vec<u32> = (0..comm.size()).flat_map(|to| [to; 1000]).collect();
    /// comm.all_to_all(&mut data, Deadline::after(Duration::from_secs(5)))?;
    /// assert!(data.iter().all(|element| *element == comm.rank()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "ncclAlltoAll")]
    pub fn all_to_all<T: Element>(
        &mut self,
        data: &mut [T],
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.all_to_all_bytes(T::as_bytes_mut(data), T::DATA_TYPE, deadline)
    }

    /// Brings part `j` of the `input` of rank `i` to rank `j` as part `i` of its `output`, which is as long; otherwise as
    /// [`all_to_all`](Self::all_to_all).
    ///
    /// Ranks may mix the two.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::LengthsDiffer`] when `input` and `output` are not of one length, and then nothing is lost; or as for
    /// [`all_to_all`](Self::all_to_all).
    #[doc(alias = "ncclAlltoAll")]
    pub fn all_to_all_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.all_to_all_bytes_into(T::as_bytes(input), T::as_bytes_mut(output), T::DATA_TYPE, deadline)
    }

    /// [`all_to_all`](Self::all_to_all) for a type that is known at run time: the bytes of elements as in memory, at any
    /// alignment.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] when the bytes end inside an element, and then nothing is lost; or as for
    /// [`all_to_all`](Self::all_to_all).
    pub fn all_to_all_bytes(
        &mut self,
        data: &mut [u8],
        data_type: DataType,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.call(Collective::AllToAll.into(), data_type, Borrowed::InPlace(data), deadline)
    }

    /// [`all_to_all_into`](Self::all_to_all_into) for a type that is known at run time.
    ///
    /// # Errors
    ///
    /// As for [`all_to_all_into`](Self::all_to_all_into) and [`all_to_all_bytes`](Self::all_to_all_bytes).
    pub fn all_to_all_bytes_into(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        data_type: DataType,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.call(Collective::AllToAll.into(), data_type, Borrowed::out_of_place(input, output), deadline)
    }

    /// Begins to bring part `j` of rank `i` to rank `j` as its part `i`, and returns at once; the tensor comes back.
    ///
    /// It runs behind the operations that are pending. Ranks may mix this with the other calls.
    ///
    /// # Errors
    ///
    /// The tensor comes back when it cannot begin: [`CollectiveError::ForeignMemory`] when it is of another engine,
    /// [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or a buffer or root that cannot be, as for
    /// [`all_to_all`](Self::all_to_all). Waiting tells of the others; the tensor is lost then.
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
    /// parts.fill(2.5);
    /// let parts = comm.start_all_to_all(parts, deadline)?.wait(deadline)?;
    /// assert!(parts.iter().all(|element| *element == 2.5));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_all_to_all<T: Element>(
        &mut self,
        tensor: Tensor<T>,
        deadline: Deadline,
    ) -> Result<Pending<Tensor<T>>, Refused<Tensor<T>, CollectiveError>> {
        self.start_in_place(Collective::AllToAll.into(), tensor, deadline)
    }

    /// Begins to bring part `j` of the `input` of rank `i` to rank `j` as part `i` of its `output`, and returns at once; both come back. Otherwise as
    /// [`start_all_to_all`](Self::start_all_to_all).
    ///
    /// # Errors
    ///
    /// As for [`start_all_to_all`](Self::start_all_to_all) and [`all_to_all_into`](Self::all_to_all_into).
    #[expect(clippy::type_complexity, reason = "both tensors go in and come back")]
    pub fn start_all_to_all_into<T: Element>(
        &mut self,
        input: Tensor<T>,
        output: Tensor<T>,
        deadline: Deadline,
    ) -> Result<Pending<(Tensor<T>, Tensor<T>)>, Refused<(Tensor<T>, Tensor<T>), CollectiveError>> {
        self.start_out_of_place(Collective::AllToAll.into(), input, output, deadline)
    }
}
