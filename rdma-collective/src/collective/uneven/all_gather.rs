//! All-gather of any counts as callers see it: typed, by bytes, and on tensors.

use rdma_core::{Deadline, Refused};

use super::Counts;
use crate::collective::CollectiveError;
use crate::collective::call::Collective;
use crate::collective::communicator::{Communicator, Pending};
use crate::collective::{DataType, Element, Tensor};

impl Communicator {
    /// Brings the `input` of all ranks, of any length each, into the `output` of all: `counts[i]` elements come from rank `i`, one behind
    /// the other by rank.
    ///
    /// All ranks call it with the same counts and type, and each with an input of its own count.
    /// Slices are copied through memory of the library, so that nothing of them is in use when this returns, whatever happened.
    /// The first call that needs it connects each rank to all others, and takes the longer for that.
    ///
    /// # Errors
    ///
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
    /// // One element of rank 0, two of rank 1, and so on.
    /// let input = vec![comm.rank(); comm.rank() as usize + 1];
    /// let counts: Vec<usize> = (1..=comm.size() as usize).collect();
    /// let mut output = vec![9; counts.iter().sum()];
    /// comm.all_gather_v(&input, &mut output, &counts, deadline)?;
    /// assert_eq!(output, [0, 1, 1]);
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
    #[doc(alias = "MPI_Allgatherv")]
    pub fn all_gather_v<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        counts: &[usize],
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.all_gather_v_bytes(T::as_bytes(input), T::as_bytes_mut(output), counts, T::DATA_TYPE, deadline)
    }

    /// [`all_gather_v`](Self::all_gather_v) for a type that is known at run time: the bytes of elements as in memory, at any alignment. Counts are
    /// of elements.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] when the bytes end inside an element, and then nothing is lost; or as for
    /// [`all_gather_v`](Self::all_gather_v).
    pub fn all_gather_v_bytes(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        counts: &[usize],
        data_type: DataType,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.call_uneven(
            (Collective::AllGatherV.into(), Counts { received: counts, ..Counts::default() }),
            data_type,
            input,
            output,
            deadline,
        )
    }

    /// Begins what [`all_gather_v`](Self::all_gather_v) does, on tensors, and returns at once; both come back.
    ///
    /// Nothing is copied: it is sent from where it lies. It runs behind the operations that are pending. Ranks may mix this with the
    /// other calls.
    ///
    /// # Errors
    ///
    /// The tensors come back when it cannot begin: [`CollectiveError::ForeignMemory`] when one is of another engine,
    /// [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or counts that cannot be, as for
    /// [`all_gather_v`](Self::all_gather_v). Waiting tells of the others; the tensors are lost then.
    #[expect(clippy::type_complexity, reason = "both tensors go in and come back")]
    pub fn start_all_gather_v<T: Element>(
        &mut self,
        input: Tensor<T>,
        output: Tensor<T>,
        counts: &[usize],
        deadline: Deadline,
    ) -> Result<Pending<(Tensor<T>, Tensor<T>)>, Refused<(Tensor<T>, Tensor<T>), CollectiveError>> {
        self.start_uneven(
            (Collective::AllGatherV.into(), Counts { received: counts, ..Counts::default() }),
            input,
            output,
            deadline,
        )
    }
}
