//! Admission to an HTTP port: the check of `Host` and `Origin` before anything else.
//!
//! A web page can send requests to a loopback port, and DNS rebinding lets it read the answers.
//! Such requests carry a foreign name in `Host`, the origin of the page in `Origin`, or both.
//! Programs that are not browsers send no `Origin`.

use std::net::IpAddr;

/// The host names by which a server may be addressed, and the origins of pages that may address it.
///
/// Names of the loopback interface, and origins on it, are always allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    hosts: Vec<String>,
    origins: Vec<String>,
}

/// The reason for which a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    /// `Host` is missing, appears twice, or names another server.
    #[error("the host of this request is not allowed")]
    Host,
    /// `Origin` names a page that may not send requests.
    #[error("the origin of this request is not allowed")]
    Origin,
}

impl AdmissionError {
    /// Returns the configuration key, inside the section of the server, that could allow the
    /// request.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Host => "allowed_hosts",
            Self::Origin => "allowed_origins",
        }
    }

    /// Returns the error with advice on the configuration key of `section` that could allow the
    /// request.
    #[must_use]
    pub fn advice(self, section: &str) -> String {
        format!("{self}: see {section}.{} in the configuration", self.key())
    }
}

impl Admission {
    /// Returns an admission that also allows these hosts (`name` or `name:port`) and these origins
    /// (`scheme://host[:port]`). The comparison ignores case.
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

    /// Checks the `Host` and `Origin` headers of a request, each with its repetitions, and the
    /// authority of its target, if it has one.
    ///
    /// # Errors
    ///
    /// Returns [`AdmissionError`] for the header that is not allowed.
    pub fn check<'a>(
        &self,
        mut hosts: impl Iterator<Item = &'a [u8]>,
        mut origins: impl Iterator<Item = &'a [u8]>,
        target: Option<&str>,
    ) -> Result<(), AdmissionError> {
        // With two `Host` headers it is not clear which server is meant.
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return Err(AdmissionError::Host);
        };
        let knows = |host: &str| self.knows_host(host);
        // The authority of an absolute request target replaces `Host` (RFC 9112, section 3.2.2), so
        // both must be allowed.
        if !std::str::from_utf8(host).is_ok_and(knows) || !target.is_none_or(knows) {
            return Err(AdmissionError::Host);
        }
        let Some(origin) = origins.next() else {
            return Ok(());
        };
        let is_known = std::str::from_utf8(origin).is_ok_and(|origin| self.knows_origin(origin));
        if is_known && origins.next().is_none() {
            Ok(())
        } else {
            Err(AdmissionError::Origin)
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

    fn check(hosts: &[&str], origins: &[&str], target: Option<&str>) -> Result<(), AdmissionError> {
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
            assert_eq!(
                check(&[host], &[], None),
                Err(AdmissionError::Host),
                "{host}"
            );
        }
    }

    #[test]
    fn host_header_must_be_single_and_match_the_target() {
        assert_eq!(check(&[], &[], None), Err(AdmissionError::Host));
        assert_eq!(
            check(&["localhost", "localhost"], &[], None),
            Err(AdmissionError::Host)
        );
        assert_eq!(
            check(&["localhost"], &[], Some("evil.example")),
            Err(AdmissionError::Host)
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
            assert_eq!(refused, Err(AdmissionError::Origin), "{origin}");
        }
        let twice = ["http://localhost", "http://localhost"];
        assert_eq!(
            check(&["localhost"], &twice, None),
            Err(AdmissionError::Origin)
        );
    }
}
