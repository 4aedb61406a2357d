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
const RUNNERS: [&str; 22] = [
    "bun", "bunx", "cmd", "deno", "docker", "env", "java", "node", "npm", "npx", "pipx", "pnpm",
    "pnpx", "podman", "py", "python", "python3", "ruby", "tsx", "uv", "uvx", "yarn",
];

/// Words of runners that stand before the name of what they run.
const SUBCOMMANDS: [&str; 7] = ["container", "dlx", "exec", "run", "tool", "x", "/c"];

/// Options of runners that take the next argument as their value.
const OPTIONS_WITH_VALUES: [&str; 33] = [
    "--add-host",
    "--cwd",
    "--directory",
    "--entrypoint",
    "--env",
    "--env-file",
    "--from",
    "--import",
    "--index-url",
    "--loader",
    "--mount",
    "--name",
    "--network",
    "--package",
    "--platform",
    "--prefix",
    "--project",
    "--publish",
    "--python",
    "--require",
    "--spec",
    "--user",
    "--volume",
    "--with",
    "--workdir",
    "-C",
    "-e",
    "-l",
    "-p",
    "-r",
    "-u",
    "-v",
    "-w",
];

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
/// image or file that a runner such as npx, uvx, docker or python runs.
pub(super) fn name_of_command(command: &[String]) -> String {
    let Some((program, arguments)) = command.split_first() else {
        return UNKNOWN.into();
    };
    let runner = file_name(program).to_ascii_lowercase();
    let runner = without_extension(&runner);
    // `python3.12` is `python3`.
    let family = runner.split('.').next().unwrap_or_default();
    let run = if RUNNERS.contains(&family) {
        what_is_run(arguments).unwrap_or(program)
    } else {
        program
    };
    name_of_program(run)
}

/// Returns the argument of a runner that says what it runs.
fn what_is_run(arguments: &[String]) -> Option<&String> {
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-m" | "-jar" => return arguments.next(),
            option if OPTIONS_WITH_VALUES.contains(&option) => drop(arguments.next()),
            other if other.starts_with('-') || SUBCOMMANDS.contains(&other) => {}
            // A variable that env is to set.
            other if other.contains('=') && !other.contains("==") => {}
            _ => return Some(argument),
        }
    }
    None
}

/// Returns a name for a program, a package, a module, an image or the path of one of them.
fn name_of_program(program: &str) -> String {
    let parts: Vec<&str> = program.split(['/', '\\']).collect();
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
