//! The screens, as a function of the state.

use jiff::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use riglm_domain::num::{ratio, to_f64};

use super::answers::{
    CallEntry, ListEntry, Overview, SafeText, SearchEntry, SessionEntry, TimelineEntry, ToolEntry,
    ToolPage, Totals, Upstream,
};
use super::cells::{Column, Side, cells_of, cut, pad, table_row, wrap};
use super::model::{Body, EventStream, Extent, Model, OpenSession, Tab, ToolSort};
use crate::output::{number_of, with_separators};

/// The cells of the names of figures.
const LABEL_WIDTH: usize = 17;

const UPSTREAM_COLUMNS: [Column; 5] = [
    Column::text("UPSTREAM", 16),
    Column::text("STATE", 11),
    Column::number("TOOLS", 7),
    Column::number("HELD CHANGES", 12),
    Column::number("CONNECTIONS", 11),
];

const SESSION_COLUMNS: [Column; 7] = [
    Column::text("CLIENT", 14),
    Column::text("STARTED", 8),
    Column::text("ENDED", 8),
    Column::number("CALLS", 7),
    Column::number("SHOWN", 9),
    Column::number("SAVED", 9),
    Column::number("MISSED", 6),
];

const TOOL_COLUMNS: [Column; 7] = [
    Column::text("TOOL", 16),
    Column::number("CALLS", 7),
    Column::number("ERRORS", 7),
    Column::number("P95", 8),
    Column::number("DEFIN.", 7),
    Column::number("RESULT", 7),
    Column::text("LAST", 7),
];

const HELP: [&str; 16] = [
    "1, 2, 3, Tab   Views: now, sessions, tools",
    "j, k, arrows   Next and previous row; Page Up, Page Down",
    "g, G           First and last row",
    "Enter          Open the selected session: what comes next, and its timeline",
    "Esc            Close the session, or remove the filter",
    "s              Sort the tools by the next figure; its column is marked with *",
    "/              Filter the tools by name",
    "r              Read everything now",
    "?              This help, and back",
    "q, Ctrl-C      Quit",
    "",
    "Figures of the first view are of the last 24 hours, and those of tools of the",
    "last 30 days. SAVED and the tokens are estimates. MISSED counts tools that were",
    "called although the list did not have them. P95 is the duration that 95 % of",
    "the calls did not exceed. DEFIN. and RESULT are the tokens of the definition",
    "and of a usual result. The page in the browser has more: riglm open.",
];

/// The display of emphasis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Palette {
    Color,
    /// Only bold and reversed text.
    Monochrome,
}

/// The meaning of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tone {
    Plain,
    Heading,
    Dim,
    Bad,
}

impl Palette {
    fn style(self, tone: Tone) -> Style {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        match (self, tone) {
            (_, Tone::Heading) | (Self::Monochrome, Tone::Bad) => bold,
            (Self::Color, Tone::Bad) => bold.fg(Color::Red),
            (Self::Color, Tone::Dim) => Style::new().add_modifier(Modifier::DIM),
            (_, Tone::Plain) | (Self::Monochrome, Tone::Dim) => Style::new(),
        }
    }
}

/// A row of the body.
#[derive(Debug)]
struct Row {
    text: String,
    tone: Tone,
}

impl Row {
    fn new(tone: Tone, text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            tone,
        }
    }

    fn plain(text: impl Into<String>) -> Self {
        Self::new(Tone::Plain, text)
    }

    fn blank() -> Self {
        Self::plain("")
    }

    fn figure(label: &str, value: &str) -> Self {
        Self::plain(format!("{label:<LABEL_WIDTH$} {value}"))
    }
}

/// Draws the screen.
pub(super) fn render(model: &Model, palette: Palette, area: Rect, buffer: &mut Buffer) {
    if area.is_empty() {
        return;
    }
    let canvas = Canvas { palette, area };
    canvas.header(model, buffer);
    canvas.status(model, buffer);
    canvas.body(model, buffer);
    canvas.keys(model, buffer);
}

/// Returns the size of the body of a screen.
pub(super) fn extent(model: &Model, area: Rect) -> Extent {
    let height = usize::from(body_area(area).height);
    let width = usize::from(area.width);
    // The first row of a list is its heading.
    let of_list = |n_items: usize| Extent {
        last: n_items.saturating_sub(1),
        page: height.saturating_sub(1),
    };
    let of_rows = |n_rows: usize| Extent {
        last: n_rows.saturating_sub(height),
        page: height,
    };
    match model.body() {
        Body::Help => of_rows(HELP.len()),
        Body::Now => of_rows(now_rows(model, width).len()),
        Body::Session(session) => of_rows(session_rows(session, clock(model), width).len()),
        Body::Sessions => of_list(model.sessions().map_or(0, <[_]>::len)),
        Body::Tools => of_list(model.tools().len()),
    }
}

/// Returns a screen of 80 x 24 as plain text.
pub(super) fn plain_screen(model: &Model) -> String {
    let area = Rect::new(0, 0, 80, 24);
    let mut buffer = Buffer::empty(area);
    render(model, Palette::Monochrome, area, &mut buffer);
    text_of(&buffer)
}

/// Returns the text of a buffer, without spaces at the ends of its lines.
fn text_of(buffer: &Buffer) -> String {
    let area = buffer.area;
    let lines = (area.top()..area.bottom()).map(|y| {
        let mut line = String::new();
        let mut x = area.left();
        while let Some(cell) = buffer.cell((x, y)) {
            line.push_str(cell.symbol());
            // The cells behind a wide character have no text of their own.
            let width = cells_of(cell.symbol()).max(1);
            x = x.saturating_add(u16::try_from(width).unwrap_or(1));
        }
        line.trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the part of the screen between the first two rows and the last one.
fn body_area(area: Rect) -> Rect {
    let above = area.height.min(2);
    let below = u16::from(area.height > 3);
    Rect::new(
        area.x,
        area.y + above,
        area.width,
        area.height - above - below,
    )
}

/// Returns the time of the clock of the proxy.
fn clock(model: &Model) -> Timestamp {
    model.overview().map(|it| it.at).unwrap_or_default()
}

/// A screen to draw on.
#[derive(Clone, Copy, Debug)]
struct Canvas {
    palette: Palette,
    area: Rect,
}

impl Canvas {
    fn width(self) -> usize {
        usize::from(self.area.width)
    }

    fn put(self, buffer: &mut Buffer, y: u16, line: &Line<'_>) {
        buffer.set_line(self.area.x, y, line, self.area.width);
    }

    fn put_row(self, buffer: &mut Buffer, y: u16, row: &Row) {
        let text = cut(&row.text, self.width());
        let line = Line::from(Span::styled(text, self.palette.style(row.tone)));
        self.put(buffer, y, &line);
    }

    /// Draws the views, and whether the data is new.
    fn header(self, model: &Model, buffer: &mut Buffer) {
        let mut spans = vec![Span::styled("riglm ", self.palette.style(Tone::Heading))];
        for tab in Tab::ALL {
            let style = if tab == model.tab() {
                Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD)
            } else {
                Style::new()
            };
            spans.extend([
                Span::raw(" "),
                Span::styled(format!(" {} ", tab.label()), style),
            ]);
        }
        let state = match (model.failure(), model.events()) {
            (Some(_), _) => "reconnecting",
            (None, EventStream::Open) => "live",
            (None, EventStream::Closed) => "no events",
        };
        let tone = if model.failure().is_some() {
            Tone::Bad
        } else {
            Tone::Plain
        };
        let mut line = Line::from(spans);
        let space = self.width().checked_sub(line.width() + cells_of(state));
        if let Some(space) = space.filter(|space| *space > 0) {
            line.push_span(Span::raw(" ".repeat(space)));
            line.push_span(Span::styled(state, self.palette.style(tone)));
        }
        self.put(buffer, self.area.y, &line);
    }

    /// Draws what is unusual, or else facts of the proxy.
    fn status(self, model: &Model, buffer: &mut Buffer) {
        if self.area.height < 2 {
            return;
        }
        let row = status_row(model);
        self.put_row(buffer, self.area.y + 1, &row);
    }

    /// Draws the keys that do something.
    fn keys(self, model: &Model, buffer: &mut Buffer) {
        if self.area.height < 4 {
            return;
        }
        let row = if model.types_filter() {
            let text = format!("/{}_   Enter keep   Esc remove", model.filter().as_str());
            Row::plain(text)
        } else {
            let keys = match model.body() {
                Body::Help => "? back   q quit",
                Body::Now => "1 2 3 views   j k scroll   r read   ? help   q quit",
                Body::Sessions => "1 2 3 views   j k select   Enter open   ? help   q quit",
                Body::Session(_) => "1 2 3 views   j k scroll   Esc close   ? help   q quit",
                Body::Tools => "1 2 3 views   j k select   s sort   / filter   ? help   q quit",
            };
            Row::new(Tone::Dim, keys)
        };
        self.put_row(buffer, self.area.bottom() - 1, &row);
    }

    fn body(self, model: &Model, buffer: &mut Buffer) {
        match model.body() {
            Body::Help => {
                let rows = HELP.map(Row::plain);
                self.scroll(buffer, model.position(), &rows);
            }
            Body::Now => self.scroll(buffer, model.position(), &now_rows(model, self.width())),
            Body::Session(session) => {
                let rows = session_rows(session, clock(model), self.width());
                self.scroll(buffer, model.position(), &rows);
            }
            Body::Sessions => self.sessions(model, buffer),
            Body::Tools => self.tools(model, buffer),
        }
    }

    /// Draws rows from a position.
    fn scroll(self, buffer: &mut Buffer, position: usize, rows: &[Row]) {
        let area = body_area(self.area);
        for (y, row) in (area.top()..area.bottom()).zip(rows.iter().skip(position)) {
            self.put_row(buffer, y, row);
        }
    }

    /// Draws the page of a list that has the selected row.
    fn list<T>(
        self,
        buffer: &mut Buffer,
        selected: usize,
        table: &Table<'_, T>,
        to_row: impl Fn(&T) -> Row,
    ) {
        let area = body_area(self.area);
        if area.is_empty() {
            return;
        }
        self.put_row(buffer, area.y, &Row::new(Tone::Heading, table.heading));
        let page = usize::from(area.height - 1).max(1);
        let start = selected / page * page;
        let ys = (area.top()..area.bottom()).skip(1);
        for (y, (place, item)) in ys.zip(table.items.iter().enumerate().skip(start)) {
            self.put_row(buffer, y, &to_row(item));
            if place == selected {
                let row = Rect::new(area.x, y, area.width, 1);
                buffer.set_style(row, Style::new().add_modifier(Modifier::REVERSED));
            }
        }
        if table.items.is_empty() {
            for (y, text) in (area.top()..area.bottom()).skip(1).zip(table.empty) {
                self.put_row(buffer, y, &Row::plain(*text));
            }
        }
    }

    fn sessions(self, model: &Model, buffer: &mut Buffer) {
        let width = self.width();
        let headings = SESSION_COLUMNS.map(|column| column.heading);
        let empty: &[&str] = if model.sessions().is_some() {
            &["No session is recorded. Add riglm to a client: riglm install"]
        } else {
            unread(model)
        };
        let table = Table {
            heading: &table_row(&SESSION_COLUMNS, &headings, width),
            items: model.sessions().unwrap_or_default(),
            empty,
        };
        let now = clock(model);
        self.list(buffer, model.position(), &table, |session| {
            Row::plain(session_line(session, now, width))
        });
    }

    fn tools(self, model: &Model, buffer: &mut Buffer) {
        let width = self.width();
        let empty: &[&str] = match model.tool_page() {
            None => unread(model),
            Some(page) if page.tools.is_empty() => {
                &["No upstream has listed a tool. Add servers: riglm import"]
            }
            Some(_) => &["No tool has the filter in its name. Esc removes the filter."],
        };
        let tools = model.tools();
        let table = Table {
            heading: &tool_heading(model.sort(), width),
            items: &tools,
            empty,
        };
        let now = clock(model);
        self.list(buffer, model.position(), &table, |tool| {
            Row::plain(tool_line(tool, now, width))
        });
    }
}

/// Returns the text in place of a list that is not read yet.
fn unread(model: &Model) -> &'static [&'static str] {
    match model.note() {
        None => &["Reading ..."],
        // The reason is in the second row of the screen.
        Some(_) => &["There is nothing to show."],
    }
}

/// A list with its heading.
#[derive(Debug)]
struct Table<'a, T> {
    heading: &'a str,
    items: &'a [T],
    /// The text if there is no item.
    empty: &'a [&'a str],
}

/// Returns the second row of the screen.
fn status_row(model: &Model) -> Row {
    let Some(overview) = model.overview() else {
        let why = model.failure().map_or("Reading ...", SafeText::as_str);
        return Row::plain(why);
    };
    if let Some(why) = model.failure() {
        let at = overview.at.strftime("%H:%M:%S");
        let text = format!("Data of {at} UTC. {}", why.as_str());
        return Row::new(Tone::Bad, text);
    }
    if let Some(why) = model.note() {
        return Row::new(Tone::Bad, why.as_str());
    }
    if overview.paused {
        let until = overview.paused_until.map_or("riglm resume".into(), |end| {
            format!("{} UTC", end.strftime("%H:%M"))
        });
        return Row::new(
            Tone::Bad,
            format!("Paused until {until}: all tools are shown"),
        );
    }
    if model.tab() == Tab::Tools && !model.filter().as_str().is_empty() && !model.types_filter() {
        let n_tools = number_of(model.tools().len(), "tool");
        return Row::plain(format!("{n_tools} with {}", model.filter().as_str()));
    }
    let is_cut = |page: &ToolPage| page.next_cursor.is_some();
    if model.tab() == Tab::Tools && model.tool_page().is_some_and(is_cut) {
        return Row::plain("Only the first 1,000 tools, in the order of their names");
    }
    let mut facts = vec![
        format!("version {}", overview.version.as_str()),
        format!("strategy {}", overview.strategy.as_str()),
    ];
    if let Some(started_at) = overview.started_at {
        facts.push(format!("up {}", age(started_at, overview.at)));
    }
    if model.n_proxies() > 1 {
        let n_proxies = model.n_proxies();
        facts.push(format!("the first of {n_proxies} proxies (--control ADDR)"));
    }
    Row::new(Tone::Dim, facts.join(", "))
}

/// Returns the rows of the first view.
fn now_rows(model: &Model, width: usize) -> Vec<Row> {
    let Some(overview) = model.overview() else {
        return Vec::new();
    };
    let mut rows = match &overview.totals {
        None => vec![
            Row::plain("Nothing is recorded (recording.mode is off), so there are no figures of"),
            Row::plain("sessions and tools."),
        ],
        Some(totals) if totals.sessions == 0 => vec![Row::plain(
            "No session in the last 24 hours. Add riglm to a client: riglm install",
        )],
        Some(totals) => figures(totals),
    };
    rows.push(Row::blank());
    rows.extend(upstream_rows(&overview.upstreams, width));
    rows.push(Row::blank());
    rows.extend(open_session_rows(overview, width));
    rows
}

fn figures(totals: &Totals) -> Vec<Row> {
    let failed = match totals.failed_calls {
        0 => "none failed".to_owned(),
        n_failed => format!("{} failed", with_separators(n_failed)),
    };
    let covered = match totals.tools_used {
        0 => "no tool was used".to_owned(),
        _ => format!(
            "{} of {} were in the list ({})",
            with_separators(totals.first_uses_covered),
            with_separators(totals.tools_used),
            percent(totals.first_uses_covered, totals.tools_used)
        ),
    };
    let shown = format!(
        "{} of {} ({})",
        with_separators(totals.shown_tools),
        with_separators(totals.available_tools),
        percent(totals.shown_tools, totals.available_tools)
    );
    let calls = format!("{}, {failed}", with_separators(totals.calls));
    vec![
        Row::new(
            Tone::Heading,
            format!("Last 24 hours: {}", number_of(totals.sessions, "session")),
        ),
        Row::figure("Tools shown", &shown),
        Row::figure(
            "Tokens saved",
            &format!("{} (gross)", with_sign(totals.tokens_saved)),
        ),
        Row::figure("First uses", &covered),
        Row::figure("Searches", &with_separators(totals.searches)),
        Row::figure("Calls", &calls),
    ]
}

fn upstream_rows(upstreams: &[Upstream], width: usize) -> Vec<Row> {
    if upstreams.is_empty() {
        return vec![Row::plain(
            "No upstream is configured. Add servers: riglm import",
        )];
    }
    let headings = UPSTREAM_COLUMNS.map(|column| column.heading);
    let heading = table_row(&UPSTREAM_COLUMNS, &headings, width);
    let mut rows = vec![Row::new(Tone::Heading, heading)];
    for upstream in upstreams {
        let tools = upstream.tool_set.as_ref();
        let tools = tools.map_or("-".into(), |set| with_separators(set.tools));
        let held = with_separators(upstream.held.len());
        let connections = with_separators(upstream.connections);
        let state = upstream.state.as_str();
        let texts: [&str; 5] = [upstream.name.as_str(), state, &tools, &held, &connections];
        let tone = if state == "unavailable" {
            Tone::Bad
        } else {
            Tone::Plain
        };
        rows.push(Row::new(tone, table_row(&UPSTREAM_COLUMNS, &texts, width)));
        if let Some(reason) = &upstream.reason {
            let lines = wrap(reason.as_str(), width.saturating_sub(4)).into_iter();
            rows.extend(lines.map(|line| Row::plain(format!("    {line}"))));
        }
    }
    rows
}

fn open_session_rows(overview: &Overview, width: usize) -> Vec<Row> {
    let sessions = match &overview.open_sessions {
        None => return Vec::new(),
        Some(sessions) if sessions.is_empty() => return vec![Row::plain("No session is open.")],
        Some(sessions) => sessions.iter(),
    };
    let mut headings = SESSION_COLUMNS.map(|column| column.heading);
    headings[0] = "OPEN SESSIONS";
    let heading = table_row(&SESSION_COLUMNS, &headings, width);
    let mut rows = vec![Row::new(Tone::Heading, heading)];
    rows.extend(sessions.map(|session| Row::plain(session_line(session, overview.at, width))));
    if overview.more_open_sessions {
        rows.push(Row::new(Tone::Dim, "More sessions are open: key 2"));
    }
    rows
}

fn session_line(session: &SessionEntry, now: Timestamp, width: usize) -> String {
    let client = match &session.profile {
        Some(profile) => format!("{} ({})", session.client.as_str(), profile.as_str()),
        None => session.client.as_str().to_owned(),
    };
    let started = age(session.started_at, now);
    let ended = session.ended_at.map_or("open".into(), |at| age(at, now));
    let more = if session.has_more_calls { "+" } else { "" };
    let calls = format!("{}{more}", with_separators(session.calls));
    let [shown, saved, missed] = match &session.lists {
        Some(lists) => [
            format!("{}/{}", lists.shown_tools, lists.available_tools),
            with_sign(lists.tokens_saved),
            with_separators(lists.misses),
        ],
        None => ["-", "-", "-"].map(str::to_owned),
    };
    let texts = [&client, &started, &ended, &calls, &shown, &saved, &missed];
    table_row(&SESSION_COLUMNS, &texts.map(String::as_str), width)
}

/// Returns the rows of a session: what comes next, and the timeline with the newest entry first.
fn session_rows(session: &OpenSession, now: Timestamp, width: usize) -> Vec<Row> {
    let entry = &session.entry;
    let policy = entry.lists.as_ref().map(|lists| lists.policy.as_str());
    let mut title = format!("Session of {}, {}", entry.client.as_str(), entry.id);
    if let Some(policy) = policy.filter(|policy| !policy.is_empty()) {
        title = format!("{title}, policy {policy}");
    }
    let mut rows = vec![Row::new(Tone::Heading, title)];
    rows.extend(prediction_rows(session, width));
    rows.push(Row::blank());
    let Some(detail) = &session.detail else {
        let why = session
            .failure
            .as_ref()
            .map_or("Reading ...", SafeText::as_str);
        rows.extend(wrap(why, width).into_iter().map(Row::plain));
        return rows;
    };
    let missed = number_of(detail.misses, "tool");
    let heading = format!("Timeline, newest first; {missed} called that the list did not have");
    rows.push(Row::new(Tone::Heading, heading));
    if detail.timeline.is_empty() {
        rows.push(Row::plain("Nothing happened yet."));
    }
    let entries = detail.timeline.iter().rev();
    rows.extend(entries.filter_map(|entry| timeline_row(entry, now)));
    if detail.is_cut {
        rows.push(Row::new(Tone::Dim, "Older entries are left out."));
    }
    rows
}

fn prediction_rows(session: &OpenSession, width: usize) -> Vec<Row> {
    let wrapped = |text: &str| -> Vec<Row> {
        let lines = wrap(text, width.saturating_sub(4)).into_iter();
        lines
            .map(|line| Row::plain(format!("    {line}")))
            .collect()
    };
    let mut rows = vec![Row::new(Tone::Heading, "What probably comes next")];
    let Some(prediction) = &session.prediction else {
        let why = session.no_prediction.as_ref();
        rows.extend(wrapped(why.map_or("Reading ...", SafeText::as_str)));
        return rows;
    };
    for tool in &prediction.tools {
        let place = if tool.shown { "in the list" } else { "hidden" };
        let name_width = width.saturating_sub(place.len() + 5);
        let name = cut(tool.name.as_str(), name_width);
        rows.push(Row::plain(format!("  {name}, {place}")));
        rows.extend(wrapped(tool.sentence.as_str()));
    }
    if let Some(because) = &prediction.list_because {
        let text = format!("The list: {}", because.as_str());
        rows.extend(wrap(&text, width).into_iter().map(Row::plain));
    }
    rows
}

/// Returns the row of an entry; `None` for an unknown kind.
fn timeline_row(entry: &TimelineEntry, now: Timestamp) -> Option<Row> {
    let (at, tone, text) = match entry {
        TimelineEntry::Call(call) => (call.at, call_tone(call), call_text(call)),
        TimelineEntry::List(list) => (list.at, Tone::Plain, list_text(list)),
        TimelineEntry::Search(search) => (search.at, Tone::Plain, search_text(search)),
        TimelineEntry::Other => return None,
    };
    let age = pad(&age(at, now), 7, Side::Right);
    Some(Row::new(tone, format!("{age}  {text}")))
}

fn call_tone(call: &CallEntry) -> Tone {
    let outcome = call.outcome.as_ref().map(SafeText::as_str);
    match outcome {
        Some("error" | "timeout") => Tone::Bad,
        _ => Tone::Plain,
    }
}

fn call_text(call: &CallEntry) -> String {
    let outcome = call.outcome.as_ref().map_or("in flight", SafeText::as_str);
    let name = cut(
        &format!("{} {}", call.upstream.as_str(), call.tool.as_str()),
        44,
    );
    let mut text = format!("call    {name}  {outcome}");
    if let Some(taken) = call.duration_us {
        text = format!("{text}, {}", duration(taken));
    }
    if call.is_miss {
        text.push_str(", not in the list");
    }
    text
}

fn list_text(list: &ListEntry) -> String {
    let (n_shown, n_all) = (list.tools.len(), list.available_tools);
    let mut text = format!("list    {n_shown} of {}", number_of(n_all, "tool"));
    if let Some(tokens) = list.shown_tokens {
        text = format!("{text}, {}", number_of(tokens, "token"));
    }
    text = format!("{text}, policy {}", list.policy.as_str());
    for (label, value) in [("mode", &list.mode), ("reason", &list.reason)] {
        if let Some(value) = value {
            text = format!("{text}, {label} {}", value.as_str());
        }
    }
    text
}

fn search_text(search: &SearchEntry) -> String {
    let query = search.query.as_ref();
    let query = query.map_or("(query not stored)".into(), |query| {
        format!("\"{}\"", cut(query.as_str(), 34))
    });
    let n_results = number_of(search.results.len(), "result");
    format!(
        "search  {query}, {n_results}, quality {}",
        search.quality.as_str()
    )
}

fn tool_heading(sort: ToolSort, width: usize) -> String {
    let sorted = match sort {
        ToolSort::Name => 0,
        ToolSort::Calls => 1,
        ToolSort::Errors => 2,
        ToolSort::P95 => 3,
        ToolSort::DefinitionTokens => 4,
        ToolSort::ResultTokens => 5,
        ToolSort::LastCall => 6,
    };
    let mut headings = TOOL_COLUMNS.map(|column| column.heading.to_owned());
    headings[sorted].insert(0, '*');
    let headings = headings.each_ref().map(String::as_str);
    table_row(&TOOL_COLUMNS, &headings, width)
}

fn tool_line(tool: &ToolEntry, now: Timestamp, width: usize) -> String {
    let name = format!("{} {}", tool.upstream.as_str(), tool.tool.as_str());
    let known = |tokens: Option<String>| tokens.unwrap_or_else(|| "-".to_owned());
    let calls = with_separators(tool.calls);
    let errors = with_separators(tool.errors);
    let p95 = known(tool.latency_us.p95.map(duration));
    let definition = known(tool.definition_tokens.map(with_separators));
    let result = known(tool.result_tokens.map(with_separators));
    let last = tool.last_call.map_or("never".into(), |at| age(at, now));
    let texts = [&name, &calls, &errors, &p95, &definition, &result, &last];
    table_row(&TOOL_COLUMNS, &texts.map(String::as_str), width)
}

/// Returns the time between a moment and now in its largest unit.
fn age(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(at).as_secs();
    match seconds {
        ..1 => "now".to_owned(),
        1..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Returns a duration in its largest unit.
fn duration(microseconds: u64) -> String {
    let seconds = to_f64(microseconds) / 1e6;
    match microseconds {
        0..10_000 => format!("{:.1} ms", seconds * 1e3),
        10_000..1_000_000 => format!("{:.0} ms", seconds * 1e3),
        1_000_000..60_000_000 => format!("{seconds:.1} s"),
        _ => format!("{:.0} min", seconds / 60.0),
    }
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.0} %", 100.0 * ratio(part, whole))
}

/// Returns a number that may be negative, with separators.
fn with_sign(number: i64) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", with_separators(number.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
    use serde_json::json;

    use super::*;
    use crate::commands::control_port::ControlAnswer;
    use crate::commands::top::model::Request;
    use crate::commands::top::samples;

    /// Returns the screen after some keys.
    fn screen(model: &mut Model, keys: &str, width: u16, height: u16) -> String {
        for key in keys.chars() {
            let code = match key {
                '\n' => KeyCode::Enter,
                key => KeyCode::Char(key),
            };
            model.press(KeyEvent::new(code, KeyModifiers::NONE));
        }
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let draw = |frame: &mut ratatui::Frame<'_>| {
            let area = frame.area();
            let size = extent(model, area);
            model.fit(size);
            render(model, Palette::Color, area, frame.buffer_mut());
        };
        terminal.draw(draw).unwrap();
        text_of(terminal.backend().buffer())
    }

    #[test]
    fn now() {
        insta::assert_snapshot!(screen(&mut samples::model(), "", 80, 24));
    }

    #[test]
    fn sessions() {
        insta::assert_snapshot!(screen(&mut samples::model(), "2", 80, 24));
    }

    #[test]
    fn a_session() {
        let mut model = samples::model();
        screen(&mut model, "2\n", 80, 24);
        samples::read_session(&mut model);
        insta::assert_snapshot!(screen(&mut model, "", 80, 24));
    }

    #[test]
    fn tools() {
        insta::assert_snapshot!(screen(&mut samples::model(), "3j", 80, 24));
    }

    #[test]
    fn tools_while_a_filter_is_typed() {
        insta::assert_snapshot!(screen(&mut samples::model(), "3s/日本", 80, 24));
    }

    #[test]
    fn help() {
        insta::assert_snapshot!(screen(&mut samples::model(), "?", 80, 24));
    }

    #[test]
    fn a_proxy_that_is_away() {
        let mut model = samples::model();
        let silent = ControlAnswer::NotRunning("nothing listens on 127.0.0.1:8643".into());
        model.apply(&Request::Overview, silent);
        insta::assert_snapshot!(screen(&mut model, "", 80, 24));
    }

    #[test]
    fn a_proxy_that_records_nothing() {
        let mut model = samples::model();
        let mut overview = samples::overview();
        (overview["totals"], overview["open_sessions"]) = (json!(null), json!(null));
        (overview["upstreams"], overview["paused"]) = (json!([]), json!(true));
        let answer = ControlAnswer::Said(vec![overview]);
        model.apply(&Request::Overview, answer);
        insta::assert_snapshot!(screen(&mut model, "", 80, 24));
    }

    #[test]
    fn a_narrow_screen() {
        insta::assert_snapshot!(screen(&mut samples::model(), "3", 38, 8));
    }

    #[test]
    fn every_size_is_drawn() {
        for (width, height) in [
            (1, 1),
            (1, 30),
            (200, 1),
            (3, 2),
            (9, 3),
            (17, 4),
            (300, 90),
        ] {
            for keys in ["", "2", "2\n", "3", "3/x", "?"] {
                let mut model = samples::model();
                screen(&mut model, keys, width, height);
                samples::read_session(&mut model);
                let shown = screen(&mut model, "G", width, height);
                assert_eq!(shown.split('\n').count(), usize::from(height), "{shown}");
            }
        }
    }

    #[test]
    fn foreign_text_cannot_act_on_the_terminal() {
        let mut model = samples::model();
        let name = format!("\u{1b}[2J\u{202e}<b>{}", "x".repeat(10_000));
        let tools = json!({"tools": [{"upstream": name, "tool": name, "calls": 1}]});
        model.apply(&Request::Tools, ControlAnswer::Said(vec![tools]));
        let shown = screen(&mut model, "3", 80, 24);
        let is_inert = |character: char| !character.is_control() || character == '\n';
        assert!(shown.chars().all(is_inert), "{shown}");
        assert!(!shown.contains('\u{202e}'), "{shown}");
        assert!(shown.contains("\\u{1b}[2J\\u{202e}<b>"), "{shown}");
    }

    #[test]
    fn the_plain_screen_has_its_size() {
        let shown = plain_screen(&samples::model());
        assert_eq!(shown.lines().count(), 24);
        assert!(shown.lines().all(|line| cells_of(line) <= 80), "{shown}");
        assert!(shown.starts_with("riglm   1 Now "), "{shown}");
    }

    #[test]
    fn without_color_only_bold_and_reversed_text_is_used() {
        let area = Rect::new(0, 0, 80, 24);
        let mut buffer = Buffer::empty(area);
        let mut model = samples::model();
        model.press(KeyEvent::new(KeyCode::Char('3'), KeyModifiers::NONE));
        render(&model, Palette::Monochrome, area, &mut buffer);
        // The first tool is selected.
        assert!(buffer[(0, 3)].modifier.contains(Modifier::REVERSED));
        let allowed = Modifier::BOLD | Modifier::REVERSED;
        for cell in buffer.content() {
            assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset));
            assert!(allowed.contains(cell.modifier));
        }
    }

    #[test]
    fn figures_are_short() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        for (seconds, expected) in [(0, "now"), (59, "59 s"), (61, "1 min"), (90_000, "1 d")] {
            assert_eq!(age(at(1_000_000 - seconds), at(1_000_000)), expected);
        }
        // Clocks of several proxies may differ.
        assert_eq!(age(at(20), at(10)), "now");
        for (microseconds, expected) in [
            (1_500, "1.5 ms"),
            (15_000, "15 ms"),
            (1_500_000, "1.5 s"),
            (180_000_000, "3 min"),
        ] {
            assert_eq!(duration(microseconds), expected);
        }
        assert_eq!(with_sign(-1_234), "-1,234");
    }
}
