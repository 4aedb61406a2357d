//! Names of upstreams that the command line gives as a program or an address.
//!
//! Calls and what is learned of them are kept by the name of the upstream, so different servers in one
//! data directory need different names, and the same server the same one at each start.

use std::collections::BTreeSet;

/// The longest name, in characters: names of tools follow it.
const MAX_CHARS: usize = 32;

/// The name of a server of which nothing else is known.
const UNKNOWN: &str = "upstream";

/// Programs that run another one, which their arguments name.
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
    // The programs of two libraries for servers.
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
        // Most options have values.
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

/// Programs that stand for a server elsewhere, which they are given the address of.
const BRIDGES: [&str; 3] = ["mcp-proxy", "mcp-remote", "supergateway"];

/// A program that runs another one, and what stands before that among its arguments.
#[derive(Debug)]
struct Runner {
    names: &'static [&'static str],
    /// Words that say what it is to do.
    words: &'static [&'static str],
    options: Options,
    /// Options whose value is what is run.
    running: &'static [&'static str],
    /// Options whose value is the directory of what is run.
    directories: &'static [&'static str],
}

/// The options of a runner: long ones with their dashes, and the letters of short ones, of which several
/// may stand behind one dash.
#[derive(Debug)]
enum Options {
    /// These take the next argument as their value, others none.
    WithValues(&'static [&'static str]),
    /// These take no value, others do.
    Flags(&'static [&'static str]),
    /// As the first, but words may stand behind one dash.
    Words(&'static [&'static str]),
}

/// The use that an option has for the argument behind it.
#[derive(Debug, PartialEq, Eq)]
enum Taking {
    Nothing,
    Value,
    /// It is what is run.
    Run,
    /// It is the directory of what is run.
    Directory,
}

impl Runner {
    /// Returns the runner of this name.
    fn named(name: &str) -> Option<&'static Self> {
        // `python3.12` is `python3`.
        let family = name.split('.').next().unwrap_or_default();
        RUNNERS.iter().find(|runner| runner.names.contains(&family))
    }

    /// Returns the use that an option has for the argument behind it.
    fn taking(&self, option: &str) -> Taking {
        if let Options::Words(_) = self.options {
            return self.taking_of_one(option);
        }
        if option.starts_with("--") {
            if option.contains('=') {
                return Taking::Nothing;
            }
            return self.taking_of_one(option);
        }
        let letters = option.trim_start_matches('-');
        for (at, letter) in letters.char_indices() {
            let end = at + letter.len_utf8();
            let taking = self.taking_of_one(&letters[at..end]);
            if taking != Taking::Nothing {
                // What stands behind the letter is the value already.
                return if end == letters.len() {
                    taking
                } else {
                    Taking::Nothing
                };
            }
        }
        Taking::Nothing
    }

    fn taking_of_one(&self, option: &str) -> Taking {
        let has_value = match &self.options {
            Options::WithValues(options) | Options::Words(options) => options.contains(&option),
            Options::Flags(flags) => !flags.contains(&option),
        };
        if self.running.contains(&option) {
            Taking::Run
        } else if self.directories.contains(&option) {
            Taking::Directory
        } else if has_value {
            Taking::Value
        } else {
            Taking::Nothing
        }
    }

    /// Returns what is run and its arguments, and the directory in which that is said to be.
    fn what_is_run<'a>(&self, arguments: &'a [String]) -> Option<(&'a [String], Option<&'a str>)> {
        let mut directory = None;
        let mut at = 0;
        while let Some(argument) = arguments.get(at) {
            let argument = argument.as_str();
            let is_skipped = self.words.contains(&argument.to_ascii_lowercase().as_str())
                // A variable that env is to set.
                || (argument.contains('=') && !argument.contains("==") && !argument.starts_with('-'))
                // How long the program may run.
                || (self.names.contains(&"timeout") && argument.starts_with(|first: char| first.is_ascii_digit()));
            if argument == "--" || is_skipped {
                at += 1;
                continue;
            }
            if !argument.starts_with('-') {
                return Some((&arguments[at..], directory));
            }
            match self.taking(argument) {
                Taking::Nothing => at += 1,
                Taking::Value => at += 2,
                Taking::Directory => {
                    directory = arguments.get(at + 1).map(String::as_str);
                    at += 2;
                }
                Taking::Run => {
                    let run = arguments.get(at + 1..).filter(|run| !run.is_empty());
                    return run.map(|run| (run, directory));
                }
            }
        }
        None
    }
}

/// Endings of files that programs are in.
const EXTENSIONS: [&str; 13] = [
    ".bat", ".cjs", ".cmd", ".exe", ".jar", ".js", ".mjs", ".mts", ".py", ".rb", ".sh", ".ts",
    ".tsx",
];

/// What names of servers begin with although it tells none from another, the longest first.
const PREFIXES: [&str; 3] = ["mcp-server-", "server-", "mcp-"];

/// What names of servers end with although it tells none from another, the longest first.
const SUFFIXES: [&str; 3] = ["-mcp-server", "-server", "-mcp"];

/// Names of files, folders and packages that say nothing of the server.
const SAYING_NOTHING: [&str; 15] = [
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

/// Returns a name for the server that a command starts: that of the program, or of the package, module,
/// image or file that a runner such as npx, uvx, docker or python runs, or the host of the server that
/// it stands for.
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
        // What has a scope or a registry is a package or an image, whatever it is called.
        let is_first = rest.len() == command.len();
        let may_be_runner = is_first || !program.contains('/') || program.starts_with(['/', '.']);
        let runner = Runner::named(&name).filter(|_| may_be_runner);
        let Some((run, place)) = runner.and_then(|runner| runner.what_is_run(arguments)) else {
            return name_of_program(program, directory);
        };
        directory = place.or(directory);
        rest = run;
    }
}

/// Returns the name of a program or a package, without its directory, its ending and its version.
fn program_name(program: &str) -> String {
    let name = file_name(program).to_ascii_lowercase();
    without_version(&name).to_owned()
}

fn is_address(argument: &str) -> bool {
    ["http://", "https://"]
        .iter()
        .any(|begin| argument.starts_with(begin))
}

/// Returns a name for a program, a package, a module, an image or the path of one of them, or else for the
/// directory in which it is said to be.
fn name_of_program(program: &str, directory: Option<&str>) -> String {
    // What deno calls registries.
    let plain_program = (["npm:", "jsr:"].iter())
        .find_map(|registry| program.strip_prefix(registry))
        .unwrap_or(program);
    let all = [directory.unwrap_or_default(), plain_program];
    let parts = all.iter().flat_map(|path| path.split(['/', '\\']));
    let parts: Vec<&str> = parts.collect();
    let speaking = parts.iter().rev().find_map(|part| {
        let name = plain(without_version(part));
        let name = shortened(&name);
        (!SAYING_NOTHING.contains(&name.as_str())).then_some(name)
    });
    speaking.unwrap_or_else(|| UNKNOWN.into())
}

/// Returns a name for each address, made of its host; what would repeat a name gets a number. The only
/// address is also named by its port, where it has one: servers on one machine differ in nothing else.
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
        // There are more numbers than addresses.
        names.extend(all.find(|name| taken.insert(name.clone())));
    }
    names
}

fn host_of(url: &str) -> String {
    let host = parsed(url).and_then(|url| url.host_str().map(plain));
    host.filter(|host| !host.is_empty())
        .unwrap_or_else(|| UNKNOWN.into())
}

fn host_and_port_of(url: &str) -> String {
    let host = host_of(url);
    match parsed(url).and_then(|url| url.port()) {
        Some(port) => format!("{host}-{port}"),
        None => host,
    }
}

fn parsed(url: &str) -> Option<url::Url> {
    url::Url::parse(url.strip_prefix("sse+").unwrap_or(url)).ok()
}

fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// Returns a part of a name without the version or the tag that follows it. The scope of a package
/// begins with `@`.
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

fn shortened(name: &str) -> String {
    let begin = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix));
    let name = begin.unwrap_or(name);
    let end = SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix));
    end.unwrap_or(name).to_owned()
}

/// Returns a text in the characters that a name may have, cut to its longest length.
fn plain(text: &str) -> String {
    let parts = text.split(|character: char| !character.is_ascii_alphanumeric());
    let name = parts.filter(|part| !part.is_empty()).collect::<Vec<_>>();
    let name: String = name.join("-").chars().take(MAX_CHARS).collect();
    name.trim_end_matches('-').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(command: &str) -> String {
        let command: Vec<String> = command.split(' ').map(str::to_owned).collect();
        name_of_command(&command)
    }

    #[test]
    fn servers_are_named_after_what_is_run() {
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
            // The command of an image is looked at where the image is a runner itself.
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
            assert_eq!(named(command), name, "{command}");
        }
    }

    #[test]
    fn names_are_ones_that_an_upstream_may_have() {
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
            let name = named(command);
            let is_one = riglm_domain::id::UpstreamName::parse(&name).is_ok();
            assert!(is_one && !name.contains('_'), "{command:?}: {name:?}");
            assert!(name.chars().count() <= MAX_CHARS, "{command:?}: {name:?}");
        }
    }

    #[test]
    fn addresses_are_named_by_their_hosts_and_every_name_is_another_one() {
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
