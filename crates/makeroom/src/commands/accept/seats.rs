//! Seats: the limit on concurrent connections, in total and per peer, and the choice of which one to evict.
//!
//! Without eviction, idle clients could hold all seats forever. When no seat is free, the peer with the most seats
//! loses the connection that has waited longest for its client: one without a complete request if there is any,
//! otherwise one whose client does not read its response. A client that sends its request and reads its response
//! without delay is never evicted.
//!
//! A peer is an IPv4 address or an IPv6 /64 network, which a single host can own.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::Limits;

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waiting for a request.
    Receiving,
    /// Computing a response.
    Responding,
    /// Sending the response.
    Sending,
}

#[derive(Clone, Copy, Debug)]
struct Progress {
    phase: Phase,
    since: Instant,
    /// When the client last accepted a byte.
    moved: Instant,
}

/// A connection being served.
#[derive(Debug)]
pub(super) struct Seat {
    peer: IpAddr,
    limits: Limits,
    progress: Mutex<Progress>,
    evicted: Notify,
}

impl Seat {
    fn new(peer: IpAddr, limits: Limits) -> Self {
        let now = Instant::now();
        let progress = Mutex::new(Progress { phase: Phase::Receiving, since: now, moved: now });
        Self { peer, limits, progress, evicted: Notify::new() }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a phase.
    pub(super) fn enter(&self, phase: Phase) {
        let now = Instant::now();
        *self.progress() = Progress { phase, since: now, moved: now };
    }

    /// Records that the client accepted some bytes.
    pub(super) fn moved(&self) {
        self.progress().moved = Instant::now();
    }

    /// Records that the client accepted all bytes so far. In [`Phase::Sending`], the response is complete.
    pub(super) fn flushed(&self) {
        if self.progress().phase == Phase::Sending {
            self.enter(Phase::Receiving);
        }
    }

    /// Waits until a deadline has passed, or another connection takes the seat.
    pub(super) async fn over(&self) {
        loop {
            let deadline = self.deadline();
            if deadline <= Instant::now() {
                return;
            }
            // The deadline may move later in the meantime; an earlier one is noticed within a second.
            let next = deadline.min(Instant::now() + Duration::from_secs(1));
            if timeout_at(next, self.evicted.notified()).await.is_ok() {
                return;
            }
        }
    }

    fn deadline(&self) -> Instant {
        let Progress { phase, since, moved } = *self.progress();
        match phase {
            Phase::Receiving => since + self.limits.receive,
            Phase::Responding => since + self.limits.respond,
            Phase::Sending => (since + self.limits.send).min(moved + self.limits.stall),
        }
    }

    /// The phase in which it waits for its client, and since when; `None` while the server is working.
    fn waits(&self) -> Option<(Phase, Instant)> {
        let Progress { phase, since, .. } = *self.progress();
        (phase != Phase::Responding).then_some((phase, since))
    }
}

/// All seats of a server.
#[derive(Debug)]
pub(super) struct Seats {
    limits: Limits,
    taken: Mutex<Vec<Arc<Seat>>>,
    freed: Notify,
}

/// A seat, released on drop.
#[derive(Debug)]
pub(super) struct Taken {
    seats: Arc<Seats>,
    seat: Arc<Seat>,
}

impl Taken {
    pub(super) fn seat(&self) -> &Arc<Seat> {
        &self.seat
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.seats.taken().retain(|seat| !Arc::ptr_eq(seat, &self.seat));
        self.seats.freed.notify_one();
    }
}

impl Seats {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, taken: Mutex::default(), freed: Notify::new() }
    }

    fn taken(&self) -> MutexGuard<'_, Vec<Arc<Seat>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a seat as soon as one is free or can be evicted; `None` after `limits.wait`.
    pub(super) async fn take(self: &Arc<Self>, address: IpAddr) -> Option<Taken> {
        /// Polling interval: nothing signals the end of a grace period.
        const AGAIN: Duration = Duration::from_millis(20);
        let give_up = Instant::now() + self.limits.wait;
        loop {
            if let Some(seat) = self.try_take(peer(address)) {
                return Some(Taken { seats: Arc::clone(self), seat });
            }
            let now = Instant::now();
            if now >= give_up {
                return None;
            }
            let _ = timeout_at(give_up.min(now + AGAIN), self.freed.notified()).await;
        }
    }

    fn try_take(&self, peer: IpAddr) -> Option<Arc<Seat>> {
        let mut taken = self.taken();
        let own = taken.iter().filter(|seat| seat.peer == peer).count();
        if own >= self.limits.per_peer {
            evict(&mut taken, peer, &self.limits)?;
        } else if taken.len() >= self.limits.connections {
            let greediest = greediest(&taken)?;
            evict(&mut taken, greediest, &self.limits)?;
        }
        let seat = Arc::new(Seat::new(peer, self.limits));
        taken.push(Arc::clone(&seat));
        Some(seat)
    }
}

/// Evicts one connection of a peer; `None` if none is waiting for its client, or the grace period is not over.
fn evict(taken: &mut Vec<Arc<Seat>>, peer: IpAddr, limits: &Limits) -> Option<()> {
    let longest = |wanted| {
        let own = taken.iter().enumerate().filter(|(_, seat)| seat.peer == peer);
        own.filter_map(|(position, seat)| Some((seat.waits()?, position)))
            .filter(|((phase, _), _)| *phase == wanted)
            .map(|((_, since), position)| (since, position))
            .min()
    };
    // Connections without a complete request go first.
    let (since, position, grace) = match (longest(Phase::Receiving), longest(Phase::Sending)) {
        (Some((since, position)), _) => (since, position, limits.grace),
        (None, Some((since, position))) => (since, position, limits.send_grace),
        (None, None) => return None,
    };
    if since.elapsed() < grace {
        return None;
    }
    taken.swap_remove(position).evicted.notify_one();
    Some(())
}

/// The peer with the most seats.
fn greediest(taken: &[Arc<Seat>]) -> Option<IpAddr> {
    let mut seats: HashMap<IpAddr, usize> = HashMap::new();
    for seat in taken {
        *seats.entry(seat.peer).or_default() += 1;
    }
    seats.into_iter().max_by_key(|&(_, count)| count).map(|(peer, _)| peer)
}

/// The peer that an address belongs to.
fn peer(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [one, two, three, four, ..] = address.segments();
            Ipv6Addr::new(one, two, three, four, 0, 0, 0, 0).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_host_are_one_peer() {
        let same = |one: &str, other: &str| peer(one.parse().unwrap()) == peer(other.parse().unwrap());
        assert!(same("192.0.2.1", "::ffff:192.0.2.1"));
        assert!(!same("192.0.2.1", "192.0.2.2"));
        assert!(same("2001:db8:1:2::1", "2001:db8:1:2:ffff::9"));
        assert!(!same("2001:db8:1:2::1", "2001:db8:1:3::1"));
    }
}
