//! Who may talk to an HTTP port: the check of `Host` and `Origin` that comes before anything else.
//!
//! A page that a browser shows can send requests to a loopback port, and DNS rebinding lets it
//! read the answers. Such requests carry the foreign name in `Host`, the page's own in `Origin`,
//! or both; programs that are no browsers send no `Origin`.

use std::net::IpAddr;

/// The names by which a server may be addressed, and the pages that may address it.
///
/// Names of the loopback interface and pages from it are always among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    hosts: Vec<String>,
    origins: Vec<String>,
}

/// Why a request is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAdmitted {
    /// `Host` is missing, there twice, or names another server.
    #[error("the host of this request is not allowed")]
    Host,
    /// `Origin` names a page that may not call.
    #[error("the origin of this request is not allowed")]
    Origin,
}

impl NotAdmitted {
    /// Returns the configuration key, below that of the server, that could let the request in.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Host => "allowed_hosts",
            Self::Origin => "allowed_origins",
        }
    }

    /// Returns the refusal with what could be done about it on the server of a configuration section.
    #[must_use]
    pub fn advice(self, section: &str) -> String {
        format!("{self}: see {section}.{} in the configuration", self.key())
    }
}

impl Admission {
    /// Returns an admission that also knows these hosts (`name` or `name:port`) and these origins
    /// (`scheme://host[:port]`), compared without case.
    #[must_use]
    pub fn new(hosts: &[String], origins: &[String]) -> Self {
        let lower = |names: &[String]| {
            names
                .iter()
                .map(|name| name.trim_end_matches('/').to_ascii_lowercase())
                .collect()
        };
        Self {
            hosts: lower(hosts),
            origins: lower(origins),
        }
    }

    /// Checks the `Host` and `Origin` headers of a request, each given as often as it is there,
    /// and the authority of its target where that has one.
    ///
    /// # Errors
    ///
    /// Returns which of them is not allowed.
    pub fn check<'a>(
        &self,
        mut hosts: impl Iterator<Item = &'a [u8]>,
        mut origins: impl Iterator<Item = &'a [u8]>,
        target: Option<&str>,
    ) -> Result<(), NotAdmitted> {
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return Err(NotAdmitted::Host);
        };
        let knows = |host: &str| self.knows_host(host);
        if !std::str::from_utf8(host).is_ok_and(knows) || !target.is_none_or(knows) {
            return Err(NotAdmitted::Host);
        }
        let Some(origin) = origins.next() else {
            return Ok(());
        };
        let is_known = std::str::from_utf8(origin).is_ok_and(|origin| self.knows_origin(origin));
        if is_known && origins.next().is_none() {
            Ok(())
        } else {
            Err(NotAdmitted::Origin)
        }
    }

    fn knows_host(&self, authority: &str) -> bool {
        let authority = authority.to_ascii_lowercase();
        host_of(&authority).is_some_and(|host| {
            is_loopback(host)
                || self
                    .hosts
                    .iter()
                    .any(|known| *known == host || *known == authority)
        })
    }

    fn knows_origin(&self, origin: &str) -> bool {
        let origin = origin.to_ascii_lowercase();
        self.origins.contains(&origin)
            || ["http://", "https://"]
                .iter()
                .find_map(|scheme| origin.strip_prefix(scheme))
                .and_then(host_of)
                .is_some_and(is_loopback)
    }
}

/// Returns the host of `host[:port]`, an IPv6 address with its brackets; `None` for anything else.
fn host_of(authority: &str) -> Option<&str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let end = rest.find(']')? + 2;
            (&authority[..end], &authority[end..])
        }
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let is_port = port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|digits| digits.parse::<u16>().is_ok());
    let is_host = !host.is_empty()
        && host
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte));
    (is_port && is_host).then_some(host)
}

/// Returns whether a host, in lower case, can only mean this machine.
fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(hosts: &[&str], origins: &[&str], target: Option<&str>) -> Result<(), NotAdmitted> {
        let admission = Admission::new(
            &["Proxy.Example".into(), "other.example:8643".into()],
            &["https://Page.example/".into()],
        );
        admission.check(
            hosts.iter().map(|host| host.as_bytes()),
            origins.iter().map(|origin| origin.as_bytes()),
            target,
        )
    }

    #[test]
    fn hosts_are_loopback_names_and_configured_ones() {
        for host in [
            "localhost",
            "LOCALHOST:8643",
            "127.0.0.1:8643",
            "127.8.9.1",
            "[::1]:1",
            "proxy.example",
            "proxy.example:99",
            "other.example:8643",
        ] {
            assert_eq!(check(&[host], &[], None), Ok(()), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "192.168.0.1",
            "other.example:1",
            "localhost@evil.example",
            "evil.example@localhost",
            "localhost:x",
            "[::1",
            "localhost:99999",
        ] {
            assert_eq!(check(&[host], &[], None), Err(NotAdmitted::Host), "{host}");
        }
    }

    #[test]
    fn a_host_must_be_there_once_and_agree_with_the_target() {
        assert_eq!(check(&[], &[], None), Err(NotAdmitted::Host));
        assert_eq!(
            check(&["localhost", "localhost"], &[], None),
            Err(NotAdmitted::Host)
        );
        assert_eq!(
            check(&["localhost"], &[], Some("evil.example")),
            Err(NotAdmitted::Host)
        );
        assert_eq!(check(&["localhost"], &[], Some("localhost:1")), Ok(()));
    }

    #[test]
    fn origins_are_loopback_ones_and_configured_ones() {
        for origin in [
            "http://localhost:3000",
            "https://[::1]",
            "http://127.0.0.1",
            "https://page.example",
        ] {
            assert_eq!(check(&["localhost"], &[origin], None), Ok(()), "{origin}");
        }
        for origin in [
            "null",
            "",
            "http://evil.example",
            "http://localhost.evil.example",
            "http://page.example",
            "https://page.example:444",
            "file://localhost",
            "http://a@localhost",
        ] {
            let refused = check(&["localhost"], &[origin], None);
            assert_eq!(refused, Err(NotAdmitted::Origin), "{origin}");
        }
        let twice = ["http://localhost", "http://localhost"];
        assert_eq!(
            check(&["localhost"], &twice, None),
            Err(NotAdmitted::Origin)
        );
    }
}
