//! Long random streams of records, like the ones of busy, crashing and repeating processes. A seed
//! gives the same stream on every machine.

use jiff::{SignedDuration, Timestamp};
use riglm_domain::id::{InvocationId, SessionId, ToolName, UpstreamName};
use riglm_domain::privacy::canonical::KeyedHash;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::{CallTokens, Invocation, InvocationEnd, Outcome};
use riglm_domain::usage::record::Record;
use riglm_domain::usage::session::Session;

use super::{call, end, hash, moment, run, run_lost, session};

/// Pseudo-random whole numbers: the generator `SplitMix64`.
#[derive(Debug)]
pub struct RandomNumbers(u64);

impl RandomNumbers {
    /// Returns the numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `limit`, which is above 0.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let below = (mixed ^ (mixed >> 31)) % limit as u64;
        usize::try_from(below).unwrap()
    }

    /// Returns `true` once in `n` times.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn entropy(&mut self) -> [u8; 10] {
        [(); 10].map(|()| u8::try_from(self.below(256)).unwrap())
    }
}

// Names that a faulty store would confuse with each other.
const TOOLS: [&str; 9] = ["a", "b", "a\u{0}", "\u{241b}0", "", "A", "c d", "🦀", "%"];

/// A running session of the stream, with its calls that are not recorded yet.
struct RunningSession {
    session: Session,
    run: u8,
    // Calls and rounds that were made and are not recorded yet.
    held: Vec<Invocation>,
    open: Vec<Invocation>,
    sequence: u64,
}

/// Returns the keyed hash of a client in streams, of 0 to 3.
pub fn stream_client(client: usize) -> KeyedHash {
    hash(&format!("client {client}"))
}

/// Returns the principals in streams.
pub fn stream_principals() -> [Principal; 2] {
    ["alice", "b\u{0}b"].map(Principal::from_name)
}

/// Returns the time `hours` hours after the start of the streams, which last 60 hours.
pub fn stream_hour(hours: i64) -> Timestamp {
    moment(0) + SignedDuration::from_hours(hours)
}

/// Returns a stream of several hundred records. Calls come out of order, rounds and ends
/// repeatedly, some calls never end, some sessions have no beginning, and runs are lost.
pub fn stream(seed: u64) -> Vec<Record> {
    let mut numbers = RandomNumbers::new(seed);
    let mut going: Vec<RunningSession> = Vec::new();
    let mut records: Vec<Record> = Vec::new();
    for step in 0..700 {
        // Whole milliseconds, as in identifiers.
        let now = moment(step * (60 * 3_600_000 / 700));
        if going.len() < 3 || numbers.once_in(40) {
            let new = open_session(&mut numbers, now);
            if !numbers.once_in(6) {
                records.push(Record::SessionOpened(new.session.clone()));
            }
            going.push(new);
        }
        let index = numbers.below(going.len());
        match numbers.below(10) {
            0..=4 => going[index].make_call(&mut numbers, now),
            5..=7 => records.extend(going[index].finish_some(&mut numbers)),
            8 if numbers.once_in(5) => {
                let mut over = going.swap_remove(index);
                records.append(&mut over.release());
                records.push(Record::SessionClosed {
                    session: over.session.id,
                    ended_at: now,
                });
            }
            9 if numbers.once_in(8) => {
                let run = going[index].run;
                records.push(Record::RunLost {
                    run: going[index].session.run,
                    noticed_at: now,
                });
                going.retain(|session| session.run != run);
            }
            _ => {}
        }
        if let Some(last) = records.len().checked_sub(1)
            && numbers.once_in(8)
        {
            records.push(records[numbers.below(last + 1)].clone());
        }
    }
    for session in &mut going {
        records.append(&mut session.release());
    }
    records.push(run_lost(0, 0));
    records
}

fn open_session(numbers: &mut RandomNumbers, now: Timestamp) -> RunningSession {
    let n = u8::try_from(numbers.below(3)).unwrap();
    let client = numbers.below(4);
    let session = Session {
        id: SessionId::new(now, numbers.entropy()),
        principal: stream_principals()[client % 2].clone(),
        client: stream_client(client),
        started_at: now,
        ..session(run(n), 1)
    };
    RunningSession {
        session,
        run: n,
        held: Vec::new(),
        open: Vec::new(),
        sequence: 0,
    }
}

impl RunningSession {
    fn make_call(&mut self, numbers: &mut RandomNumbers, now: Timestamp) {
        let upstream = ["up-1.x", "UP"][numbers.below(2)];
        let mut made = Invocation {
            id: InvocationId::new(now, numbers.entropy()),
            principal: self.session.principal.clone(),
            upstream: UpstreamName::parse(upstream).unwrap(),
            tool: ToolName::from(TOOLS[numbers.below(TOOLS.len())]),
            started_at: now,
            ..call(self.session.id, 1)
        };
        if let Some(first) = self.open.last()
            && numbers.once_in(8)
        {
            made.continues = Some(first.id);
            made.sequence = first.sequence;
        } else {
            // A gap in the positions now and then, as after a lost record.
            self.sequence += if numbers.once_in(20) { 2 } else { 1 };
            made.sequence = self.sequence;
        }
        self.held.push(made);
    }

    /// Returns the records of some calls: beginnings out of order, and ends of some open calls.
    fn finish_some(&mut self, numbers: &mut RandomNumbers) -> Vec<Record> {
        let mut records = Vec::new();
        for _ in 0..numbers.below(4) {
            if !self.held.is_empty() {
                let index = numbers.below(self.held.len());
                let call = self.held.swap_remove(index);
                records.push(Record::CallOpened(call.clone()));
                self.open.push(call);
            }
        }
        for _ in 0..numbers.below(4) {
            if !self.open.is_empty() {
                let index = numbers.below(self.open.len());
                let call = &self.open[index];
                let outcome = Outcome::ALL[numbers.below(Outcome::ALL.len())];
                records.push(Record::CallClosed(InvocationEnd {
                    duration_us: 3_u64.pow(u32::try_from(numbers.below(20)).unwrap()),
                    ..end(call, outcome)
                }));
                records.push(Record::CallMeasured(CallTokens {
                    id: call.id,
                    request: Some(numbers.below(100) as u64),
                    response: None,
                }));
                // Some calls end again, with another outcome.
                if !numbers.once_in(4) {
                    self.open.swap_remove(index);
                }
            }
        }
        if numbers.once_in(10) && records.len() > 1 {
            let index = numbers.below(records.len() - 1);
            records.swap(index, index + 1);
        }
        records
    }

    /// Returns the records of the held calls.
    fn release(&mut self) -> Vec<Record> {
        self.held.drain(..).rev().map(Record::CallOpened).collect()
    }
}
