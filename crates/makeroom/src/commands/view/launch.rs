//! The address that a browser is started with.
//!
//! A browser gets its address as an argument, and every user of the machine can read the arguments of every process. So the
//! browser is not started with the page's address, which contains the token, but with a launch address: it works once, and
//! only for a connection of the same user. It redirects to the page.
//!
//! The kernel lists the owner of each TCP socket in `/proc/net/tcp`. Root is accepted too: it relays connections from outside
//! a virtual machine, and can read everything anyway. Where the owner is not listed, the address printed in the terminal
//! still works.

use std::fs;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};

/// A launch address.
pub(super) struct Launch {
    path: String,
    is_used: AtomicBool,
}

impl Launch {
    /// `code` must be unguessable.
    pub(super) fn new(code: &str) -> Self {
        Self { path: format!("/open/{code}"), is_used: AtomicBool::new(false) }
    }

    /// The path of the address.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Whether a request for a path, over a connection from `client` to `server`, may go on to the page.
    pub(super) fn admits(&self, path: &str, client: SocketAddr, server: SocketAddr) -> bool {
        if path != self.path {
            return false;
        }
        let owner = owner(client, server);
        let is_ours = owner.is_some_and(|owner| owner == 0 || owner == rustix::process::geteuid().as_raw());
        is_ours && !self.is_used.swap(true, Ordering::Relaxed)
    }
}

/// The user whose socket is connected from `client` to `server`.
fn owner(client: SocketAddr, server: SocketAddr) -> Option<u32> {
    let (SocketAddr::V4(client), SocketAddr::V4(server)) = (client, server) else { return None };
    owner_in(&fs::read_to_string("/proc/net/tcp").ok()?, client, server)
}

fn owner_in(table: &str, client: SocketAddrV4, server: SocketAddrV4) -> Option<u32> {
    // The kernel prints the address bytes as one integer in the machine's byte order.
    let shown = |address: SocketAddrV4| {
        format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port())
    };
    let (client, server) = (shown(client), shown(server));
    table.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let is_it = fields.next() == Some(&client) && fields.next() == Some(&server);
        // The kernel lists a socket that its process has closed as root's.
        let is_connected = fields.next() == Some("01");
        if is_it && is_connected { fields.nth(3)?.parse().ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_owner_is_read_from_the_row_of_the_clients_socket() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            \u{20}  0: 0100007F:2382 00000000:0000 0A 00000000:00000000 00:00000000 00000000     7        0 5 1 0\n\
            \u{20}  1: 0100007F:2382 0100007F:D431 01 00000000:00000000 00:00000000 00000000     8        0 6 1 0\n\
            \u{20}  2: 0100007F:D431 0100007F:2382 01 00000000:00000000 00:00000000 00000000  1001        0 7 1 0\n";
        let address = |port| SocketAddrV4::new([127, 0, 0, 1].into(), port);
        assert_eq!(owner_in(table, address(0xD431), address(0x2382)), Some(1001));
        assert_eq!(owner_in(table, address(0xD431), address(0x2383)), None);
        let closed = table.replace(":2382 01", ":2382 05");
        assert_eq!(owner_in(&closed, address(0xD431), address(0x2382)), None);
        assert_eq!(owner_in("1: 0100007F:D431 0100007F:2382 01", address(0xD431), address(0x2382)), None);
    }

    #[test]
    fn a_launch_address_works_once_and_only_for_sockets_that_are_there() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let connected = TcpStream::connect(server).unwrap();
        let client = connected.local_addr().unwrap();
        let launch = Launch::new("secret");
        assert!(!launch.admits("/open/other", client, server));
        assert!(
            !launch.admits("/open/secret", SocketAddr::from(([127, 0, 0, 9], 1)), server),
            "no such socket"
        );
        assert!(launch.admits("/open/secret", client, server));
        assert!(!launch.admits("/open/secret", client, server), "used");
    }
}
