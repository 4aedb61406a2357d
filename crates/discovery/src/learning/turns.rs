//! The times at which the learning task learns from new calls.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// The pace of a learning task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LearningPace {
    /// A turn every two seconds.
    #[default]
    Steady,
    /// A turn whenever a program asks for one, and at no other time.
    OnRequest,
}

/// The turns of a learning task. In each turn it learns from the calls that were recorded since the
/// turn before.
///
/// They are for programs that play sessions faster than real clients, and need the same result on
/// every machine: such a program decides after which sessions there is a turn.
#[derive(Debug, Default)]
pub struct LearningTurns {
    asked: watch::Sender<TurnRequests>,
    /// The number of the last turn that has ended.
    n_taken: watch::Sender<u64>,
}

/// The requests of programs.
#[derive(Clone, Copy, Debug, Default)]
struct TurnRequests {
    pace: LearningPace,
    /// The number of the last turn that was asked for.
    n_turns: u64,
}

impl LearningTurns {
    /// Creates the turns of a task, at this pace.
    #[must_use]
    pub fn at(pace: LearningPace) -> Self {
        let turns = Self::default();
        turns.set_pace(pace);
        turns
    }

    /// Changes the pace. The task takes a turn at once.
    pub fn set_pace(&self, pace: LearningPace) {
        self.asked.send_modify(|asked| asked.pace = pace);
    }

    /// Asks for a turn, and waits until it has ended. A turn in progress is not enough, because it
    /// may have read the calls already. Waits forever if the task has ended.
    pub async fn take(&self) {
        let mut turn = 0;
        self.asked.send_modify(|asked| {
            asked.n_turns += 1;
            turn = asked.n_turns;
        });
        let mut n_taken = self.n_taken.subscribe();
        // The sender lives as long as these turns, so this cannot fail.
        let _ = n_taken.wait_for(|n_taken| *n_taken >= turn).await;
    }

    /// Waits until a turn is due; a steady pace has one after `every`. Returns its number.
    pub(super) async fn next(&self, every: Duration) -> u64 {
        let mut asked = self.asked.subscribe();
        let (pace, n_taken) = (asked.borrow().pace, *self.n_taken.borrow());
        let is_due = |asked: &TurnRequests| asked.n_turns > n_taken || asked.pace != pace;
        match pace {
            LearningPace::Steady => {
                let _ = timeout(every, asked.wait_for(is_due)).await;
            }
            LearningPace::OnRequest => {
                let _ = asked.wait_for(is_due).await;
            }
        }
        self.asked.borrow().n_turns
    }

    /// Marks a turn as ended, with all before it.
    pub(super) fn end(&self, turn: u64) {
        self.n_taken
            .send_modify(|n_taken| *n_taken = turn.max(*n_taken));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::time::{Instant, sleep};

    use super::*;

    const EVERY: Duration = Duration::from_secs(2);

    /// Takes turns of a second each, and counts them.
    fn spawn_task(turns: &Arc<LearningTurns>) -> Arc<AtomicU64> {
        let (turns, count) = (Arc::clone(turns), Arc::new(AtomicU64::new(0)));
        let counted = Arc::clone(&count);
        tokio::spawn(async move {
            loop {
                let turn = turns.next(EVERY).await;
                sleep(Duration::from_secs(1)).await;
                counted.fetch_add(1, Ordering::SeqCst);
                turns.end(turn);
            }
        });
        count
    }

    #[tokio::test(start_paused = true)]
    async fn a_steady_task_needs_no_request() {
        let turns = Arc::new(LearningTurns::default());
        let count = spawn_task(&turns);
        sleep(Duration::from_millis(9_500)).await;
        assert_eq!(count.load(Ordering::SeqCst), 3);
        // The turn in progress, and another one at once.
        sleep(Duration::from_secs(2)).await;
        let asked_at = Instant::now();
        turns.take().await;
        assert!(asked_at.elapsed() < EVERY, "{:?}", asked_at.elapsed());
        assert_eq!(count.load(Ordering::SeqCst), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_on_request_takes_one_turn_for_each() {
        let turns = Arc::new(LearningTurns::at(LearningPace::OnRequest));
        let count = spawn_task(&turns);
        sleep(Duration::from_hours(1)).await;
        assert_eq!(count.load(Ordering::SeqCst), 0);
        for n in 1..=3 {
            turns.take().await;
            assert_eq!(count.load(Ordering::SeqCst), n);
            sleep(Duration::from_hours(1)).await;
        }
        assert_eq!(count.load(Ordering::SeqCst), 3);
        turns.set_pace(LearningPace::Steady);
        sleep(Duration::from_secs(30)).await;
        assert!(count.load(Ordering::SeqCst) > 10);
    }
}
