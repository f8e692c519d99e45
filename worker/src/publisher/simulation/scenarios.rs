//! Which schedules are tried. Each test names the rows of the table of faults that its schedules reach.

use super::{Hazards, Rule, breaks, explore};

const CALM: Hazards = Hazards {
    publisher_crash: 0.0,
    publisher_zombie: 0.0,
    worker_crash: 0.0,
    worker_zombie: 0.0,
    indexer_crash: 0.0,
    indexer_zombie: 0.0,
    rebalance: 0.0,
    timeout: 0.0,
    retry: 0.0,
    duplicate_event: 0.0,
    lose_event: false,
    hybrid: false,
    no_cursor: false,
    collapse: false,
    children: false,
    random_children: false,
    random_outcome: false,
    fails: false,
    drops: false,
    too_large: false,
    failed_send: 0.0,
    off: None,
};
/// Documents of all kinds.
const MIXED: Hazards = Hazards { children: true, fails: true, drops: true, retry: 0.1, ..CALM };
/// Everything goes wrong at once.
const STORM: Hazards = Hazards {
    publisher_crash: 0.01,
    publisher_zombie: 0.01,
    worker_crash: 0.01,
    worker_zombie: 0.01,
    indexer_crash: 0.01,
    indexer_zombie: 0.01,
    rebalance: 0.01,
    timeout: 0.1,
    duplicate_event: 0.1,
    too_large: true,
    failed_send: 0.01,
    ..MIXED
};

macro_rules! scenarios {
    ($($name:ident: $hazards:expr;)*) => {
        $(
            #[test]
            fn $name() {
                explore(stringify!($name), $hazards);
            }
        )*
    };
}

scenarios! {
    nothing_goes_wrong_but_duplicates: Hazards { duplicate_event: 0.1, ..MIXED };
    row_01_workers_and_indexers_crash: Hazards { worker_crash: 0.02, indexer_crash: 0.02, duplicate_event: 0.1, rebalance: 0.01, ..MIXED };
    row_01_pairs_crash: Hazards { hybrid: true, worker_crash: 0.02, duplicate_event: 0.1, rebalance: 0.01, ..MIXED };
    row_02_publishers_crash: Hazards { publisher_crash: 0.02, ..MIXED };
    row_02_publishers_crash_often: Hazards { publisher_crash: 0.05, ..MIXED };
    row_02_publishers_that_collapse_crash_p18: Hazards { publisher_crash: 0.02, collapse: true, ..CALM };
    row_03_publishers_without_a_cursor_crash: Hazards { publisher_crash: 0.015, no_cursor: true, children: true, ..CALM };
    row_04_publishers_that_fail_documents_crash: Hazards { publisher_crash: 0.02, too_large: true, ..CALM };
    row_04_publishers_that_fail_documents_become_zombies: Hazards { publisher_zombie: 0.02, too_large: true, ..MIXED };
    row_05_attempts_do_not_mix: Hazards { children: true, random_children: true, worker_crash: 0.03, indexer_crash: 0.01, rebalance: 0.01, ..CALM };
    row_05_attempts_of_pairs_do_not_mix: Hazards { hybrid: true, children: true, random_children: true, worker_crash: 0.03, rebalance: 0.01, ..CALM };
    row_05_outcomes_of_attempts_do_not_mix: Hazards { random_children: true, random_outcome: true, worker_crash: 0.03, indexer_crash: 0.01, rebalance: 0.01, ..CALM };
    row_06_publishers_become_zombies: Hazards { publisher_zombie: 0.02, publisher_crash: 0.005, ..CALM };
    row_07_workers_become_zombies: Hazards { worker_zombie: 0.02, worker_crash: 0.005, children: true, ..CALM };
    row_07_pairs_become_zombies: Hazards { hybrid: true, worker_zombie: 0.02, worker_crash: 0.005, children: true, ..CALM };
    row_08_publishers_become_zombies_and_workers_crash: Hazards { publisher_zombie: 0.02, worker_crash: 0.03, ..CALM };
    row_08_workers_become_zombies_and_indexers_crash: Hazards { worker_zombie: 0.03, indexer_crash: 0.03, ..CALM };
    row_09_publishers_follow_each_other_quickly: Hazards { publisher_zombie: 0.05, publisher_crash: 0.03, ..MIXED };
    row_10_indexers_become_zombies: Hazards { indexer_zombie: 0.02, indexer_crash: 0.005, children: true, ..CALM };
    row_10_requests_are_given_up_and_carried_out_late: Hazards { timeout: 0.3, retry: 0.1, ..CALM };
    row_11_partitions_change_hands_all_the_time: Hazards { rebalance: 0.08, worker_zombie: 0.005, indexer_zombie: 0.005, ..MIXED };
    row_15_publishers_become_zombies_when_all_is_done: Hazards { publisher_zombie: 0.04, drops: true, ..CALM };
    row_16_all_is_terminal_but_old_versions_are_written_again: Hazards { worker_crash: 0.05, worker_zombie: 0.02, ..CALM };
    row_17_many_operations_of_one_id_are_retried: Hazards { retry: 0.5, timeout: 0.1, ..CALM };
    row_18_a_lost_event_is_found_x5: Hazards { lose_event: true, children: true, worker_crash: 0.01, indexer_crash: 0.01, ..CALM };
    row_18_a_lost_event_of_a_pair_is_found_x5: Hazards { lose_event: true, hybrid: true, children: true, worker_crash: 0.01, ..CALM };
    row_19_sends_fail: Hazards { failed_send: 0.1, ..MIXED };
    row_19_sends_fail_while_workers_and_indexers_crash: Hazards { failed_send: 0.05, worker_crash: 0.02, indexer_crash: 0.02, rebalance: 0.01, ..MIXED };
    row_19_sends_of_pairs_fail: Hazards { hybrid: true, failed_send: 0.1, worker_crash: 0.01, rebalance: 0.01, ..MIXED };
    everything_goes_wrong: STORM;
    everything_goes_wrong_with_pairs: Hazards { hybrid: true, ..STORM };
    everything_goes_wrong_without_a_cursor: Hazards { no_cursor: true, timeout: 0.0, ..STORM };
    everything_goes_wrong_and_nothing_is_deterministic: Hazards { random_children: true, fails: false, drops: false, too_large: false, ..STORM };
    everything_goes_wrong_and_documents_collapse: Hazards { collapse: true, children: false, ..STORM };
}

macro_rules! broken_rules {
    ($($name:ident: $off:ident in $hazards:expr;)*) => {
        $(
            #[test]
            fn $name() {
                breaks(Rule::$off, $hazards);
            }
        )*
    };
}

broken_rules! {
    row_01_commits_that_overtake_show: Contiguous in Hazards { worker_crash: 0.03, indexer_crash: 0.03, ..MIXED };
    row_05_tenures_that_do_not_grow_show: TenureGrows in Hazards { children: true, random_children: true, worker_crash: 0.05, ..CALM };
    row_05_a_start_before_the_takeover_is_committed_shows: TakeoverFirst in Hazards { children: true, random_children: true, worker_crash: 0.05, rebalance: 0.02, ..CALM };
    row_06_ghosts_of_publishers_that_are_not_filtered_show: Filter in Hazards { publisher_zombie: 0.03, publisher_crash: 0.005, ..CALM };
    row_07_ghosts_of_workers_that_are_not_filtered_show: Filter in Hazards { worker_zombie: 0.03, worker_crash: 0.005, ..CALM };
    row_08_a_filter_that_dies_with_the_process_shows: FilterTravels in Hazards { worker_zombie: 0.03, indexer_crash: 0.04, ..CALM };
}
