//! A cache of reports that read much stored data, so that several open pages cost one computation.

use std::hash::Hash;
use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;
use tokio::task::JoinError;
use tokio::time::Instant;

/// Maximum number of cached reports. The least recently used one is dropped.
const MAX_REPORTS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(15);

/// A report is kept at least this many times as long as its computation took, so that reports of a
/// large database cost at most a tenth of the time of one processor.
const MIN_AGE_PER_COMPUTATION: u32 = 9;

/// Reports by what they are about. One report is computed at a time.
#[derive(Debug)]
pub(super) struct ReportCache<K: Hash + Eq, T> {
    /// The time for which a report is kept.
    keep: Duration,
    reports: Arc<Mutex<CachedReports<K, T>>>,
    /// Held during a computation. Requests for a report that is not cached wait for it.
    computation_lock: Arc<tokio::sync::Mutex<()>>,
}

type CachedReports<K, T> = LruCache<K, CachedReport<T>>;

#[derive(Debug)]
struct CachedReport<T> {
    report: Arc<T>,
    valid_until: Instant,
}

impl<K, T> ReportCache<K, T>
where
    K: Hash + Eq + Send + 'static,
    T: Send + Sync + 'static,
{
    /// Returns an empty cache that keeps each report for this time.
    pub(super) fn new(keep: Duration) -> Self {
        Self {
            keep,
            reports: Arc::new(Mutex::new(LruCache::new(MAX_REPORTS))),
            computation_lock: Arc::default(),
        }
    }

    /// Returns the cached report, or the result of `computation`, which is polled only if there is
    /// none. If the request ends early, the computation goes on, so that a later request gets a
    /// report that takes longer than clients wait.
    ///
    /// # Errors
    ///
    /// Returns the error of the computation, which is not cached.
    pub(super) async fn get<E: Send + 'static>(
        &self,
        key: K,
        computation: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<Arc<T>, E> {
        if let Some(report) = self.valid_report(&key) {
            return Ok(report);
        }
        let computing = Arc::clone(&self.computation_lock).lock_owned().await;
        // The computation that this request waited for may have been the same one.
        if let Some(report) = self.valid_report(&key) {
            return Ok(report);
        }
        let (keep, reports) = (self.keep, Arc::clone(&self.reports));
        let running = tokio::spawn(async move {
            let began_at = Instant::now();
            let report = Arc::new(computation.await?);
            let ended_at = Instant::now();
            let took = ended_at.duration_since(began_at);
            let cached = CachedReport {
                report: Arc::clone(&report),
                valid_until: ended_at + took.saturating_mul(MIN_AGE_PER_COMPUTATION).max(keep),
            };
            reports.lock().put(key, cached);
            drop(computing);
            Ok(report)
        });
        match running.await.map_err(JoinError::try_into_panic) {
            Ok(result) => result,
            Err(Ok(panic)) => resume_unwind(panic),
            // The runtime ends, and this request with it.
            Err(Err(_)) => std::future::pending().await,
        }
    }

    fn valid_report(&self, key: &K) -> Option<Arc<T>> {
        let mut reports = self.reports.lock();
        let cached = reports.get(key)?;
        (Instant::now() < cached.valid_until).then(|| Arc::clone(&cached.report))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::future::join_all;

    use super::*;

    const KEEP: Duration = Duration::from_secs(5);

    /// Computes reports that are numbered from 1, and takes `takes` for each.
    struct Counter {
        n_computed: AtomicU32,
        n_at_once: AtomicU32,
        takes: Duration,
    }

    impl Counter {
        fn new(takes: Duration) -> Arc<Self> {
            Arc::new(Self {
                n_computed: AtomicU32::new(0),
                n_at_once: AtomicU32::new(0),
                takes,
            })
        }

        fn compute(self: &Arc<Self>) -> impl Future<Output = Result<u32, Infallible>> + use<> {
            let counter = Arc::clone(self);
            async move {
                let n_others = counter.n_at_once.fetch_add(1, Ordering::SeqCst);
                assert_eq!(n_others, 0, "two computations at the same time");
                tokio::time::sleep(counter.takes).await;
                counter.n_at_once.fetch_sub(1, Ordering::SeqCst);
                Ok(counter.n_computed.fetch_add(1, Ordering::SeqCst) + 1)
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_is_computed_again_when_its_time_is_over() {
        let cache = ReportCache::new(KEEP);
        let counter = Counter::new(Duration::ZERO);
        let get = async |days: u32| *cache.get(days, counter.compute()).await.unwrap();
        assert_eq!(get(1).await, 1);
        assert_eq!(get(2).await, 2);
        tokio::time::advance(KEEP.saturating_sub(Duration::from_millis(10))).await;
        assert_eq!(get(1).await, 1);
        tokio::time::advance(Duration::from_millis(10)).await;
        assert_eq!(get(1).await, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_at_the_same_time_cost_one_computation() {
        let cache = ReportCache::new(KEEP);
        let counter = Counter::new(Duration::from_millis(100));
        let same = join_all((0..5).map(|_| cache.get(1, counter.compute()))).await;
        assert!(same.into_iter().all(|report| *report.unwrap() == 1));
        // Different reports are computed one after the other.
        let different = join_all((10..13).map(|days| cache.get(days, counter.compute()))).await;
        let mut different: Vec<u32> = different.into_iter().map(|one| *one.unwrap()).collect();
        different.sort_unstable();
        assert_eq!(different, [2, 3, 4]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_report_is_kept_longer() {
        let cache = ReportCache::new(KEEP);
        let counter = Counter::new(Duration::from_secs(2));
        let get = async || *cache.get(1, counter.compute()).await.unwrap();
        assert_eq!(get().await, 1);
        tokio::time::advance(Duration::from_secs(17)).await;
        assert_eq!(get().await, 1);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(get().await, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn errors_are_not_cached() {
        let cache: ReportCache<u32, u32> = ReportCache::new(KEEP);
        let failed = cache.get(1, async { Err("unavailable") }).await;
        assert_eq!(failed.unwrap_err(), "unavailable");
        let next = cache.get(1, async { Ok::<u32, Infallible>(8) }).await;
        assert_eq!(*next.unwrap(), 8);
    }

    #[tokio::test(start_paused = true)]
    async fn a_computation_goes_on_without_its_request() {
        let cache: ReportCache<u32, u32> = ReportCache::new(KEEP);
        let slow = cache.get(1, async {
            tokio::time::sleep(KEEP).await;
            Ok::<u32, Infallible>(7)
        });
        let cancelled = tokio::time::timeout(Duration::from_millis(10), slow).await;
        assert!(cancelled.is_err());
        let next = cache.get(1, async { Ok::<u32, Infallible>(8) }).await;
        assert_eq!(*next.unwrap(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_reports_is_limited() {
        let cache = ReportCache::new(KEEP);
        for days in 0..1_000_u32 {
            let report = cache
                .get(days, async move { Ok::<u32, Infallible>(days) })
                .await;
            assert_eq!(*report.unwrap(), days);
        }
        assert_eq!(cache.reports.lock().len(), MAX_REPORTS.get());
    }
}
