//! `riglm top`: a running proxy in the terminal, live over its control API.
//!
//! [`model`] has the state, [`screen`] draws it, and this file has the terminal, the keys, the
//! events and the requests.

mod answers;
mod cells;
mod model;
#[cfg(test)]
mod samples;
mod screen;

use std::convert::Infallible;
use std::io::{self, IsTerminal as _};
use std::net::SocketAddr;
use std::pin::Pin;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEvent};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use self::model::{Effect, EventStream, Model, Occasion, Request};
use self::screen::{Palette, extent, plain_screen, render};
use super::control_port::{ControlAnswer, ask, ask_all, events};
use super::serve::stop_signal;
use crate::args::TopArgs;
use crate::config::{Config, Environment};
use crate::output::print;

/// The shortest time between two readings because of events.
const SHORTEST: Duration = Duration::from_secs(1);
/// The pause before a stream of events is opened again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The longest silence of a stream that lives. Proxies send something every 15 seconds.
const LONGEST_SILENCE: Duration = Duration::from_secs(45);
/// The time in which the reader of keys notices that it is no longer needed.
const KEYS_EVERY: Duration = Duration::from_millis(250);

/// Shows the running proxy until the user quits, or prints it once.
///
/// # Errors
///
/// Returns an error if no proxy answers, or if there is no terminal to show it on.
pub(super) async fn run(
    config: &Config,
    environment: &Environment,
    arguments: &TopArgs,
) -> anyhow::Result<()> {
    let is_json = arguments.store.format.is_json();
    let is_live = !is_json && !arguments.once;
    if is_live && !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        bail!("no terminal to show the proxy on: use --once for one screen of text, or --json");
    }
    let named = arguments.control;
    let bodies = match ask(config, named, &Request::Overview.path()).await {
        ControlAnswer::Said(bodies) => bodies,
        ControlAnswer::NotRunning(why) => {
            bail!("no proxy is running: {why}; start one with `riglm serve`")
        }
        ControlAnswer::Unknown(why) => bail!("{why}"),
    };
    if let (true, Some(body)) = (is_json, bodies.first()) {
        return Ok(print(&body.to_string())?);
    }
    let mut model = Model::new();
    model.apply(&Request::Overview, ControlAnswer::Said(bodies));
    if let Some(why) = model.failure() {
        bail!("{}", why.as_str());
    }
    if arguments.once {
        return Ok(print(&plain_screen(&model))?);
    }
    let palette = if arguments.no_color || environment.value("NO_COLOR").is_some() {
        Palette::Monochrome
    } else {
        Palette::Color
    };
    let interval = Duration::from_secs(arguments.interval.into());
    let viewer = Viewer {
        proxies: Proxies { config, named },
        schedule: Schedule::new(interval, Instant::now()),
        model,
        screen: Screen::open(palette).context("failed to open the terminal")?,
    };
    viewer.run().await
}

/// The proxies that are shown.
#[derive(Clone, Copy, Debug)]
struct Proxies<'a> {
    config: &'a Config,
    named: Option<SocketAddr>,
}

/// The answer to a request.
#[derive(Debug)]
struct Reply {
    request: Request,
    answer: ControlAnswer,
}

/// Requests in progress.
type Reading<'a> = Pin<Box<dyn Future<Output = Vec<Reply>> + 'a>>;

impl Proxies<'_> {
    /// Sends requests, and returns their answers in the same order.
    async fn read(self, requests: Vec<Request>) -> Vec<Reply> {
        let paths: Vec<String> = requests.iter().map(Request::path).collect();
        let answers = ask_all(self.config, self.named, &paths).await;
        let replies = requests.into_iter().zip(answers);
        replies
            .map(|(request, answer)| Reply { request, answer })
            .collect()
    }

    /// Follows the events, and opens their stream again when it ends.
    async fn follow_events(self, news: mpsc::Sender<News>) -> Infallible {
        loop {
            if let Ok(mut stream) = events(self.config, self.named).await {
                // The viewer is gone if it takes no news; this future ends with it.
                let _ = news.send(News::Stream(EventStream::Open)).await;
                while let Ok(Ok(Some(chunk))) = timeout(LONGEST_SILENCE, stream.chunk()).await {
                    if has_event(&chunk) {
                        // If news waits already, the data is about to be read.
                        let _ = news.try_send(News::Event);
                    }
                }
                let _ = news.send(News::Stream(EventStream::Closed)).await;
            }
            sleep(RETRY_AFTER).await;
        }
    }
}

/// A change of the stream of events.
#[derive(Clone, Copy, Debug)]
enum News {
    Stream(EventStream),
    /// One or more events arrived.
    Event,
}

/// Returns whether a part of a stream has more than the comments that keep it open.
fn has_event(chunk: &[u8]) -> bool {
    let mut lines = chunk.split(|byte| *byte == b'\n');
    lines.any(|line| !line.is_empty() && !line.starts_with(b":"))
}

/// The times at which data is read.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    interval: Duration,
    /// The time at which all data of the view is too old.
    all_due: Instant,
    /// The earliest time of the next reading because of events.
    earliest: Instant,
    has_news: bool,
}

impl Schedule {
    /// Returns a schedule that begins now.
    fn new(interval: Duration, now: Instant) -> Self {
        Self {
            interval,
            all_due: now,
            earliest: now,
            has_news: false,
        }
    }

    /// Returns the time of the next reading.
    fn due(&self) -> Instant {
        if self.has_news {
            self.all_due.min(self.earliest)
        } else {
            self.all_due
        }
    }

    /// Begins a reading, and returns what it is for.
    fn begin(&mut self, now: Instant) -> Occasion {
        (self.has_news, self.earliest) = (false, now + SHORTEST);
        if now < self.all_due {
            return Occasion::Event;
        }
        self.all_due = now + self.interval;
        Occasion::Schedule
    }

    /// Plans a reading soon: the proxy may be back.
    fn retry(&mut self) {
        self.all_due = self.all_due.min(self.earliest);
    }
}

/// A key, or a new size of the terminal.
#[derive(Clone, Copy, Debug)]
enum Input {
    Key(KeyEvent),
    Resize,
}

/// Reads the terminal on a thread of its own, which ends with the receiver or with the terminal.
fn read_keys() -> io::Result<mpsc::Receiver<Input>> {
    let (sender, receiver) = mpsc::channel(64);
    let read = move || {
        while !sender.is_closed() {
            let next = match event::poll(KEYS_EVERY) {
                Ok(true) => event::read(),
                Ok(false) => continue,
                Err(_) => return,
            };
            let input = match next {
                Ok(Event::Key(key)) => Input::Key(key),
                Ok(Event::Resize(..)) => Input::Resize,
                Ok(_) => continue,
                Err(_) => return,
            };
            if sender.blocking_send(input).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("keys".into()).spawn(read)?;
    Ok(receiver)
}

/// The terminal, as it was before when this is dropped. A panic restores it, too.
#[derive(Debug)]
struct Screen {
    terminal: DefaultTerminal,
    palette: Palette,
}

impl Screen {
    fn open(palette: Palette) -> io::Result<Self> {
        match ratatui::try_init() {
            Ok(terminal) => Ok(Self { terminal, palette }),
            Err(error) => {
                ratatui::restore();
                Err(error)
            }
        }
    }

    fn draw(&mut self, model: &mut Model) -> io::Result<()> {
        let palette = self.palette;
        self.terminal.draw(|frame| {
            let area = frame.area();
            let size = extent(model, area);
            model.fit(size);
            render(model, palette, area, frame.buffer_mut());
        })?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The hook of panics has restored it before it wrote its message, which must stay visible.
        if !thread::panicking() {
            ratatui::restore();
        }
    }
}

/// The live view.
#[derive(Debug)]
struct Viewer<'a> {
    proxies: Proxies<'a>,
    schedule: Schedule,
    model: Model,
    screen: Screen,
}

impl Viewer<'_> {
    /// Shows the proxy until the user quits, or a signal ends this process.
    async fn run(self) -> anyhow::Result<()> {
        let stopped = stop_signal()?;
        let hang_up = signal(SignalKind::hangup());
        let mut hang_up = hang_up.context("failed to watch for signals")?;
        let keys = read_keys().context("failed to read the terminal")?;
        let (sender, news) = mpsc::channel(16);
        let proxies = self.proxies;
        tokio::select! {
            shown = self.show(keys, news) => shown,
            never = proxies.follow_events(sender) => match never {},
            () = stopped => Ok(()),
            _ = hang_up.recv() => Ok(()),
        }
    }

    /// Shows the proxy until the user quits.
    async fn show(
        mut self,
        mut keys: mpsc::Receiver<Input>,
        mut news: mpsc::Receiver<News>,
    ) -> anyhow::Result<()> {
        let proxies = self.proxies;
        let mut reading: Option<Reading<'_>> = None;
        loop {
            let drawn = self.screen.draw(&mut self.model);
            drawn.context("failed to draw on the terminal")?;
            tokio::select! {
                input = keys.recv() => match input {
                    None => return Ok(()),
                    Some(Input::Resize) => {}
                    Some(Input::Key(key)) => match self.model.press(key) {
                        Effect::Quit => return Ok(()),
                        Effect::Read => self.schedule.all_due = Instant::now(),
                        Effect::Draw => {}
                    },
                },
                Some(news) = news.recv() => {
                    self.schedule.has_news = true;
                    if let News::Stream(stream) = news {
                        self.model.set_events(stream);
                    }
                }
                replies = read_all(&mut reading) => {
                    reading = None;
                    for Reply { request, answer } in replies {
                        self.model.apply(&request, answer);
                    }
                    if self.model.failure().is_some() {
                        self.schedule.retry();
                    }
                }
                () = sleep_until(self.schedule.due()), if reading.is_none() => {
                    let occasion = self.schedule.begin(Instant::now());
                    reading = Some(Box::pin(proxies.read(self.model.needs(occasion))));
                }
            }
        }
    }
}

/// Waits for the answers of requests in progress; forever if there are none.
async fn read_all(reading: &mut Option<Reading<'_>>) -> Vec<Reply> {
    match reading {
        Some(reading) => reading.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_cause_at_most_one_reading_a_second() {
        let start = Instant::now();
        let after = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut schedule = Schedule::new(Duration::from_secs(5), start);
        assert_eq!(schedule.due(), start);
        assert_eq!(schedule.begin(start), Occasion::Schedule);
        assert_eq!(schedule.due(), after(5_000));
        for second in 1..5 {
            schedule.has_news = true;
            assert_eq!(schedule.due(), after(1_000 * second));
            assert_eq!(schedule.begin(after(1_000 * second)), Occasion::Event);
        }
        // Data that events do not concern is read in time, too.
        schedule.has_news = true;
        assert_eq!(schedule.begin(after(5_000)), Occasion::Schedule);
        schedule.retry();
        assert_eq!(schedule.due(), after(6_000));
    }

    #[test]
    fn comments_of_a_stream_are_no_events() {
        assert!(!has_event(b":\n\n"));
        assert!(!has_event(b": keep-alive\n\n:\n\n"));
        assert!(has_event(b":\n\nevent: list_shown\ndata: {}\n\n"));
    }
}
