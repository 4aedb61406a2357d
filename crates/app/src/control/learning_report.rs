//! The learning report: how the lists of sessions did, day by day.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::Offset;
use riglm_domain::selection::account::{Calibration, ListSummary, PolicySummary};
use riglm_domain::selection::economics::CostModel;
use riglm_ports::analytics::StoreError;

use super::current_filtering::CurrentFiltering;
use super::list_accounts::RecentSession;
use super::queries::Queries;
use super::report_cache::ReportCache;

/// Maximum number of connections, and of work sessions, in a report: the newest ones.
const MAX_SESSIONS: u32 = 2_000;

/// The time for which a report is kept.
const KEEP: Duration = Duration::from_secs(30);

/// The results of the lists of a period, day by day.
#[derive(Clone, Debug, PartialEq)]
pub struct LearningReport {
    /// The start of the period.
    pub since: Timestamp,
    /// The days with sessions, oldest first.
    pub days: Vec<LearningDay>,
    /// Sums over all sessions.
    pub total: PolicySummary,
    /// The calls under lists with an expected coverage, in all sessions.
    pub calibration: Calibration,
    /// The prices of the costs.
    pub prices: CostModel,
    /// Whether older sessions of the period were left out.
    pub is_cut: bool,
}

/// The sessions of one day.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearningDay {
    /// The day in UTC on which the sessions were first used, or listed if they were not used.
    pub day: Date,
    /// Sums over the sessions.
    pub summary: PolicySummary,
}

/// Makes learning reports. They are cached for half a minute.
#[derive(Debug)]
pub struct LearningReports {
    queries: Arc<Queries>,
    filtering: CurrentFiltering,
    reports: ReportCache<u32, LearningReport>,
}

impl LearningReports {
    /// Creates the service over recorded data, with the prices of these options.
    #[must_use]
    pub fn new(queries: Arc<Queries>, filtering: CurrentFiltering) -> Self {
        Self {
            queries,
            filtering,
            reports: ReportCache::new(KEEP),
        }
    }

    /// Returns the report on the last `days`. It covers the newest 2,000 connections and the newest
    /// 2,000 work sessions.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub async fn report(&self, days: u32) -> Result<Arc<LearningReport>, StoreError> {
        let prices = self.filtering.prices();
        let computation = report_on_learning(Arc::clone(&self.queries), days, prices);
        self.reports.get(days, computation).await
    }
}

async fn report_on_learning(
    queries: Arc<Queries>,
    days: u32,
    prices: CostModel,
) -> Result<LearningReport, StoreError> {
    let since = queries.start_of_period(days);
    let recent = (queries.recent_sessions(since, MAX_SESSIONS, &prices)).await?;
    let mut total = ListSummary::default();
    let mut by_day: BTreeMap<Date, ListSummary> = BTreeMap::new();
    let mut calibration = Calibration::default();
    for RecentSession {
        began_at, lists, ..
    } in &recent.sessions
    {
        let day = Offset::UTC.to_datetime(*began_at).date();
        for sums in [&mut total, by_day.entry(day).or_default()] {
            sums.add(&lists.policy, None, &lists.account);
        }
        calibration.add(&lists.calibration);
    }
    let days = by_day.into_iter().map(|(day, sums)| LearningDay {
        day,
        summary: sums.all,
    });
    Ok(LearningReport {
        since,
        days: days.collect(),
        total: total.all,
        calibration,
        prices,
        is_cut: recent.is_cut,
    })
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use riglm_domain::id::WorkSessionId;
    use riglm_domain::selection::ExpectedCoverage;
    use riglm_domain::usage::invocation::{Invocation, ToolSource};
    use riglm_domain::usage::record::Record;
    use riglm_ports::analytics::RecordSink as _;
    use riglm_ports::contract::scene::{call, moment, run, session};
    use riglm_ports::fake::{ManualClock, MemoryStore};
    use serde_json::json;

    use super::super::current_filtering::tests::EffectiveValues;
    use super::super::list_accounts::tests::{TestSession, use_tools};
    use super::super::queries::full_hour;
    use super::*;
    use crate::selection::FilteringConfig;

    struct Scene {
        store: Arc<MemoryStore>,
        settings: Arc<EffectiveValues>,
        reports: LearningReports,
    }

    /// Returns an empty store, two days after the start of the scene.
    fn scene() -> Scene {
        let store = Arc::new(MemoryStore::default());
        let now = moment(0) + SignedDuration::from_hours(48);
        let clock = Arc::new(ManualClock::at(now));
        let queries = Arc::new(Queries::new(store.clone(), clock));
        let settings = Arc::new(EffectiveValues::default());
        let filtering = CurrentFiltering::new(FilteringConfig::default(), Some(settings.clone()));
        Scene {
            store,
            settings,
            reports: LearningReports::new(queries, filtering),
        }
    }

    fn later(hours: i64) -> SignedDuration {
        SignedDuration::from_hours(hours)
    }

    #[tokio::test]
    async fn sessions_are_summed_by_the_day_in_utc() {
        let scene = scene();
        // The scene begins at 8:00 UTC.
        for (n, hours) in [(10, 0), (20, 15), (30, 16), (40, 40)] {
            let session = TestSession::new(n).later(later(hours));
            use_tools(&scene.store, &session).await;
        }
        let report = scene.reports.report(30).await.unwrap();
        let days: Vec<(String, u64)> = (report.days.iter())
            .map(|day| (day.day.to_string(), day.summary.sessions))
            .collect();
        let expected = [("2027-01-15", 2), ("2027-01-16", 1), ("2027-01-17", 1)];
        assert_eq!(days, expected.map(|(day, n)| (day.to_owned(), n)));
        let total = &report.total;
        assert_eq!(total.sessions, 4);
        assert_eq!((total.total.searches, total.total.tool_misses), (4, 4));
        assert_eq!(total.total.available_tools, 4 * 700);
        let saved = report.days.iter().map(|day| day.summary.total.tokens_saved);
        assert_eq!(saved.sum::<i64>(), total.total.tokens_saved);
        assert!(total.total.tokens_saved > 0);
        assert!(!report.is_cut);
    }

    #[tokio::test]
    async fn a_period_has_only_its_own_sessions() {
        let scene = scene();
        assert!(scene.reports.report(1).await.unwrap().days.is_empty());
        for (n, hours) in [(10, 0), (20, 23), (30, 25)] {
            let session = TestSession::new(n).later(later(hours));
            use_tools(&scene.store, &session).await;
        }
        let report = scene.reports.report(2).await.unwrap();
        // The session of the first moment is as old as the period.
        assert_eq!(report.since, full_hour(moment(0)));
        assert_eq!(report.total.sessions, 3);
        // The report on one day is still the empty one, and does not know the new sessions.
        assert_eq!(scene.reports.report(1).await.unwrap().total.sessions, 0);
    }

    #[tokio::test]
    async fn a_work_session_counts_on_the_day_of_its_first_use() {
        let scene = scene();
        // The client got its list on the first day, and calls on the second.
        let work_session = WorkSessionId::new(moment(0), [1; 10]);
        let session = TestSession {
            work_session: Some(work_session),
            ..TestSession::new(10)
        };
        let [opened, list, ..] = session.records();
        let [.., call] = session.later(later(24)).records();
        scene.store.apply(&[opened, list, call]).await.unwrap();
        let report = scene.reports.report(30).await.unwrap();
        let days: Vec<String> = (report.days.iter())
            .map(|day| day.day.to_string())
            .collect();
        assert_eq!(days, ["2027-01-16"]);
    }

    #[tokio::test]
    async fn expected_and_actual_coverage_are_compared_over_all_sessions() {
        let scene = scene();
        let empty = scene.reports.report(1).await.unwrap();
        assert_eq!(empty.calibration, Calibration::default());
        // The call of each of these sessions is of a tool that its list does not have.
        for (n, expected) in [
            (10, Some(0.95)),
            (20, Some(0.9)),
            (30, Some(0.25)),
            (40, None),
        ] {
            let mut records = TestSession::new(n).records();
            if let [_, Record::ListShown(list), ..] = &mut records
                && let Some(selection) = &mut list.selection
            {
                selection.expected_coverage =
                    expected.and_then(|share: f64| ExpectedCoverage::try_from(share).ok());
            }
            scene.store.apply(&records).await.unwrap();
        }
        let listed = Invocation {
            source: ToolSource::Shown,
            work_session: None,
            ..call(session(run(1), 10).id, 15)
        };
        scene
            .store
            .apply(&[Record::CallOpened(listed)])
            .await
            .unwrap();
        let report = scene.reports.report(30).await.unwrap();
        let bins = report.calibration.bins();
        let numbers: Vec<_> = bins.iter().map(|bin| (bin.lists, bin.calls)).collect();
        let mut expected = vec![(0, 0); 10];
        expected[2] = (1, 1);
        expected[9] = (2, 3);
        assert_eq!(numbers, expected);
        assert_eq!(bins[9].covered_calls, 1);
        let total = report.calibration.total();
        assert_eq!(
            (total.lists, total.calls, total.actual_share()),
            (3, 4, Some(0.25))
        );
        assert!((total.expected_share().unwrap() - (2.0 * 0.95 + 0.9 + 0.25) / 4.0).abs() < 1e-9);
    }

    #[tokio::test(start_paused = true)]
    async fn changed_prices_appear_when_the_cached_report_is_over() {
        let scene = scene();
        use_tools(&scene.store, &TestSession::new(10)).await;
        let first = scene.reports.report(30).await.unwrap();
        let costs = json!({"filtering": {"costs": {"cached_read": 0.0}}});
        scene.settings.set(costs);
        assert!(Arc::ptr_eq(
            &first,
            &scene.reports.report(30).await.unwrap()
        ));
        tokio::time::advance(KEEP).await;
        let second = scene.reports.report(30).await.unwrap();
        assert_eq!(
            (first.prices.cached_read, second.prices.cached_read),
            (0.1, 0.0)
        );
        let avoided = |report: &LearningReport| report.total.total.cost_avoided;
        assert!(avoided(&first) > avoided(&second));
    }
}
