//! Scatter of any counts as callers see it: typed, by bytes, and on tensors.

use rdma_core::{Deadline, Refused};

use super::Counts;
use crate::collective::CollectiveError;
use crate::collective::call::Collective;
use crate::collective::communicator::{Communicator, Pending};
use crate::collective::{DataType, Element, Tensor};

impl Communicator {
    /// Brings a part of the `input` of rank `root` to each rank: there `counts[j]` elements, one behind the other by rank, go to rank `j`,
    /// which has an `output` of as many.
    ///
    /// On other ranks input and counts are not looked at, and may be empty. All ranks call it with the same type and root.
    /// Slices are copied through memory of the library, so that nothing of them is in use when this returns, whatever happened.
    /// The first call that needs it connects each rank to all others, and takes the longer for that.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Schedule`] when `root` is no rank; then nothing is lost.
    /// [`CollectiveError::CountsDoNotFit`] when there is not a count for each rank, or they are together not as many as the buffer's elements,
    /// and then nothing is lost. [`CollectiveError::CountsDiffer`] when another rank sends this one another count than it expects: it
    /// names both ranks and counts. Otherwise a rank that is lost, late until `deadline` or calls something else, by its
    /// number, or one that could not be connected: the output is then undefined, and the communicator has ended.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_core::Deadline;
    ///
    /// # use rdma_collective::bootstrap::{JobToken, Join, StoreClient, StoreOptions, StoreServer};
    /// # use rdma_collective::collective::{Communicator, CommunicatorOptions};
    /// # use rdma_collective::engine::{Engine, EngineOptions};
    /// # use rdma_core::{Device, SoftOptions};
    /// # fn run(join: Join) -> Result<(), Box<dyn std::error::Error>> {
    /// # let deadline = Deadline::after(Duration::from_secs(30));
    /// # let mut store = StoreClient::connect(join, deadline)?;
    /// # let engine = Engine::new(&Device::soft(SoftOptions::default()).open()?, EngineOptions::default())?;
    /// # let mut comm = Communicator::new(&engine, &mut store, CommunicatorOptions::default(), deadline)?;
    /// // Each rank gets as many elements as its number, and one.
    /// let counts: Vec<usize> = (1..=comm.size() as usize).collect();
    /// let input = if comm.rank() == 0 { vec![0, 1, 1] } else { Vec::new() };
    /// let mut output = vec![9; comm.rank() as usize + 1];
    /// comm.scatter_v(&input, &counts, &mut output, 0, deadline)?;
    /// assert!(output.iter().all(|element| *element == comm.rank()));
    /// # comm.close(deadline)?;
    /// # Ok(())
    /// # }
    /// # let token = JobToken::random()?;
    /// # let server = StoreServer::bind("127.0.0.1:0".parse()?, StoreOptions::new(token, 2))?;
    /// # let join = |rank| Join { address: server.address(), token, rank, world: 2 };
    /// # let (zero, one) = (join(0), join(1));
    /// # let other = std::thread::spawn(move || run(one).map_err(|error| error.to_string()));
    /// # run(zero)?;
    /// # other.join().unwrap()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "MPI_Scatterv")]
    pub fn scatter_v<T: Element>(
        &mut self,
        input: &[T],
        counts: &[usize],
        output: &mut [T],
        root: u32,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.scatter_v_bytes(
            T::as_bytes(input),
            counts,
            T::as_bytes_mut(output),
            root,
            T::DATA_TYPE,
            deadline,
        )
    }

    /// [`scatter_v`](Self::scatter_v) for a type that is known at run time: the bytes of elements as in memory, at any alignment. Counts are
    /// of elements.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] when the bytes end inside an element, and then nothing is lost; or as for
    /// [`scatter_v`](Self::scatter_v).
    pub fn scatter_v_bytes(
        &mut self,
        input: &[u8],
        counts: &[usize],
        output: &mut [u8],
        root: u32,
        data_type: DataType,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.call_uneven(
            (Collective::ScatterV.at(root), Counts { sent: counts, ..Counts::default() }),
            data_type,
            input,
            output,
            deadline,
        )
    }

    /// Begins what [`scatter_v`](Self::scatter_v) does, on tensors, and returns at once; both come back.
    ///
    /// Nothing is copied: it is sent from where it lies. It runs behind the operations that are pending. Ranks may mix this with the
    /// other calls.
    ///
    /// # Errors
    ///
    /// The tensors come back when it cannot begin: [`CollectiveError::ForeignMemory`] when one is of another engine,
    /// [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or counts that cannot be, as for
    /// [`scatter_v`](Self::scatter_v). Waiting tells of the others; the tensors are lost then.
    #[expect(clippy::type_complexity, reason = "both tensors go in and come back")]
    pub fn start_scatter_v<T: Element>(
        &mut self,
        input: Tensor<T>,
        counts: &[usize],
        output: Tensor<T>,
        root: u32,
        deadline: Deadline,
    ) -> Result<Pending<(Tensor<T>, Tensor<T>)>, Refused<(Tensor<T>, Tensor<T>), CollectiveError>> {
        self.start_uneven(
            (Collective::ScatterV.at(root), Counts { sent: counts, ..Counts::default() }),
            input,
            output,
            deadline,
        )
    }
}
