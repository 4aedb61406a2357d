//! Derivation of names for upstreams on the command line from a program or URL.
//!
//! Calls and learned data are stored under the name of the upstream. So different servers in one
//! data directory need different names, and the same server needs the same name at each start.

use std::collections::BTreeSet;

/// The longest name, in characters. It is short because it is a prefix of tool names.
const MAX_CHARS: usize = 32;

/// The fallback name.
const UNKNOWN: &str = "upstream";

/// Programs that run another program, which their arguments name.
static RUNNERS: [Runner; 14] = [
    Runner {
        names: &["npx", "pnpx", "bunx", "npm", "pnpm", "yarn"],
        words: &["dlx", "exec", "run", "x"],
        options: Options::WithValues(&[
            "--cache",
            "--filter",
            "--loglevel",
            "--node-options",
            "--package",
            "--registry",
            "--userconfig",
            "--workspace",
            "F",
            "p",
            "w",
        ]),
        running: &["--call", "c"],
        directories: &["--cwd", "--dir", "--prefix", "C"],
    },
    Runner {
        names: &["node", "tsx", "bun"],
        words: &["run", "watch", "x"],
        options: Options::WithValues(&[
            "--conditions",
            "--env-file",
            "--eval",
            "--experimental-loader",
            "--import",
            "--loader",
            "--preload",
            "--require",
            "--tsconfig",
            "C",
            "e",
            "r",
        ]),
        running: &[],
        directories: &["--cwd"],
    },
    Runner {
        names: &["deno"],
        words: &["run"],
        options: Options::WithValues(&[
            "--cert",
            "--config",
            "--import-map",
            "--location",
            "--lock",
            "--log-level",
            "--seed",
            "L",
            "c",
        ]),
        running: &[],
        directories: &[],
    },
    Runner {
        names: &["python", "python2", "python3", "pythonw", "pypy3", "py"],
        words: &[],
        options: Options::WithValues(&["--check-hash-based-pycs", "W", "X", "c"]),
        running: &["m"],
        directories: &[],
    },
    Runner {
        names: &["uv", "uvx", "pipx"],
        words: &["run", "tool"],
        options: Options::WithValues(&[
            "--cache-dir",
            "--config-file",
            "--default-index",
            "--env-file",
            "--extra",
            "--extra-index-url",
            "--from",
            "--group",
            "--index",
            "--index-url",
            "--package",
            "--pip-args",
            "--python",
            "--spec",
            "--with",
            "--with-editable",
            "--with-requirements",
            "f",
            "i",
            "p",
            "w",
        ]),
        running: &["--module", "m"],
        directories: &["--directory", "--project"],
    },
    // The command line programs of two server libraries.
    Runner {
        names: &["mcp", "fastmcp"],
        words: &["dev", "run"],
        options: Options::WithValues(&[
            "--host",
            "--path",
            "--port",
            "--transport",
            "--with",
            "--with-editable",
            "e",
            "p",
            "t",
        ]),
        running: &[],
        directories: &[],
    },
    Runner {
        names: &["docker", "podman", "nerdctl"],
        words: &["compose", "container", "exec", "gateway", "mcp", "run"],
        // Most options have values, so the flags are listed.
        options: Options::Flags(&[
            "--debug",
            "--detach",
            "--disable-content-trust",
            "--init",
            "--interactive",
            "--no-deps",
            "--no-healthcheck",
            "--no-TTY",
            "--oom-kill-disable",
            "--privileged",
            "--publish-all",
            "--quiet",
            "--quiet-pull",
            "--read-only",
            "--remove-orphans",
            "--replace",
            "--rm",
            "--service-ports",
            "--sig-proxy",
            "--tls",
            "--tty",
            "D",
            "P",
            "T",
            "d",
            "i",
            "q",
            "t",
        ]),
        running: &[],
        directories: &[],
    },
    Runner {
        names: &["env"],
        words: &[],
        options: Options::WithValues(&["--unset", "u"]),
        running: &[],
        directories: &["--chdir", "C"],
    },
    Runner {
        names: &["cmd"],
        words: &["/c", "/d", "/q", "/s"],
        options: Options::WithValues(&[]),
        running: &[],
        directories: &[],
    },
    Runner {
        names: &["bash", "sh", "zsh"],
        words: &[],
        options: Options::WithValues(&["--init-file", "--rcfile", "O", "c", "o"]),
        running: &[],
        directories: &[],
    },
    Runner {
        names: &["java"],
        words: &[],
        options: Options::Words(&[
            "--add-modules",
            "--add-opens",
            "--class-path",
            "--module-path",
            "-classpath",
            "-cp",
            "-p",
        ]),
        running: &["--module", "-jar", "-m"],
        directories: &[],
    },
    Runner {
        names: &["ruby"],
        words: &[],
        options: Options::WithValues(&["--encoding", "E", "I", "e", "r"]),
        running: &[],
        directories: &["C"],
    },
    Runner {
        names: &["bundle"],
        words: &["exec"],
        options: Options::WithValues(&["--gemfile"]),
        running: &[],
        directories: &[],
    },
    Runner {
        names: &["nice", "nohup", "sudo", "timeout"],
        words: &[],
        options: Options::WithValues(&["--group", "--signal", "--user", "g", "k", "n", "s", "u"]),
        running: &[],
        directories: &["--chdir", "D"],
    },
];

/// Bridges: programs that stand for a remote server, with its URL in their arguments.
const BRIDGES: [&str; 3] = ["mcp-proxy", "mcp-remote", "supergateway"];

/// A program that runs another program, and the arguments that may precede that program.
#[derive(Debug)]
struct Runner {
    names: &'static [&'static str],
    words: &'static [&'static str],
    options: Options,
    /// Options with the program as their value.
    running: &'static [&'static str],
    /// Options with the directory of the program as their value.
    directories: &'static [&'static str],
}

/// The options of a runner: long ones with their dashes, short ones as letters. Several letters may
/// follow one dash.
#[derive(Debug)]
enum Options {
    /// These options take the next argument as their value, others none.
    WithValues(&'static [&'static str]),
    /// These options take no value, others do.
    Flags(&'static [&'static str]),
    /// Like `WithValues`, but one dash may precede a whole word.
    Words(&'static [&'static str]),
}

/// The meaning of the argument after an option.
#[derive(Debug, PartialEq, Eq)]
enum OptionArgument {
    Nothing,
    Value,
    /// The argument is the program.
    Run,
    /// The argument is the directory of the program.
    Directory,
}

impl Runner {
    /// Returns the runner with this name.
    fn by_name(name: &str) -> Option<&'static Self> {
        // `python3.12` is `python3`.
        let family = name.split('.').next().unwrap_or_default();
        RUNNERS.iter().find(|runner| runner.names.contains(&family))
    }

    /// Returns the meaning of the argument after an option.
    fn option_argument(&self, option: &str) -> OptionArgument {
        if let Options::Words(_) = self.options {
            return self.single_option_argument(option);
        }
        if option.starts_with("--") {
            if option.contains('=') {
                return OptionArgument::Nothing;
            }
            return self.single_option_argument(option);
        }
        let letters = option.trim_start_matches('-');
        for (at, letter) in letters.char_indices() {
            let end = at + letter.len_utf8();
            let taking = self.single_option_argument(&letters[at..end]);
            if taking != OptionArgument::Nothing {
                // The text after the letter is already its value.
                return if end == letters.len() {
                    taking
                } else {
                    OptionArgument::Nothing
                };
            }
        }
        OptionArgument::Nothing
    }

    fn single_option_argument(&self, option: &str) -> OptionArgument {
        let has_value = match &self.options {
            Options::WithValues(options) | Options::Words(options) => options.contains(&option),
            Options::Flags(flags) => !flags.contains(&option),
        };
        if self.running.contains(&option) {
            OptionArgument::Run
        } else if self.directories.contains(&option) {
            OptionArgument::Directory
        } else if has_value {
            OptionArgument::Value
        } else {
            OptionArgument::Nothing
        }
    }

    /// Returns the program with its arguments, and its directory if an option names one.
    fn program_and_arguments<'a>(
        &self,
        arguments: &'a [String],
    ) -> Option<(&'a [String], Option<&'a str>)> {
        let mut directory = None;
        let mut at = 0;
        while let Some(argument) = arguments.get(at) {
            let argument = argument.as_str();
            let is_skipped = self.words.contains(&argument.to_ascii_lowercase().as_str())
                // A variable assignment for env.
                || (argument.contains('=') && !argument.contains("==") && !argument.starts_with('-'))
                // The time limit of `timeout`.
                || (self.names.contains(&"timeout") && argument.starts_with(|first: char| first.is_ascii_digit()));
            if argument == "--" || is_skipped {
                at += 1;
                continue;
            }
            if !argument.starts_with('-') {
                return Some((&arguments[at..], directory));
            }
            match self.option_argument(argument) {
                OptionArgument::Nothing => at += 1,
                OptionArgument::Value => at += 2,
                OptionArgument::Directory => {
                    directory = arguments.get(at + 1).map(String::as_str);
                    at += 2;
                }
                OptionArgument::Run => {
                    let run = arguments.get(at + 1..).filter(|run| !run.is_empty());
                    return run.map(|run| (run, directory));
                }
            }
        }
        None
    }
}

/// File extensions of programs.
const EXTENSIONS: [&str; 13] = [
    ".bat", ".cjs", ".cmd", ".exe", ".jar", ".js", ".mjs", ".mts", ".py", ".rb", ".sh", ".ts",
    ".tsx",
];

/// Generic prefixes of server names, the longest first.
const PREFIXES: [&str; 3] = ["mcp-server-", "server-", "mcp-"];

/// Generic suffixes of server names, the longest first.
const SUFFIXES: [&str; 3] = ["-mcp-server", "-server", "-mcp"];

/// Generic names of files, folders and packages.
const GENERIC_NAMES: [&str; 15] = [
    "",
    "app",
    "bin",
    "build",
    "cli",
    "dist",
    "index",
    "lib",
    "main",
    "mcp",
    "mcp-server",
    "out",
    "server",
    "src",
    "start",
];

/// Returns a name for the server that a command starts: the name of the program, or of the package,
/// module, image or file that a runner such as npx, uvx, docker or python runs, or the host of the
/// remote server behind a bridge.
pub(super) fn name_of_command(command: &[String]) -> String {
    let mut rest = command;
    let mut directory = None;
    loop {
        let Some((program, arguments)) = rest.split_first() else {
            return UNKNOWN.into();
        };
        let name = program_name(program);
        if BRIDGES.contains(&name.as_str()) {
            let address = arguments.iter().find(|argument| is_address(argument));
            return address.map_or(name, |address| host_and_port_of(address));
        }
        // A name with a scope or registry is a package or an image, even if it ends like a runner.
        let is_first = rest.len() == command.len();
        let may_be_runner = is_first || !program.contains('/') || program.starts_with(['/', '.']);
        let runner = Runner::by_name(&name).filter(|_| may_be_runner);
        let Some((run, place)) = runner.and_then(|runner| runner.program_and_arguments(arguments))
        else {
            return name_of_program(program, directory);
        };
        directory = place.or(directory);
        rest = run;
    }
}

/// Returns the name of a program or package, without directory, extension and version.
fn program_name(program: &str) -> String {
    let name = file_name(program).to_ascii_lowercase();
    without_version(&name).to_owned()
}

fn is_address(argument: &str) -> bool {
    ["http://", "https://"]
        .iter()
        .any(|begin| argument.starts_with(begin))
}

/// Returns a name for a program, package, module or image. If its own name is generic, parent
/// folders are tried, and then the directory.
fn name_of_program(program: &str, directory: Option<&str>) -> String {
    // The registry prefixes of deno.
    let plain_program = (["npm:", "jsr:"].iter())
        .find_map(|registry| program.strip_prefix(registry))
        .unwrap_or(program);
    let all = [directory.unwrap_or_default(), plain_program];
    let parts = all.iter().flat_map(|path| path.split(['/', '\\']));
    let parts: Vec<&str> = parts.collect();
    let speaking = parts.iter().rev().find_map(|part| {
        let name = to_name(without_version(part));
        let name = strip_affixes(&name);
        (!GENERIC_NAMES.contains(&name.as_str())).then_some(name)
    });
    speaking.unwrap_or_else(|| UNKNOWN.into())
}

/// Returns a name for each URL, derived from its host; duplicates get a number. A single URL also
/// gets its port, because servers on one machine differ only in the port.
pub(super) fn names_of_urls(urls: &[String]) -> Vec<String> {
    if let [url] = urls {
        return vec![host_and_port_of(url)];
    }
    let mut taken = BTreeSet::new();
    let mut names = Vec::with_capacity(urls.len());
    for url in urls {
        let host = host_of(url);
        let numbered = (2..).map(|n| format!("{host}-{n}"));
        let mut all = std::iter::once(host.clone()).chain(numbered);
        // The numbers are endless, so a free one is always found.
        names.extend(all.find(|name| taken.insert(name.clone())));
    }
    names
}

fn host_of(url: &str) -> String {
    let host = parse_url(url).and_then(|url| url.host_str().map(to_name));
    host.filter(|host| !host.is_empty())
        .unwrap_or_else(|| UNKNOWN.into())
}

fn host_and_port_of(url: &str) -> String {
    let host = host_of(url);
    match parse_url(url).and_then(|url| url.port()) {
        Some(port) => format!("{host}-{port}"),
        None => host,
    }
}

fn parse_url(url: &str) -> Option<url::Url> {
    url::Url::parse(url.strip_prefix("sse+").unwrap_or(url)).ok()
}

fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// Returns a part of a name without its version or tag. A leading `@` is the scope of a package.
fn without_version(part: &str) -> &str {
    let rest = part.strip_prefix('@').unwrap_or(part);
    let end = rest.find(['@', ':', '[']).or_else(|| rest.find("=="));
    without_extension(&rest[..end.unwrap_or(rest.len())])
}

fn without_extension(name: &str) -> &str {
    let endings = EXTENSIONS.iter();
    let mut without = endings.filter_map(|ending| name.strip_suffix(ending));
    without.next().unwrap_or(name)
}

fn strip_affixes(name: &str) -> String {
    let begin = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix));
    let name = begin.unwrap_or(name);
    let end = SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix));
    end.unwrap_or(name).to_owned()
}

/// Converts a text to the characters of a name, and truncates it.
fn to_name(text: &str) -> String {
    let parts = text.split(|character: char| !character.is_ascii_alphanumeric());
    let name = parts.filter(|part| !part.is_empty()).collect::<Vec<_>>();
    let name: String = name.join("-").chars().take(MAX_CHARS).collect();
    name.trim_end_matches('-').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(command: &str) -> String {
        let command: Vec<String> = command.split(' ').map(str::to_owned).collect();
        name_of_command(&command)
    }

    #[test]
    fn servers_are_named_after_their_command() {
        for (command, name) in [
            (
                "npx -y @modelcontextprotocol/server-filesystem /srv",
                "filesystem",
            ),
            (
                "npx -y @modelcontextprotocol/server-memory@2026.8.31",
                "memory",
            ),
            ("npx --package @acme/tools -c acme-mcp", "acme"),
            ("npx @playwright/mcp@latest --headless", "playwright"),
            ("uvx mcp-server-git --repository /srv", "git"),
            ("uvx --from git+https://example.com/x notes-mcp", "notes"),
            ("uv --directory /opt/weather run weather.py", "weather"),
            ("python3.12 -m mcp_server_time", "time"),
            ("python /opt/notes/server.py", "notes"),
            ("node /opt/jira-mcp/dist/index.js", "jira"),
            (
                "docker run -i --rm -e TOKEN ghcr.io/acme/github-mcp-server:v1",
                "github",
            ),
            ("java -Xmx1g -jar /opt/search-1.2.jar", "search-1-2"),
            ("env A=b /usr/local/bin/everything-server", "everything"),
            ("env -u X A=b npx -y @x/server-memory", "memory"),
            ("python -u /opt/notes/server.py", "notes"),
            ("python -um mcp_server_time", "time"),
            ("python -c print()", "python"),
            ("ruby -w /opt/notes/server.rb", "notes"),
            ("ruby -w weather.rb", "weather"),
            (
                "docker run -m 512m -it -eTOKEN -p80:80 --rm acme/notes-mcp serve",
                "notes",
            ),
            // The command of an image is inspected if the image is a runner itself.
            (
                "docker run --cpus=2 -i node:20 npx -y @x/notes-mcp",
                "notes",
            ),
            ("docker run acme/python stdio", "python"),
            ("npx -y @acme/docker run", "docker"),
            ("uv run --with mcp python -u weather.py", "weather"),
            ("uv --directory /opt/notes run python server.py", "notes"),
            ("uv run --directory /opt/notes mcp run server.py", "notes"),
            ("uv run fastmcp run weather.py:app", "weather"),
            ("uv run -m weather_mcp", "weather"),
            ("cmd /c npx -y weather-mcp", "weather"),
            ("bash /opt/notes/start.sh", "notes"),
            ("nice -n 19 npx -y weather-mcp", "weather"),
            ("deno run -A npm:@x/mcp-notes@1", "notes"),
            ("deno run --allow-net jsr:weather", "weather"),
            (
                "npx -y mcp-remote@latest https://mcp.acme.example/mcp",
                "mcp-acme-example",
            ),
            (
                "npx mcp-remote http://localhost:3001/sse --debug",
                "localhost-3001",
            ),
            ("npx mcp-remote", "mcp-remote"),
            ("uv run python server.py", "upstream"),
            ("java -cp a.jar com.acme.Notes", "com-acme-notes"),
            ("/usr/bin/Some_Server.EXE stdio", "some-server-exe"),
            ("C:\\tools\\db-mcp.exe", "db"),
            ("npx", "npx"),
            ("/bin/server", "upstream"),
        ] {
            assert_eq!(name_of(command), name, "{command}");
        }
    }

    #[test]
    fn derived_names_are_valid_upstream_names() {
        let long = "x".repeat(200);
        for command in [
            "",
            "   ",
            "ÄÖÜ",
            "a__b",
            "-",
            "npx -y @",
            "node ../../",
            &long,
        ] {
            let name = name_of(command);
            let is_one = riglm_domain::id::UpstreamName::parse(&name).is_ok();
            assert!(is_one && !name.contains('_'), "{command:?}: {name:?}");
            assert!(name.chars().count() <= MAX_CHARS, "{command:?}: {name:?}");
        }
    }

    #[test]
    fn url_names_are_unique_and_derived_from_hosts() {
        let urls = [
            "https://Mcp.Example.com/a",
            "http://127.0.0.1:3001/mcp",
            "sse+http://127.0.0.1:3002/sse",
            "http://127.0.0.1:3003/mcp",
            "http://[::1]:80/mcp",
            "no address",
        ];
        let names = names_of_urls(&urls.map(str::to_owned));
        let expected = [
            "mcp-example-com",
            "127-0-0-1",
            "127-0-0-1-2",
            "127-0-0-1-3",
            "1",
            "upstream",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_single_address_is_named_by_its_host_and_port() {
        for (url, name) in [
            ("http://localhost:3001/mcp", "localhost-3001"),
            ("https://mcp.example.com/mcp", "mcp-example-com"),
            ("https://mcp.example.com:443/mcp", "mcp-example-com"),
            ("no address", "upstream"),
        ] {
            assert_eq!(names_of_urls(&[url.to_owned()]), [name], "{url}");
        }
    }
}
