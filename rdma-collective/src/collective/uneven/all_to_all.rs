//! All-to-all of any counts as callers see it: typed, by bytes, and on tensors.

use rdma_core::{Deadline, Refused};

use super::Counts;
use crate::collective::CollectiveError;
use crate::collective::call::Collective;
use crate::collective::communicator::{Communicator, Pending};
use crate::collective::{DataType, Element, Tensor};

impl Communicator {
    /// Brings so many elements from each rank to each other one: of `input`, which has what goes to each rank one behind the other by rank,
    /// `send_counts[j]` go to rank `j`, and `receive_counts[i]` come from rank `i` to `output`, which has them by rank.
    ///
    /// What a rank sends another one that one expects, be it nothing; a rank that does not know its counts gets them by an
    /// [`all_to_all`](Self::all_to_all) of one element each. What goes between two ranks is of the same type.
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
    /// // Tokens for the experts on each rank: how many come from where is told before.
    /// let (rank, size) = (comm.rank() as usize, comm.size() as usize);
    /// let send_counts: Vec<usize> = (0..size).map(|to| 10 * rank + to).collect();
    /// let mut counts: Vec<u64> = send_counts.iter().map(|count| *count as u64).collect();
    /// comm.all_to_all(&mut counts, deadline)?;
    /// let receive_counts: Vec<usize> = counts.iter().map(|count| *count as usize).collect();
    ///
    /// let tokens = vec![comm.rank(); send_counts.iter().sum()];
    /// let mut received = vec![0; receive_counts.iter().sum()];
    /// comm.all_to_all_v(&tokens, &send_counts, &mut received, &receive_counts, deadline)?;
    /// let from = |from: usize| vec![from as u32; 10 * from + rank];
    /// assert_eq!(received, (0..size).flat_map(from).collect::<Vec<_>>());
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
    #[doc(alias = "MPI_Alltoallv")]
    pub fn all_to_all_v<T: Element>(
        &mut self,
        input: &[T],
        send_counts: &[usize],
        output: &mut [T],
        receive_counts: &[usize],
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.all_to_all_v_bytes(
            T::as_bytes(input),
            send_counts,
            T::as_bytes_mut(output),
            receive_counts,
            T::DATA_TYPE,
            deadline,
        )
    }

    /// [`all_to_all_v`](Self::all_to_all_v) for a type that is known at run time: the bytes of elements as in memory, at any alignment. Counts are
    /// of elements.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] when the bytes end inside an element, and then nothing is lost; or as for
    /// [`all_to_all_v`](Self::all_to_all_v).
    pub fn all_to_all_v_bytes(
        &mut self,
        input: &[u8],
        send_counts: &[usize],
        output: &mut [u8],
        receive_counts: &[usize],
        data_type: DataType,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.call_uneven(
            (Collective::AllToAllV.into(), Counts { sent: send_counts, received: receive_counts }),
            data_type,
            input,
            output,
            deadline,
        )
    }

    /// Begins what [`all_to_all_v`](Self::all_to_all_v) does, on tensors, and returns at once; both come back.
    ///
    /// Nothing is copied: it is sent from where it lies. It runs behind the operations that are pending. Ranks may mix this with the
    /// other calls.
    ///
    /// # Errors
    ///
    /// The tensors come back when it cannot begin: [`CollectiveError::ForeignMemory`] when one is of another engine,
    /// [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or counts that cannot be, as for
    /// [`all_to_all_v`](Self::all_to_all_v). Waiting tells of the others; the tensors are lost then.
    #[expect(clippy::type_complexity, reason = "both tensors go in and come back")]
    pub fn start_all_to_all_v<T: Element>(
        &mut self,
        input: Tensor<T>,
        send_counts: &[usize],
        output: Tensor<T>,
        receive_counts: &[usize],
        deadline: Deadline,
    ) -> Result<Pending<(Tensor<T>, Tensor<T>)>, Refused<(Tensor<T>, Tensor<T>), CollectiveError>> {
        self.start_uneven(
            (Collective::AllToAllV.into(), Counts { sent: send_counts, received: receive_counts }),
            input,
            output,
            deadline,
        )
    }
}
