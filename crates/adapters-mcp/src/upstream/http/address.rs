//! Filtering of the addresses that a configured host name resolves to.
//!
//! A name is resolved for every connection, so its owner could point it at the link-local addresses
//! where clouds serve credentials. Loopback and private networks are allowed, because MCP servers
//! run there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// The metadata service of AWS over IPv6.
const AWS_METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254);
/// The metadata services of Alibaba Cloud and Oracle Cloud, outside of the link-local range.
const OTHER_METADATA: [Ipv4Addr; 2] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
];

/// All addresses of a name are refused.
#[derive(Debug, thiserror::Error)]
#[error("the name resolves to an address that is not allowed")]
pub(super) struct AddressRefused;

/// A name could not be resolved.
#[derive(Debug, thiserror::Error)]
#[error("the name could not be resolved")]
pub(super) struct NotResolved(#[source] std::io::Error);

/// Resolves names with the operating system and omits refused addresses.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum GuardedResolver {
    /// Applies only [`is_allowed`].
    Everywhere,
    /// Refuses loopback addresses too.
    NotLoopback,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let refuses_loopback = matches!(self, Self::NotLoopback);
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0))
                .await
                .map_err(NotResolved)?;
            let allowed: Vec<SocketAddr> = found
                .filter(|address| is_allowed(address.ip()))
                .filter(|address| !(refuses_loopback && is_loopback(address.ip())))
                .collect();
            if allowed.is_empty() {
                return Err(AddressRefused.into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

/// Returns whether the host of `url` is this machine.
pub(in super::super) fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(v4)) => v4.is_loopback(),
        Some(Host::Ipv6(v6)) => is_loopback(v6.into()),
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.');
            name == "localhost" || name.ends_with(".localhost")
        }
        None => false,
    }
}

fn is_loopback(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_loopback(),
        IpAddr::V6(v6) => v6
            .to_ipv4_mapped()
            .map_or(v6.is_loopback(), |v4| v4.is_loopback()),
    }
}

pub(in super::super) fn is_allowed(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            !(v4.is_link_local()
                || v4.is_unspecified()
                || v4.is_broadcast()
                || v4.is_multicast()
                || OTHER_METADATA.contains(&v4))
        }
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => is_allowed(IpAddr::V4(v4)),
            None => {
                !(v6.is_unicast_link_local()
                    || v6.is_unspecified()
                    || v6.is_multicast()
                    || v6 == AWS_METADATA)
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_and_link_local_addresses_are_refused_in_every_notation() {
        let refused = [
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "fe80::1",
            "fd00:ec2::254",
            "100.100.100.200",
            "0.0.0.0",
            "::",
        ];
        for address in refused {
            assert!(!is_allowed(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn this_machine_is_known_by_all_its_names() {
        let local = |url: &str| is_local(&Url::parse(url).unwrap());
        for url in [
            "http://127.9.9.9/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://LOCALHOST./",
            "http://a.localhost/",
        ] {
            assert!(local(url), "{url}");
        }
        assert!(!local("http://10.0.0.1/") && !local("http://localhost.example/"));
    }

    #[test]
    fn loopback_private_and_public_addresses_are_allowed() {
        for address in ["127.0.0.1", "::1", "10.1.2.3", "192.168.0.9", "1.1.1.1"] {
            assert!(is_allowed(address.parse().unwrap()), "{address}");
        }
    }
}
