//! Contract tests: the guarantees that every implementation of a port must fulfil, one function for
//! each guarantee ("clause").
//!
//! A crate with an implementation runs all clauses with one line, and a failure reads
//! `sqlite::the_first_end_of_a_call_stays`:
//!
//! ```ignore
//! riglm_ports::usage_store_contract!(sqlite, fresh_store());
//! ```
//!
//! Attributes before the name apply to every test: `#[ignore = "needs PostgreSQL"] postgres`. A
//! clause panics when an implementation violates it.
//!
//! # Examples
//!
//! ```
//! use std::future::ready;
//!
//! use riglm_ports::contract;
//! use riglm_ports::token_counter::TokenCounter;
//!
//! #[derive(Debug)]
//! struct Words;
//!
//! impl TokenCounter for Words {
//!     fn count(&self, text: &str) -> u64 {
//!         text.split_whitespace().count() as u64
//!     }
//! }
//!
//! // Expands to a module `words` with a `tokio::test` for each clause.
//! riglm_ports::token_counter_contract!(words, ready(Box::new(Words)));
//!
//! // A clause is a function too.
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! contract::token_counter::a_text_of_words_has_tokens(&Words).await;
//! # }
//! ```
#![expect(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a clause that is not kept fails the test that runs it"
)]
#![expect(
    clippy::unused_async,
    reason = "all clauses are called alike, those that wait for nothing too"
)]

pub mod assignments;
pub mod audit;
pub mod authenticator;
pub mod changes;
pub mod client_data;
pub mod clock;
pub mod concurrency;
pub mod contexts;
pub mod counting;
pub mod downstream;
pub mod embeddings;
pub mod encoder;
pub mod exchanges;
pub mod experiments;
pub mod feedback;
pub mod invocations;
pub mod journal;
pub mod list_activities;
pub mod list_epochs;
pub mod list_policy;
pub mod lists_shown;
pub mod maintenance;
pub mod model_call;
pub mod observer;
pub mod overrides;
pub mod pairs;
pub mod predictor;
pub mod query_expander;
pub mod recommendations;
pub mod records;
pub mod reranker;
pub mod scene;
pub mod searches;
pub mod server_memories;
pub mod sessions;
pub mod snapshots;
pub mod token_counter;
pub mod tool_approvals;
pub mod tool_definitions;
pub mod tracer;
pub mod upstream;
pub mod usage;
pub mod weights;
pub mod work_sessions;

use std::time::Duration;

use crate::analytics::{
    AuditTrail, ChangeFeed, ClientData, DiscoveryRepository, EmbeddingRepository,
    ExperimentRepository, InvocationRepository, ListEpochRepository, ListRepository, Maintenance,
    OverrideRepository, RecordSink, ServerMemoryRepository, SessionRepository, SnapshotRepository,
    ToolApprovalRepository, ToolDefinitionRepository, UsageRepository, WeightRepository,
    WorkSessionRepository,
};

/// The deadline of everything that a clause waits for.
const DEADLINE: Duration = Duration::from_secs(20);

/// Waits for a future, for at most 20 s.
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(DEADLINE, future).await;
    waited.expect("it has not happened within 20 s")
}

/// Waits until `find` returns a value, for at most 20 s.
pub async fn until<T>(mut find: impl FnMut() -> Option<T>) -> T {
    let searching = async {
        loop {
            if let Some(found) = find() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    within(searching).await
}

/// Expands to one test for each clause of a suite. The macros of the suites use it.
///
/// `$fresh` is evaluated for each test. It returns a future of a value that dereferences to the
/// subject of the suite.
#[doc(hidden)]
#[macro_export]
macro_rules! contract_clauses {
    ($suite:ident $attributes:tt $fresh:expr; $($clause:ident,)*) => {
        $($crate::contract_clauses!(@clause $suite $attributes $fresh; $clause);)*
    };
    (@clause $suite:ident [$($attribute:tt)*] $fresh:expr; $clause:ident) => {
        #[tokio::test]
        $($attribute)*
        async fn $clause() {
            let subject = $fresh.await;
            $crate::contract::$suite::$clause(&*subject).await;
        }
    };
}

/// Declares a trait that stands for several traits.
macro_rules! all_of {
    ($(#[$doc:meta])* $name:ident: $first:ident $(+ $rest:ident)*) => {
        $(#[$doc])*
        pub trait $name: $first $(+ $rest)* {}

        impl<S: $first $(+ $rest)*> $name for S {}
    };
}

all_of! {
    /// A usage store: applies records, answers queries about them, and stores decisions and learned
    /// state.
    UsageStore: RecordSink
        + SessionRepository
        + InvocationRepository
        + UsageRepository
        + ToolDefinitionRepository
        + ListRepository
        + DiscoveryRepository
        + OverrideRepository
        + ToolApprovalRepository
        + ServerMemoryRepository
        + AuditTrail
        + EmbeddingRepository
        + ExperimentRepository
        + WeightRepository
        + SnapshotRepository
        + WorkSessionRepository
        + ListEpochRepository
        + ChangeFeed
        + Maintenance
        + ClientData
}

/// Expands to a module with one `tokio::test` for each clause of the usage store.
///
/// `$fresh` is evaluated and awaited for each test. It returns a value that dereferences to an
/// empty store and owns everything that the store needs.
#[macro_export]
macro_rules! usage_store_contract {
    ($(#[$attribute:meta])* $module:ident, $fresh:expr) => {
        mod $module {
            use super::*;

            $crate::usage_store_contract!(@clauses [$(#[$attribute])*] $fresh;
                records: [
                    the_records_of_a_call_become_visible_together,
                    applying_again_changes_nothing,
                    the_first_end_of_a_call_stays,
                    any_other_outcome_replaces_unknown,
                    unknown_replaces_no_outcome,
                    a_lost_run_closes_every_open_call_of_its_sessions,
                    a_lost_run_ends_its_open_sessions,
                    a_lost_run_leaves_other_runs_alone,
                    what_follows_a_lost_run_in_its_batch_is_applied_after_it,
                    no_records_are_applied_without_effect,
                    an_end_before_its_beginning_makes_no_row,
                    the_first_end_of_a_session_stays,
                    times_are_kept_to_the_microsecond,
                    the_largest_numbers_are_kept_as_far_as_they_fit,
                ]
                sessions: [
                    a_session_is_read_as_it_was_recorded,
                    any_texts_of_a_session_survive,
                    the_first_record_of_a_session_stays,
                    clients_are_found_by_name_and_by_hash,
                    the_newest_sessions_come_oldest_first,
                    pages_of_sessions_join_to_all,
                    sessions_are_found_by_state_and_identifier,
                    calls_are_counted_as_far_as_is_wanted,
                    sessions_of_one_moment_are_ordered_by_identifier,
                    a_session_counts_the_calls_whose_beginning_is_recorded,
                    a_session_has_the_tools_of_every_page_listed_to_it,
                ]
                invocations: [
                    a_call_is_read_as_it_was_recorded,
                    a_call_in_flight_has_no_end,
                    the_calls_after_contexts_come_oldest_first,
                    the_newest_calls_of_a_work_session_come_oldest_first,
                    the_first_count_of_tokens_stays,
                    tokens_of_an_unknown_call_make_no_row,
                    a_call_before_1970_is_read_as_it_was_recorded,
                    the_newest_calls_come_oldest_first,
                    calls_are_ordered_by_identifier_whatever_their_start,
                    the_history_is_read_page_by_page,
                    the_history_of_a_principal_has_only_its_calls,
                    a_past_call_has_the_client_of_its_session,
                    only_calls_that_fit_are_read_and_counted,
                    calls_are_told_apart_by_upstream_moment_and_state,
                    calls_are_found_by_identifier,
                    the_last_calls_of_tools_are_those_with_the_newest_identifier,
                    any_name_of_a_tool_survives,
                ]
                exchanges: [
                    an_exchange_is_read_as_it_was_recorded,
                    any_texts_of_an_exchange_survive,
                    the_newest_exchanges_of_a_session_come_oldest_first,
                    exchanges_of_one_moment_are_ordered_by_identifier,
                ]
                usage: [
                    a_record_counts_as_soon_as_it_is_a_row,
                    without_calls_there_are_no_counts,
                    a_repeated_record_counts_once,
                    rounds_that_continue_a_call_are_not_counted,
                    a_scope_is_one_principal,
                    an_answer_is_about_the_named_tools,
                    since_means_the_beginning_of_its_hour,
                    the_most_frequent_tool_comes_first,
                    other_answers_are_ordered_by_upstream_and_name,
                    tools_of_different_upstreams_are_different,
                    statistics_have_outcomes_and_durations,
                    an_outcome_is_counted_in_place_of_unknown,
                    calls_of_a_lost_run_are_counted_as_unknown,
                    calls_of_an_unrecorded_session_are_counted,
                ]
                pairs: [
                    a_session_counts_once,
                    a_pair_has_a_mean_distance_and_a_moment,
                    the_first_use_is_the_one_with_the_lowest_position,
                    of_a_session_with_very_many_tools_the_first_are_known,
                    a_call_follows_the_one_at_the_position_before,
                ]
                counting: [
                    incremental_counts_agree_with_counts_of_all_rows,
                    counts_agree_after_a_purge_in_small_steps,
                    counts_agree_after_a_client_is_removed,
                    rebuilt_counts_are_the_same,
                    the_integrity_check_finds_nothing_after_changes,
                ]
                tool_definitions: [
                    a_definition_is_read_as_it_was_recorded,
                    a_definition_seen_again_has_one_row,
                    a_definition_that_changed_has_another_row,
                    the_first_text_of_a_definition_stays,
                    a_tool_is_seen_once,
                    definitions_are_ordered,
                    only_definitions_of_the_upstream_are_read,
                ]
                lists_shown: [
                    a_list_is_read_as_it_was_shown,
                    how_a_list_was_chosen_is_read,
                    the_expected_coverage_of_a_list_is_read,
                    the_newest_lists_of_a_session_come_oldest_first,
                    of_one_moment_the_first_list_is_kept,
                ]
                list_activities: [
                    the_activity_of_a_session_is_read,
                    the_newest_of_each_kind_are_read,
                    a_work_session_is_read_over_its_connections,
                    a_work_session_without_calls_did_nothing,
                    the_work_sessions_of_a_session_are_those_of_its_calls,
                    the_newest_work_sessions_name_the_session_of_their_newest_call,
                    the_newest_sessions_open_since_a_moment_come_oldest_first,
                ]
                searches: [
                    a_search_is_read_as_it_was_recorded,
                    the_newest_searches_come_oldest_first,
                    the_first_record_of_a_search_stays,
                ]
                contexts: [
                    a_context_is_read_as_it_was_recorded,
                    the_newest_contexts_come_oldest_first,
                    the_newest_contexts_of_a_principal_come_oldest_first,
                    contexts_are_read_by_identifier,
                    the_first_record_of_a_context_stays,
                ]
                recommendations: [
                    a_recommendation_is_read_as_it_was_recorded,
                    an_unknown_recommendation_is_none,
                    the_newest_recommendations_come_oldest_first,
                    the_first_record_of_a_recommendation_stays,
                ]
                feedback: [
                    feedback_is_read_as_it_was_given,
                    the_newest_feedback_comes_oldest_first,
                    only_feedback_on_the_tool_is_read,
                    only_feedback_of_the_principal_is_read,
                    the_first_record_of_feedback_stays,
                ]
                overrides: [
                    an_override_is_read_as_it_was_set,
                    one_for_the_same_tool_and_scope_is_replaced,
                    an_override_that_is_set_again_is_there_once,
                    a_removed_override_is_gone,
                    only_overrides_that_hold_are_read,
                    every_change_of_overrides_has_its_entry,
                    removing_no_override_writes_nothing,
                ]
                tool_approvals: [
                    an_approval_is_read_as_it_was_given,
                    a_first_list_is_approved_once,
                    a_later_approval_replaces_the_earlier_one,
                    approvals_of_an_upstream_are_its_own,
                    every_decided_approval_has_its_entry,
                ]
                server_memories: [
                    a_memory_is_read_as_it_was_learned,
                    a_later_memory_replaces_the_earlier_one,
                    memories_are_those_of_the_named_upstreams,
                    the_newest_memories_of_an_upstream_are_kept,
                    a_memory_that_is_too_large_is_forgotten,
                ]
                audit: [
                    an_entry_is_read_as_it_was_added,
                    an_entry_is_never_changed,
                    the_newest_entries_come_oldest_first,
                    entries_before_one_have_a_smaller_identifier,
                ]
                embeddings: [
                    a_vector_is_read_as_it_was_stored,
                    a_later_vector_replaces_the_earlier_one,
                    vectors_of_different_models_are_kept_apart,
                    vectors_that_are_not_there_are_left_out,
                    a_forgotten_model_has_no_vectors,
                ]
                assignments: [
                    a_subject_is_assigned_to_the_proposed_arm,
                    a_subject_keeps_its_arm,
                    assignments_are_ordered_by_subject,
                ]
                experiments: [
                    a_stop_is_read_as_it_was_made,
                    an_experiment_is_stopped_once,
                    every_stop_has_its_entry,
                    outcomes_are_those_of_the_experiment,
                    a_selection_and_its_call_are_an_outcome,
                    the_oldest_outcomes_come_first,
                    calls_of_assigned_principals_are_trials,
                    calls_of_assigned_work_sessions_are_trials,
                    first_calls_that_lists_had_are_covered,
                ]
                weights: [
                    a_version_that_is_added_is_used,
                    each_ranking_has_versions_of_its_own,
                    a_version_that_does_not_follow_is_refused,
                    an_existing_version_can_be_used_again,
                    an_unknown_version_writes_nothing,
                    every_change_of_weights_has_its_entry,
                    the_newest_versions_come_oldest_first,
                ]
                snapshots: [
                    the_newest_snapshot_is_read_as_it_was_saved,
                    a_large_snapshot_survives,
                    each_model_has_snapshots_of_its_own,
                    a_snapshot_that_does_not_follow_is_refused,
                    deleted_snapshots_are_reported,
                ]
                work_sessions: [
                    a_request_begins_a_work_session,
                    an_unknown_work_session_is_none,
                    a_request_within_the_gap_goes_on,
                    a_request_after_the_gap_begins_another,
                    a_long_work_session_may_be_silent_for_longer,
                    an_earlier_request_goes_on_too,
                    the_newest_work_session_goes_on,
                    other_keys_have_other_work_sessions,
                    a_candidate_resolved_again_gets_itself,
                    the_newest_work_sessions_come_oldest_first,
                ]
                list_epochs: [
                    an_epoch_that_begins_holds,
                    the_size_choice_of_an_epoch_is_read,
                    the_expected_coverage_of_an_epoch_is_read,
                    each_scope_has_epochs_of_its_own,
                    an_epoch_keeps_the_tools_of_its_beginning,
                    only_the_next_epoch_begins,
                    the_first_epoch_is_one,
                ]
                changes: [
                    topics_that_were_never_changed_have_number_zero,
                    each_change_makes_the_number_of_its_topic_higher,
                    removing_a_client_with_overrides_is_a_change,
                    removing_a_client_with_epochs_is_a_change,
                ]
                maintenance: [
                    counts_are_rebuilt_from_the_rows,
                    records_that_arrive_during_a_rebuild_are_counted,
                    a_purge_removes_what_is_older,
                    a_purge_removes_old_snapshots,
                    a_purge_of_nothing_is_done_at_once,
                    a_purge_goes_from_the_oldest_on,
                    what_purged_calls_contributed_goes_with_them,
                    what_a_session_used_outlives_its_calls,
                    what_an_unrecorded_session_used_goes_with_its_calls,
                    sessions_go_when_they_are_over,
                    rows_of_a_session_are_deleted_with_it,
                    a_call_in_flight_goes_like_any_other,
                    rows_of_no_session_stay,
                    epochs_of_work_sessions_grow_old,
                    sets_of_tools_stay_as_long_as_they_are_needed,
                    a_sound_store_has_no_findings,
                    a_task_has_one_holder_at_a_time,
                    a_task_is_free_when_its_guard_is_dropped,
                ]
                client_data: [
                    all_rows_of_a_client_are_exported,
                    rows_have_their_columns,
                    clients_are_found_by_their_own_name,
                    an_unknown_client_has_nothing,
                    an_export_ends_when_its_receiver_stops,
                    all_rows_of_a_removed_client_are_gone,
                    other_clients_keep_their_rows,
                    snapshots_of_a_removed_client_are_deleted,
                    a_client_without_sessions_has_its_other_rows,
                    recommendations_and_feedback_belong_to_the_client_of_their_work_session,
                ]
                concurrency: [
                    records_of_several_writers_are_all_applied,
                    the_same_records_applied_at_once_are_there_once,
                    one_of_several_ends_at_once_stays,
                    all_agree_on_an_epoch_begun_at_once,
                    all_agree_on_an_assignment_at_once,
                    all_agree_on_a_work_session_at_once,
                    one_adds_a_version_of_weights_at_once,
                    one_saves_a_version_of_a_snapshot_at_once,
                    one_of_several_overrides_at_once_is_left,
                    one_of_several_memories_at_once_stays,
                    one_of_several_gets_a_task,
                    records_applied_during_a_purge_are_all_stored,
                ]
            );
        }
    };
    (@clauses $attributes:tt $fresh:expr; $($group:ident: [$($clause:ident,)*])*) => {
        $($(
            $crate::usage_store_contract!(@clause $attributes $fresh; $group $clause);
        )*)*
    };
    (@clause [$(#[$attribute:meta])*] $fresh:expr; $group:ident $clause:ident) => {
        #[tokio::test]
        $(#[$attribute])*
        async fn $clause() {
            let store = $fresh.await;
            $crate::contract::$group::$clause(&*store).await;
        }
    };
}

/// Expands to a module with one `tokio::test` for each clause of an encoder.
///
/// `$fresh` is evaluated and awaited for each test. It returns a value that dereferences to an
/// encoder, which may be the same for all tests.
#[macro_export]
macro_rules! encoder_contract {
    ($(#[$attribute:meta])* $module:ident, $fresh:expr) => {
        mod $module {
            use super::*;

            $crate::encoder_contract!(@clauses [$(#[$attribute])*] $fresh; [
                vectors_are_finite_and_have_length_one,
                all_vectors_have_the_same_dimension,
                each_text_has_one_vector_in_order,
                no_texts_have_no_vectors,
                a_text_has_the_same_vector_in_any_batch,
                the_empty_text_has_a_vector,
                a_text_of_a_megabyte_has_a_vector,
                text_beyond_the_model_limit_has_no_effect,
                texts_of_any_script_have_vectors,
                calls_at_the_same_time_get_their_own_vectors,
                a_dropped_call_leaves_others_alone,
                related_texts_are_nearer_than_unrelated_ones,
                an_encoder_keeps_its_name,
            ]);
        }
    };
    (@clauses $attributes:tt $fresh:expr; [$($clause:ident,)*]) => {
        $($crate::encoder_contract!(@clause $attributes $fresh; $clause);)*
    };
    (@clause [$(#[$attribute:meta])*] $fresh:expr; $clause:ident) => {
        #[tokio::test]
        $(#[$attribute])*
        async fn $clause() {
            let encoder = $fresh.await;
            $crate::contract::encoder::$clause(&*encoder).await;
        }
    };
}

/// Expands to a module with one `tokio::test` for each clause of a re-ranker.
///
/// `$fresh` is evaluated and awaited for each test. It returns a value that dereferences to a
/// re-ranker, whose model answers with an order.
#[macro_export]
macro_rules! reranker_contract {
    ($module:ident, $fresh:expr) => {
        mod $module {
            use super::*;

            $crate::reranker_contract!(@clauses $fresh; [
                an_order_names_tools_of_the_catalog_and_each_once,
                nothing_is_put_in_order_without_asking,
                calls_at_the_same_time_get_their_own_orders,
                a_dropped_call_leaves_others_alone,
            ]);
        }
    };
    (@clauses $fresh:expr; [$($clause:ident,)*]) => {
        $(
            #[tokio::test]
            async fn $clause() {
                let reranker = $fresh.await;
                $crate::contract::reranker::$clause(&*reranker).await;
            }
        )*
    };
}

/// Expands to a module with one test for each clause of a predictor that learns.
///
/// `$make` is a `&dyn Fn() -> Box<dyn Learner>` that creates a predictor without learned state.
#[macro_export]
macro_rules! predictor_contract {
    ($module:ident, $make:expr) => {
        mod $module {
            use super::*;

            $crate::predictor_contract!(@clauses $make; [
                probabilities_sum_to_one,
                predicting_changes_nothing,
                learning_goes_on_after_a_restart,
                a_bad_snapshot_is_refused,
            ]);
        }
    };
    (@clauses $make:expr; [$($clause:ident,)*]) => {
        $(
            #[test]
            fn $clause() {
                $crate::contract::predictor::$clause($make);
            }
        )*
    };
}

/// Expands to a module with one test for each clause of an external predictor
/// ([`conformance`](crate::external_predictor::conformance)).
///
/// `$fresh` is a future of a `Box<dyn ExternalPredictor>`.
#[macro_export]
macro_rules! external_predictor_contract {
    ($(#[$attribute:meta])* $module:ident, $fresh:expr) => {
        mod $module {
            use super::*;

            $crate::external_predictor_contract!(@clauses [$(#[$attribute])*] $fresh; [
                each_tool_has_a_score: EachToolHasAScore,
                equal_requests_get_equal_scores: EqualRequestsGetEqualScores,
                a_request_without_tools_gets_no_scores: ARequestWithoutToolsGetsNoScores,
                requests_at_the_same_time_get_their_own_scores: RequestsAtTheSameTimeGetTheirOwnScores,
                any_names_are_accepted: AnyNamesAreAccepted,
                any_counts_are_accepted: AnyCountsAreAccepted,
                the_largest_request_gets_its_scores: TheLargestRequestGetsItsScores,
                a_dropped_request_disturbs_no_other: ADroppedRequestDisturbsNoOther,
            ]);
        }
    };
    (@clauses $attributes:tt $fresh:expr; [$($clause:ident: $variant:ident,)*]) => {
        $($crate::external_predictor_contract!(@clause $attributes $fresh; $clause: $variant);)*
    };
    (@clause [$(#[$attribute:meta])*] $fresh:expr; $clause:ident: $variant:ident) => {
        #[tokio::test]
        $(#[$attribute])*
        async fn $clause() {
            let predictor = $fresh.await;
            let clause = $crate::external_predictor::conformance::Clause::$variant;
            clause.check(&*predictor).await.unwrap();
        }
    };
}
