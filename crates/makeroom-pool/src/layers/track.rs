//! Live memory by site: now, at the overall peak, at each site's own peak, and leaks at the end.
//!
//! A site is the line of Rust or the return address of the call ([`Site`]). One lock protects the records: tracking
//! costs a lookup per call, and threads contend for the lock. A block counts until its free is requested.

use std::fmt;

use makeroom_core::{Address, Bytes, FastMap, StreamId};

use super::pass_on;
use crate::allocator::Allocator;
use crate::error::Result;
use crate::fork::Lock;
use crate::site::Site;

/// Number of sites in a printed report.
const SHOWN: usize = 10;

/// An allocator that tracks live memory by site.
#[derive(Debug)]
pub struct Track<A> {
    upstream: A,
    book: Lock<Book>,
}

/// The figures of one site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteFigures {
    /// The site.
    pub site: Site,
    /// Live bytes.
    pub live: Bytes,
    /// Live blocks.
    pub blocks: u64,
    /// Its own peak.
    pub peak: Bytes,
    /// Its live bytes at the overall peak.
    pub at_peak: Bytes,
    /// Number of allocations.
    pub allocations: u64,
}

/// The figures of all sites, largest at the overall peak first.
///
/// `live = Σ sites.live`, `peak = Σ sites.at_peak`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrackReport {
    /// Live bytes of all sites.
    pub live: Bytes,
    /// Overall peak.
    pub peak: Bytes,
    /// The sites.
    pub sites: Vec<SiteFigures>,
}

/// The records. `epoch` is the number of past peaks; while `is_at_peak`, the current one is not over.
#[derive(Debug, Default)]
struct Book {
    blocks: FastMap<u64, (usize, u64)>,
    by_site: std::collections::HashMap<Site, usize>,
    sites: Vec<Entry>,
    live: u64,
    peak: u64,
    epoch: u64,
    is_at_peak: bool,
}

/// A site, with its live bytes at the end of the last peak before its last change. Updated lazily, so that a new peak
/// costs nothing.
#[derive(Debug)]
struct Entry {
    figures: SiteFigures,
    epoch: u64,
}

impl Book {
    fn allocated(&mut self, address: Address, bytes: u64, site: Site) {
        let fresh = self.sites.len();
        let index = *self.by_site.entry(site).or_insert(fresh);
        if index == fresh {
            let none = Bytes::ZERO;
            let figures =
                SiteFigures { site, live: none, blocks: 0, peak: none, at_peak: none, allocations: 0 };
            self.sites.push(Entry { figures, epoch: self.epoch });
        }
        let figures = self.sites[index].before_change(self.epoch);
        figures.live += Bytes::new(bytes);
        figures.blocks += 1;
        figures.allocations += 1;
        figures.peak = figures.peak.max(figures.live);
        self.blocks.insert(address.0, (index, bytes));
        self.live += bytes;
        if self.live > self.peak {
            self.peak = self.live;
            self.is_at_peak = true;
        }
    }

    fn freed(&mut self, index: usize, bytes: u64) {
        if std::mem::take(&mut self.is_at_peak) {
            self.epoch += 1;
        }
        let figures = self.sites[index].before_change(self.epoch);
        figures.live = figures.live - Bytes::new(bytes);
        figures.blocks -= 1;
        self.live -= bytes;
    }

    fn report(&self) -> TrackReport {
        let mut sites: Vec<SiteFigures> = self.sites.iter().map(|entry| entry.at(self)).collect();
        sites.sort_by_key(|figures| std::cmp::Reverse((figures.at_peak, figures.live, figures.peak)));
        TrackReport { live: Bytes::new(self.live), peak: Bytes::new(self.peak), sites }
    }
}

impl Entry {
    /// Saves the site's live bytes as those of the last peak, unless it has changed since that peak ended.
    fn before_change(&mut self, epoch: u64) -> &mut SiteFigures {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.figures.at_peak = self.figures.live;
        }
        &mut self.figures
    }

    fn at(&self, book: &Book) -> SiteFigures {
        let is_unchanged = book.is_at_peak || self.epoch != book.epoch;
        let at_peak = if is_unchanged { self.figures.live } else { self.figures.at_peak };
        SiteFigures { at_peak, ..self.figures }
    }
}

impl<A: Allocator> Track<A> {
    /// Tracks allocations from now on.
    pub fn new(upstream: A) -> Self {
        Self { upstream, book: Lock::new(Book::default()) }
    }

    /// The upstream allocator.
    pub fn upstream(&self) -> &A {
        &self.upstream
    }

    /// Reports live and peak memory by site.
    pub fn report(&self) -> TrackReport {
        self.book.lock().map(|book| book.report()).unwrap_or_default()
    }

    /// Sites with live blocks, most bytes first. At the end of a program these are its leaks.
    pub fn leaks(&self) -> Vec<SiteFigures> {
        let mut sites = self.report().sites;
        sites.retain(|figures| figures.blocks > 0);
        sites.sort_by_key(|figures| std::cmp::Reverse(figures.live));
        sites
    }
}

impl<A: Allocator> Allocator for Track<A> {
    fn allocate(&self, bytes: u64, stream: StreamId, site: Site) -> Result<Address> {
        let address = self.upstream.allocate(bytes, stream, site)?;
        self.book.lock()?.allocated(address, bytes, site);
        Ok(address)
    }

    unsafe fn free(&self, address: Address, stream: StreamId, site: Site) -> Result<()> {
        let known = self.book.lock()?.blocks.remove(&address.0);
        // SAFETY: guaranteed by the caller.
        let freed = unsafe { self.upstream.free(address, stream, site) };
        if let Some((index, bytes)) = known {
            let mut book = self.book.lock()?;
            match freed {
                Ok(()) => book.freed(index, bytes),
                Err(_) => drop(book.blocks.insert(address.0, (index, bytes))),
            }
        }
        freed
    }

    pass_on!(upstream: record_stream retire_stream trim reaches stats driver);
}

impl fmt::Display for TrackReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{} live, {} at the peak", self.live, self.peak)?;
        writeln!(formatter, "{:>12} {:>12} {:>12} {:>8}  site", "at the peak", "its peak", "live", "count")?;
        for figures in self.sites.iter().take(SHOWN) {
            let SiteFigures { site, live, peak, at_peak, allocations, .. } = figures;
            writeln!(formatter, "{at_peak:>12} {peak:>12} {live:>12} {allocations:>8}  {site}")?;
        }
        match self.sites.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => writeln!(formatter, "and {more} more sites"),
        }
    }
}
