//! A server for a calendar, in memory.

use jiff::ToSpan as _;
use jiff::civil::{Date, Time};

use super::sandbox::Sandbox;
use super::tool::Kind::{Integer, Text, Texts};
use super::tool::{
    Answer, ArgumentError, Arguments, DemoTool, Effect, ToolFailure, mandatory, optional,
};

const MAX_EVENTS: usize = 1_000;
/// The minutes of a working day, from 09:00 to 17:00.
const DAY: std::ops::Range<i64> = 540..1_020;
const NUMBER: &str = "Number of the event, as create_event and list_events return it.";
const DATE: &str = "The day, as YYYY-MM-DD.";
const TIME: &str = "The beginning in 24 hours, as HH:MM.";
const MINUTES: &str = "The length in minutes, 5 to 480.";

/// An event.
#[derive(Clone, Debug)]
pub(super) struct Event {
    title: String,
    date: Date,
    /// The beginning, in minutes of the day.
    at: i64,
    minutes: i64,
    people: Vec<String>,
    reminder: Option<i64>,
    is_cancelled: bool,
}

/// The reason why an event cannot be used.
#[derive(Debug, thiserror::Error)]
enum CalendarError {
    /// There are too many events.
    #[error("limit of {MAX_EVENTS} events reached")]
    TooMany,
    /// No event has the number.
    #[error("argument number: there is no event {0}")]
    Unknown(usize),
}

/// Returns the events of a new sandbox.
pub(super) fn first_events() -> Vec<Event> {
    let event = |title: &str, day: i8, at: i64, minutes: i64| Event {
        title: title.into(),
        date: Date::constant(2026, 12, day),
        at,
        minutes,
        people: vec!["Ada".into(), "Lin".into()],
        reminder: None,
        is_cancelled: false,
    };
    vec![
        event("Team meeting", 7, 570, 30),
        event("Planning of release 2.4", 8, 600, 60),
        event("Lunch with Sam", 9, 720, 60),
        event("Review of the survey", 10, 840, 45),
    ]
}

pub(super) const TOOLS: &[DemoTool] = &[
    DemoTool {
        name: "create_event",
        effect: Effect::Adds,
        description: "Put an event into the calendar: a meeting, an appointment or a block of time for work. The answer has the number of the event, and a warning if it overlaps with another one. Look for a free time with find_free_time first if other people take part. People who are named here are only noted; use invite to add more later.",
        parameters: &[
            mandatory("title", Text, "What the event is about, in a few words."),
            mandatory("date", Text, DATE),
            mandatory("time", Text, TIME),
            mandatory("minutes", Integer, MINUTES),
            optional("people", Texts, "Names of the people who take part."),
        ],
        run: create_event,
    },
    DemoTool {
        name: "list_events",
        effect: Effect::Reads,
        description: "List the events of one day or of several days, in the order of their time, one for each line with number, day, time, length, title and people. Cancelled events are left out. For the hours that are still free use find_free_time, and for a short summary of a whole week week_overview.",
        parameters: &[
            mandatory("from", Text, "The first day, as YYYY-MM-DD."),
            optional(
                "to",
                Text,
                "The last day, as YYYY-MM-DD. Without it only the first day is listed.",
            ),
        ],
        run: list_events,
    },
    DemoTool {
        name: "get_event",
        effect: Effect::Reads,
        description: "Read one event of the calendar completely: title, day, time, length, people, reminder and whether it was cancelled. Use this before you move or cancel an event, to be sure that it is the right one.",
        parameters: &[mandatory("number", Integer, NUMBER)],
        run: get_event,
    },
    DemoTool {
        name: "move_event",
        effect: Effect::Changes,
        description: "Move an event to another day or time. Its length, title and people stay the same. The answer has a warning if it overlaps with another event at the new time. Ask the user before you move a meeting with other people, because they are not told automatically.",
        parameters: &[
            mandatory("number", Integer, NUMBER),
            mandatory("date", Text, DATE),
            mandatory("time", Text, TIME),
        ],
        run: move_event,
    },
    DemoTool {
        name: "cancel_event",
        effect: Effect::Changes,
        description: "Cancel an event, so that its time is free again. The event stays in the calendar as cancelled and can still be read with get_event, but lists and searches for free time ignore it. Cancelling an event twice changes nothing.",
        parameters: &[mandatory("number", Integer, NUMBER)],
        run: cancel_event,
    },
    DemoTool {
        name: "find_free_time",
        effect: Effect::Reads,
        description: "Find the times of a working day, from 09:00 to 17:00, at which no event is in the calendar and that are long enough for a meeting of the given length. The answer has one free period for each line. Use this before you create an event or move one.",
        parameters: &[
            mandatory("date", Text, DATE),
            mandatory(
                "minutes",
                Integer,
                "The length that is needed in minutes, 5 to 480.",
            ),
        ],
        run: find_free_time,
    },
    DemoTool {
        name: "add_reminder",
        effect: Effect::Changes,
        description: "Set a reminder for an event, some minutes before it begins. An event has one reminder at most; an earlier one is replaced. Use ten minutes for a normal meeting and a day, 1440 minutes, for something that has to be prepared.",
        parameters: &[
            mandatory("number", Integer, NUMBER),
            mandatory(
                "minutes_before",
                Integer,
                "How many minutes before the beginning, 0 to 10080.",
            ),
        ],
        run: add_reminder,
    },
    DemoTool {
        name: "invite",
        effect: Effect::Changes,
        description: "Add people to an event. Names that take part already are ignored, and nobody is removed. The people are noted in the calendar; no mail is sent. Check with get_event who takes part already.",
        parameters: &[
            mandatory("number", Integer, NUMBER),
            mandatory("people", Texts, "Names of the people to add."),
        ],
        run: invite,
    },
    DemoTool {
        name: "week_overview",
        effect: Effect::Reads,
        description: "Summarize one week of the calendar: for each day from Monday to Sunday the number of events and how many hours they take together. Give any day of the week. Use this to plan a week or to see which day has room, and list_events for the events themselves.",
        parameters: &[mandatory(
            "date",
            Text,
            "Any day of the week, as YYYY-MM-DD.",
        )],
        run: week_overview,
    },
    DemoTool {
        name: "event_conflicts",
        effect: Effect::Reads,
        description: "Find events of one day that overlap with each other, in pairs. Cancelled events do not count, and neither do events that only touch. Use this after several events were moved, or when the user has the feeling of being in two places at once.",
        parameters: &[mandatory("date", Text, DATE)],
        run: event_conflicts,
    },
];

fn minute_of_day(arguments: &Arguments<'_>) -> Result<i64, ArgumentError> {
    let wrong = ArgumentError::Value("time", "a time as HH:MM");
    let time = Time::strptime("%H:%M", arguments.text("time")).map_err(|_| wrong)?;
    Ok(i64::from(time.hour()) * 60 + i64::from(time.minute()))
}

fn minutes(arguments: &Arguments<'_>) -> Result<i64, ArgumentError> {
    let minutes = arguments.integer("minutes").unwrap_or(0);
    let allowed = (5..=480).contains(&minutes).then_some(minutes);
    allowed.ok_or(ArgumentError::Value("minutes", "5 to 480"))
}

fn clock(minute: i64) -> String {
    format!("{:02}:{:02}", minute / 60, minute % 60)
}

impl Event {
    fn end(&self) -> i64 {
        self.at + self.minutes
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.date == other.date && self.at < other.end() && other.at < self.end()
    }

    fn line(&self, number: usize) -> String {
        let (from, to, people) = (clock(self.at), clock(self.end()), self.people.join(", "));
        format!(
            "{number}. {} {from}-{to} {} ({people})",
            self.date, self.title
        )
    }
}

/// Returns the events that are not cancelled, with their numbers, in the order of their time.
fn live(events: &[Event]) -> Vec<(usize, &Event)> {
    let numbered = events.iter().enumerate().map(|(at, event)| (at + 1, event));
    let mut live: Vec<_> = numbered.filter(|(_, event)| !event.is_cancelled).collect();
    live.sort_by_key(|(number, event)| (event.date, event.at, *number));
    live
}

fn warning(events: &[Event], of: usize) -> String {
    let Some(event) = events.get(of) else {
        return String::new();
    };
    let mut others = live(events).into_iter();
    let other = others.find(|(number, other)| *number != of + 1 && other.overlaps(event));
    other.map_or_else(String::new, |(_, other)| {
        format!("; it overlaps with {}", other.title)
    })
}

fn create_event(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let event = Event {
        title: arguments.words("title")?.into(),
        date: arguments.date("date")?,
        at: minute_of_day(arguments)?,
        minutes: minutes(arguments)?,
        people: arguments.texts("people"),
        reminder: None,
        is_cancelled: false,
    };
    let mut events = sandbox.events.lock();
    if events.len() >= MAX_EVENTS {
        return Err(CalendarError::TooMany.into());
    }
    events.push(event);
    let warning = warning(&events, events.len() - 1);
    Ok(format!("created event {}{warning}", events.len()))
}

fn list_events(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let from = arguments.date("from")?;
    let to = match arguments.optional_text("to") {
        Some(_) => arguments.date("to")?,
        None => from,
    };
    let events = sandbox.events.lock();
    let lines: Vec<String> = (live(&events).into_iter())
        .filter(|(_, event)| (from..=to).contains(&event.date))
        .map(|(number, event)| event.line(number))
        .collect();
    Ok(if lines.is_empty() {
        "no events".into()
    } else {
        lines.join("\n")
    })
}

/// Does something with the event that the arguments name.
fn with_event(
    sandbox: &Sandbox,
    arguments: &Arguments<'_>,
    act: impl FnOnce(usize, &mut Event) -> Answer,
) -> Answer {
    let at = arguments.index("number")?;
    let mut events = sandbox.events.lock();
    let unknown = || ToolFailure::from(CalendarError::Unknown(at + 1));
    act(at + 1, events.get_mut(at).ok_or_else(unknown)?)
}

fn get_event(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    with_event(sandbox, arguments, |number, event| {
        let reminder = event.reminder.map_or_else(String::new, |before| {
            format!(", reminder {before} minutes before")
        });
        let cancelled = if event.is_cancelled {
            ", cancelled"
        } else {
            ""
        };
        Ok(format!("{}{reminder}{cancelled}", event.line(number)))
    })
}

fn move_event(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let (date, at) = (arguments.date("date")?, minute_of_day(arguments)?);
    with_event(sandbox, arguments, |number, event| {
        (event.date, event.at) = (date, at);
        Ok(format!("event {number} is on {date} at {}", clock(at)))
    })
}

fn cancel_event(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    with_event(sandbox, arguments, |number, event| {
        event.is_cancelled = true;
        Ok(format!("event {number} is cancelled"))
    })
}

fn find_free_time(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let (date, needed) = (arguments.date("date")?, minutes(arguments)?);
    let events = sandbox.events.lock();
    let mut lines = Vec::new();
    let mut free_from = DAY.start;
    let busy = live(&events)
        .into_iter()
        .filter(|(_, event)| event.date == date);
    let busy = busy.map(|(_, event)| (event.at, event.end()));
    for (from, to) in busy.chain([(DAY.end, DAY.end)]) {
        let until = from.min(DAY.end);
        if until - free_from >= needed {
            lines.push(format!("{}-{}", clock(free_from), clock(until)));
        }
        free_from = free_from.max(to);
    }
    Ok(if lines.is_empty() {
        "no free time".into()
    } else {
        lines.join("\n")
    })
}

fn add_reminder(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let before = arguments.integer("minutes_before").unwrap_or(0);
    if !(0..=10_080).contains(&before) {
        return Err(ArgumentError::Value("minutes_before", "0 to 10080").into());
    }
    with_event(sandbox, arguments, |number, event| {
        event.reminder = Some(before);
        Ok(format!(
            "reminder for event {number}, {before} minutes before"
        ))
    })
}

fn invite(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let people = arguments.texts("people");
    with_event(sandbox, arguments, |number, event| {
        for person in people {
            if !event.people.contains(&person) {
                event.people.push(person);
            }
        }
        Ok(format!(
            "event {number} is with {}",
            event.people.join(", ")
        ))
    })
}

fn week_overview(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let wrong = |_| ArgumentError::Value("date", "a date that is not so far away");
    let day = arguments.date("date")?;
    let since_monday = day.weekday().to_monday_zero_offset();
    let monday = day
        .checked_sub(i32::from(since_monday).days())
        .map_err(wrong)?;
    let events = sandbox.events.lock();
    let mut lines = Vec::new();
    for offset in 0..7_i32 {
        let day = monday.checked_add(offset.days()).map_err(wrong)?;
        let of_day = live(&events)
            .into_iter()
            .filter(|(_, event)| event.date == day);
        let lengths: Vec<i64> = of_day.map(|(_, event)| event.minutes).collect();
        let total = clock(lengths.iter().sum());
        lines.push(format!("{day}: {} events, {total} hours", lengths.len()));
    }
    Ok(lines.join("\n"))
}

fn event_conflicts(sandbox: &Sandbox, arguments: &Arguments<'_>) -> Answer {
    let date = arguments.date("date")?;
    let events = sandbox.events.lock();
    let of_day: Vec<_> = live(&events)
        .into_iter()
        .filter(|it| it.1.date == date)
        .collect();
    let mut lines = Vec::new();
    for (at, (number, event)) in of_day.iter().enumerate() {
        for (other, with) in of_day[at + 1..].iter().filter(|it| it.1.overlaps(event)) {
            lines.push(format!(
                "{number}. {} and {other}. {}",
                event.title, with.title
            ));
        }
    }
    Ok(if lines.is_empty() {
        "no conflicts".into()
    } else {
        lines.join("\n")
    })
}
