//! AddressSanitizer, with its detector of leaks.

use super::Sanitizer;

/// AddressSanitizer over the libraries and the programs.
pub const ASAN: Sanitizer = Sanitizer {
    name: "asan",
    rustflags: "-Zsanitizer=address",
    // Tests of the code that touches raw memory: its units, what is mapped from other processes, what drives a
    // provider of libibverbs, and every verb by `conformance`. The collectives come by the programs. Their own tests
    // are left out: they hold processes to times. The feature `metrics` is on, and its tests come along.
    regular: &[
        "--features=rdma-collective/metrics",
        "-p",
        "rdma-core",
        "-p",
        "conformance",
        "-p",
        "rdma-collective",
        "--lib",
        "--test=mapped",
        "--test=driver",
        "--test=metrics",
        "--test=pinning",
        "--test=soft",
    ],
    // These reach the same raw memory by other calls.
    besides: &[
        "--test=allocations",
        "--test=bad_input",
        "--test=collectives",
        "--test=exact",
        "--test=faults",
        "--test=kv",
        "--test=memlock",
        "--test=planted",
        "--test=ring_collectives",
        "--test=tcp",
        "--test=transfers",
    ],
    // Tests with no memory for the sanitizer to watch, each minutes long under it, and those that it cannot bear.
    left_out: &[
        // Forget a thread and memory, as a child does whose parent goes on using them.
        "what_a_forked_child_drops_",
        // Forgets the second of two panics, as the library does.
        "a_line_that_panics_costs_itself_alone",
        // Limit the address space, of which the sanitizer takes most, or take all mappings, of which it needs some.
        // The third leaks what cannot be given back.
        "a_requester_without_address_space_left_",
        "pages_that_cannot_be_put_back_",
        "what_is_dropped_on_shared_pages_",
        "a_process_without_mappings_left_",
        "no_mappings_left_to_map_a_peer",
        // Ends its peer by a signal, which is meant.
        "a_peer_that_unmaps_everything_that_it_shares_",
        // Arithmetic.
        "every_interleaving_of_small_",
        "every_element_is_reduced_",
        "every_element_comes_where_it_must_",
        "every_element_of_16_bits_with_every_special_one",
        // Steps, and how they go on in simulated memory and time.
        "collective::schedule::",
        // Runs the compiler.
        "misuse_does_not_compile",
    ],
    runs_programs: true,
    options: ("ASAN_OPTIONS", "detect_leaks=1:strict_string_checks=1"),
    suppressions: None,
};
