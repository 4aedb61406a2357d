//! The pool of the processes of one upstream: each is started once, and handed over as long as it is
//! clean.
//!
//! A connection takes a process with its first message, because only this message tells which
//! processes fit. A closed connection gives a clean process back, and the next connection takes it.
//! A process that got a call that may change something, or has asked something, ends with its
//! connection. The pool keeps at most one process that no connection uses. While several connections
//! make calls, it starts that process ahead (`spare`).

mod process;

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::internal_id::InternalRequest;
use riglm_domain::mcp::message::Message;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::upstream::{SendOutcome, UpstreamConnector, UpstreamError, UpstreamLink};
use tokio::sync::{OwnedMutexGuard, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::stdio::StartTime;
use super::{Connector, Events, Link};
use process::{
    Fit, Holder, Process, ProcessEvents, ProcessOwner, Purpose, ReadOnlyTools, link_closed,
};

/// The time in which a process must answer the handshake of another connection.
const HANDSHAKE_AGAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// The time after its first answer in which the process of a health check is expected back.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// The properties of a pool.
#[derive(Debug)]
pub struct PoolOptions {
    /// The time for which a process without a connection is kept, and for which a call counts as
    /// recent.
    pub idle_timeout: Duration,
    /// The number of processes above which none is kept or started ahead.
    pub max_processes: usize,
    /// Whether a process is started ahead while several connections make calls.
    pub spare: bool,
    /// The time of a process for its first answer.
    pub start_time: Arc<StartTime>,
}

/// A connector whose connections use the processes of another connector one after the other.
#[derive(Debug)]
pub struct PooledConnector {
    pool: Arc<Pool>,
}

impl PooledConnector {
    /// Returns a connector that starts its processes with `inner`.
    #[must_use]
    pub fn new(inner: Connector, options: PoolOptions) -> Self {
        let pool = Pool {
            inner,
            options,
            state: Mutex::default(),
            live: watch::Sender::new(0),
            read_only: Arc::default(),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
        };
        Self {
            pool: Arc::new(pool),
        }
    }

    /// Ends the processes that no connection uses, and waits for the end of all whose connections
    /// are closed. Call it when all connections are closed.
    pub async fn close(&self) {
        self.pool.closing.cancel();
        self.pool.tasks.close();
        self.pool.tasks.wait().await;
    }
}

impl Drop for PooledConnector {
    fn drop(&mut self) {
        self.pool.closing.cancel();
    }
}

#[async_trait]
impl UpstreamConnector for PooledConnector {
    fn name(&self) -> &UpstreamName {
        self.pool.inner.name()
    }

    /// Starts nothing: the first message does.
    async fn connect(&self, principal: &Principal, events: Events) -> Result<Link, UpstreamError> {
        let left = CancellationToken::new();
        let client = PoolClient {
            pool: Arc::clone(&self.pool),
            principal: principal.clone(),
            left: left.clone(),
            seat: Mutex::new(PoolSeat {
                holder: Some(Arc::new(Holder {
                    events,
                    left: left.clone(),
                })),
                process: None,
                is_settled: false,
            }),
            turn: Arc::default(),
        };
        Ok(Arc::new(PooledLink {
            client: Arc::new(client),
            left: left.drop_guard(),
        }))
    }
}

/// The processes of one upstream.
#[derive(Debug)]
struct Pool {
    inner: Connector,
    options: PoolOptions,
    state: Mutex<PoolState>,
    /// The number of processes that have not ended.
    live: watch::Sender<usize>,
    read_only: Arc<ReadOnlyTools>,
    /// The ends of processes, and the work on the one that no connection uses.
    tasks: TaskTracker,
    closing: CancellationToken,
}

#[derive(Debug, Default)]
struct PoolState {
    /// The process that no connection uses.
    idle: Option<Arc<Process>>,
    /// The number of processes that were idle so far.
    n_idle: u64,
    /// The number of processes that are being ended.
    n_ending: usize,
    /// Whether a process did not take the handshake of another connection.
    is_handshake_final: bool,
    /// The process of the last health check.
    checked: Weak<Process>,
    /// The time when a connection made its first call.
    last_call: Option<Instant>,
    is_starting_spare: bool,
}

impl PoolState {
    fn fit(&self, process: &Process, purpose: Purpose, principal: &Principal) -> Fit {
        match process.fit(purpose, principal) {
            Fit::HandshakeAgain if self.is_handshake_final => Fit::No,
            fit => fit,
        }
    }

    /// Returns the time until which the process of a health check is worth waiting for.
    fn check_deadline(&self, purpose: Purpose) -> Option<Instant> {
        let is_usable = match purpose {
            Purpose::Probe => true,
            Purpose::Handshake(_) => !self.is_handshake_final,
            Purpose::Modern | Purpose::Other => false,
        };
        let process = self.checked.upgrade().filter(|_| is_usable)?;
        if purpose != Purpose::Probe && process.excludes(purpose) {
            return None;
        }
        let answered = process.may_come_back().then(|| process.first_answer())?;
        // The check itself has a timeout for the first answer, so this is only a bound.
        Some(answered.unwrap_or_else(Instant::now) + CHECK_TIMEOUT)
    }
}

impl Pool {
    /// Returns a process for the first telling message of a connection: the idle one, or one that
    /// is started.
    async fn take(
        self: &Arc<Self>,
        client: &PoolClient,
        message: &Message,
    ) -> Result<(Arc<Process>, Fit), UpstreamError> {
        let purpose = Purpose::of(message);
        let id = message.request_ids().next();
        let is_check = id.is_some_and(|id| InternalRequest::HealthCheck.has(id));
        let mut live = self.live.subscribe();
        let process = loop {
            live.mark_unchanged();
            let deadline = {
                let mut state = self.state.lock();
                let fit = state
                    .idle
                    .as_ref()
                    .map_or(Fit::No, |idle| state.fit(idle, purpose, &client.principal));
                if let Some(process) = state.idle.take_if(|_| fit != Fit::No) {
                    drop(state);
                    self.live.send_modify(|_| {});
                    return Ok((process, fit));
                }
                state.check_deadline(purpose).filter(|_| !is_check)
            };
            match deadline {
                Some(deadline) if Instant::now() < deadline => {
                    let _ = tokio::time::timeout_at(deadline, live.changed()).await;
                }
                _ => break Arc::new(Process::new(&self.live, &self.read_only)),
            }
        };
        process.give_to(client.holder()?, &client.principal);
        if is_check {
            self.state.lock().checked = Arc::downgrade(&process);
        }
        self.start(&process, &client.principal).await?;
        Ok((process, Fit::Yes))
    }

    /// Starts a process. Ends the idle one before if there would be too many.
    async fn start(
        self: &Arc<Self>,
        process: &Arc<Process>,
        principal: &Principal,
    ) -> Result<(), UpstreamError> {
        let mut live = self.live.subscribe();
        while *live.borrow_and_update() > self.options.max_processes {
            let is_room_coming = {
                let mut state = self.state.lock();
                if let Some(idle) = state.idle.take() {
                    self.end(&mut state, idle);
                }
                state.n_ending > 0
            };
            if !is_room_coming {
                break; // The connections in use are limited elsewhere.
            }
            let _ = live.changed().await;
        }
        let owner: Weak<Self> = Arc::downgrade(self);
        let events = Arc::new(ProcessEvents {
            process: Arc::downgrade(process),
            pool: owner,
        });
        process.take_link(self.inner.connect(principal, events).await?);
        Ok(())
    }

    /// Keeps a process whose connection is closed for the next one, or ends it.
    fn release(self: &Arc<Self>, process: Arc<Process>) {
        process.take_back();
        let mut state = self.state.lock();
        let is_final = state.is_handshake_final && process.had_handshake();
        // The newest is the one that the next connection is likely to want.
        let has_better = state.idle.as_ref().is_some_and(|idle| idle.fits_all());
        let is_kept = !has_better && process.can_be_handed_over() && !is_final;
        if is_kept && !self.closing.is_cancelled() {
            state.n_idle += 1;
            if let Some(older) = state.idle.replace(process) {
                self.end(&mut state, older);
            }
            self.tasks.spawn(Arc::clone(self).expire(state.n_idle));
        } else {
            self.end(&mut state, process);
        }
        drop(state);
        self.live.send_modify(|_| {});
    }

    /// Ends the idle process with this number after its time, and at the end of the pool.
    async fn expire(self: Arc<Self>, number: u64) {
        let is_here = |state: &PoolState| state.n_idle == number && state.idle.is_some();
        let mut live = self.live.subscribe();
        let is_taken = async {
            while is_here(&self.state.lock()) {
                let _ = live.changed().await;
            }
        };
        tokio::select! {
            () = is_taken => return,
            () = sleep(self.options.idle_timeout) => {}
            () = self.closing.cancelled() => {}
        }
        let mut state = self.state.lock();
        if is_here(&state)
            && let Some(idle) = state.idle.take()
        {
            self.end(&mut state, idle);
        }
    }

    /// Ends a process in the background.
    fn end(self: &Arc<Self>, state: &mut PoolState, process: Arc<Process>) {
        state.n_ending += 1;
        let pool = Arc::clone(self);
        self.tasks.spawn(async move {
            if let Some(link) = process.link() {
                link.close().await;
            }
            pool.state.lock().n_ending -= 1;
            // The end of the process is reported when it is dropped, with the right numbers.
            drop(process);
        });
    }

    /// Registers the first call of a connection. Starts a process ahead if another connection has
    /// made one lately, because more are then likely to come.
    fn note_call(self: &Arc<Self>) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let last = state.last_call.replace(now);
        let is_busy = last.is_some_and(|last| now - last < self.options.idle_timeout);
        let has_room = *self.live.borrow() < self.options.max_processes;
        if !self.options.spare || !is_busy || !has_room || state.idle.is_some() {
            return;
        }
        if std::mem::replace(&mut state.is_starting_spare, true) {
            return;
        }
        let pool = Arc::clone(self);
        self.tasks.spawn(async move {
            let process = Arc::new(Process::new(&pool.live, &pool.read_only));
            let principal = Principal::local();
            let started = tokio::select! {
                started = pool.start(&process, &principal) => started,
                () = pool.closing.cancelled() => Err(link_closed()),
            };
            pool.state.lock().is_starting_spare = false;
            match started {
                Ok(()) => pool.release(process),
                Err(error) => tracing::debug!("failed to start a process ahead: {error}"),
            }
        });
    }
}

impl ProcessOwner for Pool {
    fn forget(self: Arc<Self>, process: &Arc<Process>) {
        let mut state = self.state.lock();
        if let Some(idle) = state.idle.take_if(|idle| Arc::ptr_eq(idle, process)) {
            self.end(&mut state, idle);
        }
    }
}

/// The place of a connection at a process.
#[derive(Debug)]
struct PoolSeat {
    /// The receiver of the connection; `None` after it was closed.
    holder: Option<Arc<Holder>>,
    process: Option<Arc<Process>>,
    /// Whether a message has told which processes fit.
    is_settled: bool,
}

/// One connection.
#[derive(Debug)]
struct PoolClient {
    pool: Arc<Pool>,
    principal: Principal,
    /// Cancelled when the connection is closed or dropped.
    left: CancellationToken,
    seat: Mutex<PoolSeat>,
    // Locked while a process is chosen, so that messages stay in order.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl PoolClient {
    fn holder(&self) -> Result<Arc<Holder>, UpstreamError> {
        self.seat.lock().holder.clone().ok_or_else(link_closed)
    }

    /// Returns the process if messages need no choice any more.
    fn settled_process(&self) -> Option<Arc<Process>> {
        let seat = self.seat.lock();
        seat.process.clone().filter(|_| seat.is_settled)
    }

    /// Sends a message for which a process must be chosen.
    async fn send_first(
        self: &Arc<Self>,
        turn: OwnedMutexGuard<()>,
        message: Message,
    ) -> Result<SendOutcome, UpstreamError> {
        let purpose = Purpose::of(&message);
        let (process, fit) = if let Some(present) = self.keep(purpose) {
            present
        } else {
            tokio::select! {
                taken = self.pool.take(self, &message) => taken?,
                () = self.left.cancelled() => return Err(link_closed()),
            }
        };
        if fit == Fit::HandshakeAgain {
            self.sit(&process, Purpose::Probe)?;
            // On a separate task, because the answer decides where the message goes in the end.
            let work = Arc::clone(self).make_handshake_again(turn, process, message);
            return tokio::spawn(work)
                .await
                .unwrap_or_else(|_| Err(link_closed()));
        }
        self.sit(&process, purpose)?;
        process.give_to(self.holder()?, &self.principal);
        self.pass(&process, message).await
    }

    /// Returns the present process if it can take a message with this purpose. Gives it back
    /// otherwise.
    fn keep(&self, purpose: Purpose) -> Option<(Arc<Process>, Fit)> {
        let process = self.seat.lock().process.clone()?;
        let fit = self
            .pool
            .state
            .lock()
            .fit(&process, purpose, &self.principal);
        if fit != Fit::No {
            return Some((process, fit));
        }
        if !process.can_be_handed_over() {
            return Some((process, Fit::Yes)); // A process that is in use cannot be exchanged.
        }
        self.seat.lock().process = None;
        self.pool.release(process);
        None
    }

    /// Makes `process` the one of the connection, unless that is closed.
    fn sit(&self, process: &Arc<Process>, purpose: Purpose) -> Result<(), UpstreamError> {
        let mut seat = self.seat.lock();
        if seat.holder.is_none() {
            drop(seat);
            self.pool.release(Arc::clone(process));
            return Err(link_closed());
        }
        seat.process = Some(Arc::clone(process));
        seat.is_settled = purpose != Purpose::Probe;
        Ok(())
    }

    /// Sends a handshake to a process that had one, and to a new process if it is not taken.
    async fn make_handshake_again(
        self: Arc<Self>,
        _turn: OwnedMutexGuard<()>,
        process: Arc<Process>,
        initialize: Message,
    ) -> Result<SendOutcome, UpstreamError> {
        let (purpose, holder) = (Purpose::of(&initialize), self.holder()?);
        process.give_to(Arc::clone(&holder), &self.principal);
        let mut is_taken = process.send_handshake(initialize.clone(), holder).await;
        let answer = timeout(HANDSHAKE_AGAIN_TIMEOUT, &mut is_taken).await;
        if answer.is_err() {
            process.give_up_handshake();
        }
        // The answer may have come at the last moment.
        if matches!(
            answer.unwrap_or_else(|_| is_taken.try_recv().or(Ok(false))),
            Ok(true)
        ) {
            self.sit(&process, purpose)?;
            return Ok(SendOutcome::Delivered);
        }
        if self.left.is_cancelled() {
            return Err(link_closed()); // It says nothing of the process.
        }
        tracing::debug!("a process took no second handshake: another one is started");
        {
            let mut state = self.pool.state.lock();
            state.is_handshake_final = true;
            self.seat.lock().process = None;
            self.pool.end(&mut state, process);
        }
        let (process, _) = tokio::select! {
            taken = self.pool.take(&self, &initialize) => taken?,
            () = self.left.cancelled() => return Err(link_closed()),
        };
        self.sit(&process, purpose)?;
        process.give_to(self.holder()?, &self.principal);
        self.pass(&process, initialize).await
    }

    async fn pass(
        &self,
        process: &Process,
        message: Message,
    ) -> Result<SendOutcome, UpstreamError> {
        process.send(message, || self.pool.note_call()).await
    }
}

/// The sending half of one connection.
#[derive(Debug)]
struct PooledLink {
    client: Arc<PoolClient>,
    /// Ends the connection if the link is dropped without `close`.
    left: DropGuard,
}

#[async_trait]
impl UpstreamLink for PooledLink {
    async fn send(&self, message: Message) -> Result<SendOutcome, UpstreamError> {
        let client = &self.client;
        if let Some(process) = client.settled_process() {
            return client.pass(&process, message).await;
        }
        let turn = Arc::clone(&client.turn).lock_owned().await;
        client.holder()?;
        match client.settled_process() {
            Some(process) => client.pass(&process, message).await,
            None => client.send_first(turn, message).await,
        }
    }

    fn has_streams(&self) -> bool {
        let process = self.client.seat.lock().process.clone();
        process.is_some_and(|process| process.link().is_some_and(|link| link.has_streams()))
    }

    fn time_to_start(&self) -> Option<Duration> {
        let seat = self.client.seat.lock();
        match seat.process.as_ref().and_then(|process| process.link()) {
            Some(link) => link.time_to_start(),
            None => (seat.holder.is_some()).then(|| self.client.pool.options.start_time.current()),
        }
    }

    /// Gives the process back or ends it in the background.
    async fn close(&self) {
        self.left.token().cancel();
        let process = {
            let mut seat = self.client.seat.lock();
            seat.holder = None;
            seat.process.take()
        };
        if let Some(process) = process {
            self.client.pool.release(process);
        }
    }
}
