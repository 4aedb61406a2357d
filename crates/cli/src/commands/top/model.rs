//! The state of the screens: what was read last, what is selected, and what a key does.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use riglm_domain::id::SessionId;
use serde::de::DeserializeOwned;

use super::answers::{
    Overview, Prediction, SafeText, SessionDetail, SessionEntry, SessionPage, ToolEntry, ToolPage,
};
use crate::commands::control_port::ControlAnswer;

/// The largest number of characters of a filter.
const MAX_FILTER: usize = 60;

/// A view of the first row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tab {
    Now,
    Sessions,
    Tools,
}

impl Tab {
    pub(super) const ALL: [Self; 3] = [Self::Now, Self::Sessions, Self::Tools];

    /// Returns the name with its key.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Now => "1 Now",
            Self::Sessions => "2 Sessions",
            Self::Tools => "3 Tools",
        }
    }

    fn next(self) -> Self {
        match self {
            Self::Now => Self::Sessions,
            Self::Sessions => Self::Tools,
            Self::Tools => Self::Now,
        }
    }
}

/// The content of the body of the screen.
#[derive(Clone, Copy, Debug)]
pub(super) enum Body<'a> {
    Help,
    Now,
    Sessions,
    Session(&'a OpenSession),
    Tools,
}

/// The part that keys act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Views,
    /// The filter of the tools is typed.
    Filter,
    Help,
}

/// The figure that tools are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToolSort {
    Calls,
    Errors,
    P95,
    DefinitionTokens,
    ResultTokens,
    LastCall,
    Name,
}

impl ToolSort {
    fn next(self) -> Self {
        match self {
            Self::Calls => Self::Errors,
            Self::Errors => Self::P95,
            Self::P95 => Self::DefinitionTokens,
            Self::DefinitionTokens => Self::ResultTokens,
            Self::ResultTokens => Self::LastCall,
            Self::LastCall => Self::Name,
            Self::Name => Self::Calls,
        }
    }

    /// Sorts tools, the largest figure first and unknown ones last. Tools with the same figure are
    /// in the order of their names.
    fn sort(self, tools: &mut [&ToolEntry]) {
        tools.sort_by(|a, b| {
            let by_figure = match self {
                Self::Calls => b.calls.cmp(&a.calls),
                Self::Errors => b.errors.cmp(&a.errors),
                Self::P95 => b.latency_us.p95.cmp(&a.latency_us.p95),
                Self::DefinitionTokens => b.definition_tokens.cmp(&a.definition_tokens),
                Self::ResultTokens => b.result_tokens.cmp(&a.result_tokens),
                Self::LastCall => b.last_call.cmp(&a.last_call),
                Self::Name => std::cmp::Ordering::Equal,
            };
            by_figure.then_with(|| (&a.upstream, &a.tool).cmp(&(&b.upstream, &b.tool)))
        });
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventStream {
    Open,
    Closed,
}

/// A request for data of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Overview,
    Sessions,
    Session(SessionId),
    Prediction(SessionId),
    Tools,
}

impl Request {
    pub(super) fn path(&self) -> String {
        match self {
            Self::Overview => "/overview".into(),
            Self::Sessions => "/sessions?limit=200".into(),
            Self::Session(id) => format!("/sessions/{id}?limit=200"),
            Self::Prediction(id) => format!("/predictions/{id}?limit=5"),
            Self::Tools => "/tools?limit=1000".into(),
        }
    }
}

/// The reason for reading data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    /// The data is too old, or another view was opened.
    Schedule,
    Event,
}

/// The consequence of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Draw,
    /// Other data is needed.
    Read,
    Quit,
}

#[derive(Debug)]
pub(super) struct OpenSession {
    pub(super) entry: SessionEntry,
    /// `None` until it is read.
    pub(super) detail: Option<SessionDetail>,
    /// The reason why the newest detail is missing.
    pub(super) failure: Option<SafeText>,
    /// `None` until it is read.
    pub(super) prediction: Option<Prediction>,
    /// The reason why nothing is predicted.
    pub(super) no_prediction: Option<SafeText>,
}

/// The selected rows, from 0, or the first rows on the screen.
#[derive(Clone, Copy, Debug, Default)]
struct Positions {
    now: usize,
    sessions: usize,
    session: usize,
    tools: usize,
    help: usize,
}

/// The size of the body of a screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// The last position, from 0.
    pub(super) last: usize,
    /// The number of rows on the screen.
    pub(super) page: usize,
}

/// The state of the screens.
#[derive(Debug)]
pub(super) struct Model {
    tab: Tab,
    mode: Mode,
    positions: Positions,
    page: usize,
    sort: ToolSort,
    filter: String,
    overview: Option<Overview>,
    sessions: Option<Vec<SessionEntry>>,
    open: Option<OpenSession>,
    tools: Option<ToolPage>,
    events: EventStream,
    /// The reason why the newest overview is missing.
    failure: Option<SafeText>,
    /// The reason why the newest data of the view is missing.
    note: Option<SafeText>,
    n_proxies: usize,
}

impl Model {
    /// Returns the state before anything is read.
    pub(super) fn new() -> Self {
        Self {
            tab: Tab::Now,
            mode: Mode::Views,
            positions: Positions::default(),
            page: 1,
            sort: ToolSort::Calls,
            filter: String::new(),
            overview: None,
            sessions: None,
            open: None,
            tools: None,
            events: EventStream::Closed,
            failure: None,
            note: None,
            n_proxies: 1,
        }
    }

    pub(super) fn tab(&self) -> Tab {
        self.tab
    }

    /// Returns the content of the body of the screen.
    pub(super) fn body(&self) -> Body<'_> {
        match (self.mode, self.tab, &self.open) {
            (Mode::Help, ..) => Body::Help,
            (_, Tab::Now, _) => Body::Now,
            (_, Tab::Sessions, Some(session)) => Body::Session(session),
            (_, Tab::Sessions, None) => Body::Sessions,
            (_, Tab::Tools, _) => Body::Tools,
        }
    }

    pub(super) fn overview(&self) -> Option<&Overview> {
        self.overview.as_ref()
    }

    /// Returns the sessions, the newest first; `None` until they are read.
    pub(super) fn sessions(&self) -> Option<&[SessionEntry]> {
        self.sessions.as_deref()
    }

    /// Returns the page of tools; `None` until it is read.
    pub(super) fn tool_page(&self) -> Option<&ToolPage> {
        self.tools.as_ref()
    }

    /// Returns the tools that match the filter, in order.
    pub(super) fn tools(&self) -> Vec<&ToolEntry> {
        let wanted = self.filter.to_lowercase();
        let is_wanted = |tool: &&ToolEntry| {
            let name = format!("{} {}", tool.upstream.as_str(), tool.tool.as_str());
            name.to_lowercase().contains(&wanted)
        };
        let page = self.tools.iter();
        let all = page.flat_map(|page| &page.tools);
        let mut tools: Vec<&ToolEntry> = all.filter(is_wanted).collect();
        self.sort.sort(&mut tools);
        tools
    }

    pub(super) fn sort(&self) -> ToolSort {
        self.sort
    }

    /// Returns the filter of the tools, safe to show.
    pub(super) fn filter(&self) -> SafeText {
        self.filter.as_str().into()
    }

    pub(super) fn types_filter(&self) -> bool {
        self.mode == Mode::Filter
    }

    pub(super) fn events(&self) -> EventStream {
        self.events
    }

    /// Returns why the proxy does not answer, if so.
    pub(super) fn failure(&self) -> Option<&SafeText> {
        self.failure.as_ref()
    }

    /// Returns why the newest data of the view is missing, if so.
    pub(super) fn note(&self) -> Option<&SafeText> {
        self.note.as_ref()
    }

    /// Returns the number of proxies that answered.
    pub(super) fn n_proxies(&self) -> usize {
        self.n_proxies
    }

    /// Returns the selected row, from 0, or the first row on the screen.
    pub(super) fn position(&self) -> usize {
        match self.body() {
            Body::Help => self.positions.help,
            Body::Now => self.positions.now,
            Body::Sessions => self.positions.sessions,
            Body::Session(_) => self.positions.session,
            Body::Tools => self.positions.tools,
        }
    }

    fn move_to(&mut self, position: usize) {
        let place = match self.body() {
            Body::Help => &mut self.positions.help,
            Body::Now => &mut self.positions.now,
            Body::Sessions => &mut self.positions.sessions,
            Body::Session(_) => &mut self.positions.session,
            Body::Tools => &mut self.positions.tools,
        };
        *place = position;
    }

    /// Moves the selection into the rows that there are.
    pub(super) fn fit(&mut self, extent: Extent) {
        self.page = extent.page.max(1);
        self.move_to(self.position().min(extent.last));
    }

    /// Returns the requests for the data of the screen.
    pub(super) fn needs(&self, occasion: Occasion) -> Vec<Request> {
        let mut requests = vec![Request::Overview];
        match (self.tab, &self.open) {
            (Tab::Now, _) => {}
            (Tab::Sessions, None) => requests.push(Request::Sessions),
            (Tab::Sessions, Some(session)) => {
                let id = session.entry.id;
                requests.extend([Request::Session(id), Request::Prediction(id)]);
            }
            // The figures of all tools are costly, and a single call hardly changes them.
            (Tab::Tools, _) if occasion == Occasion::Event && self.tools.is_some() => {}
            (Tab::Tools, _) => requests.push(Request::Tools),
        }
        requests
    }

    /// Takes a change of the stream of events.
    pub(super) fn set_events(&mut self, events: EventStream) {
        self.events = events;
    }

    /// Takes an answer. An answer for another view than the present one is left out.
    pub(super) fn apply(&mut self, request: &Request, answer: ControlAnswer) {
        let n_proxies = match &answer {
            ControlAnswer::Said(bodies) => bodies.len(),
            ControlAnswer::NotRunning(_) | ControlAnswer::Unknown(_) => 0,
        };
        match *request {
            Request::Overview => match read(answer) {
                Ok(overview) => {
                    self.overview = Some(overview);
                    (self.failure, self.note) = (None, None);
                    self.n_proxies = n_proxies;
                }
                Err(NoData(why)) => self.failure = Some(why),
            },
            Request::Sessions => match read::<SessionPage>(answer) {
                Ok(page) => self.replace_sessions(page.sessions),
                Err(NoData(why)) => self.note = Some(why),
            },
            Request::Tools => match read(answer) {
                Ok(page) => self.replace_tools(page),
                Err(NoData(why)) => self.note = Some(why),
            },
            Request::Session(id) => {
                if let Some(open) = self.open.as_mut().filter(|open| open.entry.id == id) {
                    match read(answer) {
                        Ok(detail) => (open.detail, open.failure) = (Some(detail), None),
                        Err(NoData(why)) => open.failure = Some(why),
                    }
                }
            }
            Request::Prediction(id) => {
                if let Some(open) = self.open.as_mut().filter(|open| open.entry.id == id) {
                    (open.prediction, open.no_prediction) = match read(answer) {
                        Ok(prediction) => (Some(prediction), None),
                        Err(NoData(why)) => (None, Some(why)),
                    };
                }
            }
        }
    }

    /// Replaces the sessions. The same session stays selected.
    fn replace_sessions(&mut self, mut sessions: Vec<SessionEntry>) {
        let overview = self.overview.as_ref();
        let with_lists = overview.and_then(|it| it.open_sessions.as_ref());
        for known in with_lists.into_iter().flatten() {
            if let Some(session) = sessions.iter_mut().find(|it| it.id == known.id) {
                session.lists.clone_from(&known.lists);
            }
        }
        let selected = self.selected_session().map(|session| session.id);
        let place = sessions.iter().position(|it| Some(it.id) == selected);
        self.positions.sessions = place.unwrap_or(self.positions.sessions);
        self.sessions = Some(sessions);
    }

    /// Replaces the tools. The same tool stays selected.
    fn replace_tools(&mut self, page: ToolPage) {
        let place = self.positions.tools;
        let selected = self.tools().get(place).map(|tool| (*tool).clone());
        self.tools = Some(page);
        let Some(selected) = selected.filter(|_| place > 0) else {
            return;
        };
        let is_same =
            |tool: &&ToolEntry| tool.upstream == selected.upstream && tool.tool == selected.tool;
        self.positions.tools = self.tools().iter().position(is_same).unwrap_or(place);
    }

    fn selected_session(&self) -> Option<&SessionEntry> {
        self.sessions.as_ref()?.get(self.positions.sessions)
    }

    pub(super) fn press(&mut self, key: KeyEvent) -> Effect {
        if key.kind == KeyEventKind::Release {
            return Effect::Draw;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Effect::Quit,
                _ => Effect::Draw,
            };
        }
        match self.mode {
            Mode::Filter => {
                self.type_filter(key.code);
                Effect::Draw
            }
            Mode::Help if matches!(key.code, KeyCode::Esc | KeyCode::Char('?')) => {
                self.mode = Mode::Views;
                Effect::Draw
            }
            Mode::Help | Mode::Views => self.press_in_view(key.code),
        }
    }

    fn type_filter(&mut self, code: KeyCode) {
        self.positions.tools = 0;
        match code {
            KeyCode::Char(character) if self.filter.chars().count() < MAX_FILTER => {
                self.filter.push(character);
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Enter => self.mode = Mode::Views,
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = Mode::Views;
            }
            _ => {}
        }
    }

    fn press_in_view(&mut self, code: KeyCode) -> Effect {
        let position = self.position();
        let is_tools = self.tab == Tab::Tools;
        match code {
            KeyCode::Char('q') => return Effect::Quit,
            KeyCode::Char('1') => return self.show(Tab::Now),
            KeyCode::Char('2') => return self.show(Tab::Sessions),
            KeyCode::Char('3') => return self.show(Tab::Tools),
            KeyCode::Tab => return self.show(self.tab.next()),
            // One back of three is two forward.
            KeyCode::BackTab => return self.show(self.tab.next().next()),
            KeyCode::Char('?') => (self.mode, self.positions.help) = (Mode::Help, 0),
            KeyCode::Char('j') | KeyCode::Down => self.move_to(position.saturating_add(1)),
            KeyCode::Char('k') | KeyCode::Up => self.move_to(position.saturating_sub(1)),
            KeyCode::PageDown => self.move_to(position.saturating_add(self.page)),
            KeyCode::PageUp => self.move_to(position.saturating_sub(self.page)),
            KeyCode::Char('g') | KeyCode::Home => self.move_to(0),
            KeyCode::Char('G') | KeyCode::End => self.move_to(usize::MAX),
            KeyCode::Char('r') => return Effect::Read,
            KeyCode::Char('s') if is_tools => {
                (self.sort, self.positions.tools) = (self.sort.next(), 0);
            }
            KeyCode::Char('/') if is_tools => self.mode = Mode::Filter,
            KeyCode::Enter => return self.open_selected(),
            KeyCode::Esc if is_tools => self.filter.clear(),
            KeyCode::Esc if self.tab == Tab::Sessions && self.open.is_some() => {
                self.open = None;
                return Effect::Read;
            }
            _ => {}
        }
        Effect::Draw
    }

    fn show(&mut self, tab: Tab) -> Effect {
        // The key of the view that is open leads back to its list.
        if self.tab == tab && self.mode == Mode::Views {
            self.open = None;
        }
        (self.tab, self.mode, self.note) = (tab, Mode::Views, None);
        Effect::Read
    }

    fn open_selected(&mut self) -> Effect {
        if !matches!(self.body(), Body::Sessions) {
            return Effect::Draw;
        }
        let Some(entry) = self.selected_session().cloned() else {
            return Effect::Draw;
        };
        self.positions.session = 0;
        self.open = Some(OpenSession {
            entry,
            detail: None,
            failure: None,
            prediction: None,
            no_prediction: None,
        });
        Effect::Read
    }
}

/// The reason why there is no data.
#[derive(Debug)]
struct NoData(SafeText);

/// Reads the answer of the first proxy.
fn read<T: DeserializeOwned>(answer: ControlAnswer) -> Result<T, NoData> {
    let body = match answer {
        ControlAnswer::Said(bodies) => bodies.into_iter().next().unwrap_or_default(),
        silent => return Err(NoData(silent.reason().into())),
    };
    serde_json::from_value(body).map_err(|error| {
        let reason = format!("the proxy is of another version: its answer has {error}");
        NoData(reason.into())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::commands::top::samples;

    fn press(model: &mut Model, keys: &str) -> Vec<Effect> {
        let codes = keys.chars().map(|key| match key {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            '\t' => KeyCode::Tab,
            '\x08' => KeyCode::Backspace,
            key => KeyCode::Char(key),
        });
        codes
            .map(|code| model.press(KeyEvent::new(code, KeyModifiers::NONE)))
            .collect()
    }

    fn apply(model: &mut Model, request: &Request, body: Value) {
        model.apply(request, ControlAnswer::Said(vec![body]));
    }

    fn names(model: &Model) -> Vec<&str> {
        model
            .tools()
            .iter()
            .map(|tool| tool.tool.as_str())
            .collect()
    }

    #[test]
    fn each_view_asks_only_for_what_it_shows() {
        let mut model = samples::model();
        let paths = |model: &Model, occasion| -> Vec<String> {
            model.needs(occasion).iter().map(Request::path).collect()
        };
        assert_eq!(paths(&model, Occasion::Event), ["/overview"]);
        assert_eq!(press(&mut model, "2"), [Effect::Read]);
        let sessions = ["/overview", "/sessions?limit=200"];
        assert_eq!(paths(&model, Occasion::Event), sessions);
        assert_eq!(press(&mut model, "\n"), [Effect::Read]);
        let id = samples::SESSION;
        let session = [
            "/overview".to_owned(),
            format!("/sessions/{id}?limit=200"),
            format!("/predictions/{id}?limit=5"),
        ];
        assert_eq!(paths(&model, Occasion::Event), session);
        press(&mut model, "3");
        assert_eq!(paths(&model, Occasion::Event), ["/overview"]);
        let tools = ["/overview", "/tools?limit=1000"];
        assert_eq!(paths(&model, Occasion::Schedule), tools);
    }

    #[test]
    fn tools_are_sorted_and_filtered() {
        let mut model = samples::model();
        press(&mut model, "3");
        assert_eq!(names(&model)[..2], ["read_file", "create_issue"]);
        press(&mut model, "s");
        assert_eq!(model.sort(), ToolSort::Errors);
        assert_eq!(names(&model)[0], "create_issue");
        // A typed q belongs to the filter.
        assert_eq!(
            press(&mut model, "/Qq\x08\x08FILES re\n"),
            [Effect::Draw; 14]
        );
        assert_eq!(names(&model), ["read_file"]);
        press(&mut model, "\x1b");
        assert!(names(&model).len() > 1);
    }

    #[test]
    fn the_selection_follows_its_row_and_stays_within_the_rows() {
        let mut model = samples::model();
        press(&mut model, "3G");
        model.fit(Extent { last: 2, page: 10 });
        assert_eq!(model.position(), 2);
        press(&mut model, "kk");
        assert_eq!(model.position(), 0);
        press(&mut model, "j");
        let selected = names(&model)[1].to_owned();
        let mut page = samples::tools();
        page["tools"][0]["calls"] = json!(0);
        apply(&mut model, &Request::Tools, page);
        assert_eq!(names(&model)[model.position()], selected);
        // Fewer rows than before.
        apply(&mut model, &Request::Tools, json!({"tools": []}));
        model.fit(Extent { last: 0, page: 10 });
        assert_eq!(model.position(), 0);
    }

    #[test]
    fn the_last_data_stays_while_the_proxy_is_away() {
        let mut model = samples::model();
        let silent = ControlAnswer::NotRunning("nothing listens\x1b[2J".into());
        model.apply(&Request::Overview, silent);
        assert_eq!(
            model.failure().unwrap().as_str(),
            "nothing listens\\u{1b}[2J"
        );
        assert!(model.overview().is_some());
        apply(&mut model, &Request::Overview, json!({"version": "odd"}));
        let failure = model.failure().unwrap().as_str().to_owned();
        assert!(failure.contains("another version"), "{failure}");
        apply(&mut model, &Request::Overview, samples::overview());
        assert!(model.failure().is_none());
    }

    #[test]
    fn keys_quit_help_and_close() {
        let mut model = samples::model();
        assert_eq!(press(&mut model, "?"), [Effect::Draw]);
        assert!(matches!(model.body(), Body::Help));
        press(&mut model, "\x1b");
        assert!(matches!(model.body(), Body::Now));
        press(&mut model, "\t\n");
        assert!(matches!(model.body(), Body::Session(_)));
        press(&mut model, "\x1b");
        assert!(matches!(model.body(), Body::Sessions));
        assert_eq!(press(&mut model, "q"), [Effect::Quit]);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        press(&mut model, "3/");
        assert_eq!(model.press(interrupt), Effect::Quit);
    }
}
