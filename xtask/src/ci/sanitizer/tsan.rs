//! ThreadSanitizer. The standard library is not built with it, so some of its primitives look like races.

use super::Sanitizer;

/// ThreadSanitizer over the software device: every verb on each wire; in a soak the units, too.
pub const TSAN: Sanitizer = Sanitizer {
    name: "tsan",
    rustflags: "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer",
    regular: &["-p", "rdma-core", "-p", "conformance", "--test=soft", "--test=tcp"],
    besides: &["--lib", "--test=mapped", "--test=exact", "--test=faults", "--test=planted"],
    left_out: &[
        // Limit the address space, of which the sanitizer takes most, or descriptors and mappings, of which it needs
        // some.
        "backend::soft::wire::shm::rendezvous::tests::limits::",
        "limits::",
        "without_descriptors",
        "without_mappings",
        "may_not_make_such_a_file",
        "pages_that_cannot_be_put_back",
        "what_is_dropped_on_shared_pages",
        "an_owner_is_given_back_on_pages_of_its_own",
        // The sanitizer has a thread of its own, which a forked child does not have.
        "forked",
        "fork_",
        // The kernel stops the writer while its page is replaced, which the sanitizer does not know.
        "whoever_holds_the_pages_is_waited_for",
        // The sanitizer does not see which memory is unmapped: pages that one test has written look raced for where
        // another test's memory comes to lie there.
        "rendezvous::tests::patches::",
        // Counts system calls, or measures.
        "is_no_system_call",
        "keeps_its_deadline_and_a_drop_does_not_wait",
        // Minutes long, and of a single thread.
        "every_interleaving_of_small_",
        "every_pair_of_state_and_request",
    ],
    runs_programs: false,
    options: ("TSAN_OPTIONS", "report_signal_unsafe=0"),
    // Suppressions of the standard library, the test harness and proptest, never of our own code. A fence inside
    // `Arc`, and the release of a `Once` or a channel, are invisible where the code is not built with the sanitizer.
    suppressions: Some(
        "race:<std::sync::once_lock::OnceLock<*>>::initialize\n\
         race:<std::sync::once::Once>::call\n\
         race:<alloc::sync::Arc<*>>::drop_slow\n\
         race:<alloc::sync::Arc<*> as core::ops::drop::Drop>::drop\n\
         race:<alloc::sync::Weak<*> as core::ops::drop::Drop>::drop\n\
         race:core::ptr::drop_glue::<alloc::sync::Weak<*\n\
         race:<std::sync::mpmc::*\n\
         race:<std::thread::lifecycle::Packet<*\n\
         race:<test::*\n\
         race:proptest::test_runner::*\n",
    ),
};
