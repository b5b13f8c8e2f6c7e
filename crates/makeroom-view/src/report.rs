//! The page as one self-contained file, with the responses it will need.
//!
//! The file is limited to 10 MB. A short recording is included completely. For a longer one, the series is included
//! as finely as fits, and the memory layout first at key moments, then at more and more moments in between. The
//! response for `/api/inputs` describes what was left out, and the page shows the nearest moment that is included.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use makeroom_explain::By;
use makeroom_ordered::OrderedSet;

use crate::page;
use crate::resources::{Form, Refusal, Setting};
use crate::timeline::{By as Layers, TILE, Timeline};
use crate::viewer::{Change, Computation, Viewer};

/// Maximum size of the file.
const MOST_BYTES: usize = 10_000_000;
/// Reserve for headers, and for the final response for `/api/inputs`, which is a sentence longer.
const SPARE: usize = 64 << 10;
/// Maximum share of the space for series while there are moments to include.
const SERIES_SHARE: f64 = 0.4;
/// Number of additional candidate moments: about as many as can be distinguished with the cursor.
const MOST_MOMENTS: usize = 400;
/// Number of failed allocations that are always included.
const FAILURES: usize = 16;

/// A finished report.
#[derive(Clone, Debug)]
pub struct Report {
    /// The file.
    pub html: String,
    /// A sentence about what was left out; `None` if nothing was.
    pub reduced: Option<String>,
}

/// Writes all data of a viewer into one file.
pub fn report(viewer: &Viewer, with_what_if: bool) -> Result<Report, Refusal> {
    report_with_layers(viewer, with_what_if, viewer.layers)
}

/// The same, with the layers that the user chose on the page. A file contains the sites of one choice: those of all others
/// would take the space of the memory layout.
pub(crate) fn report_with_layers(
    viewer: &Viewer,
    with_what_if: bool,
    layers: Layers,
) -> Result<Report, Refusal> {
    let empty = page::with_data("")
        .ok_or_else(|| Refusal::new(500, "the page has no placeholder for the data", "rebuild viewer/"))?;
    let mut book =
        Book { viewer, layers, entries: Vec::new(), paths: OrderedSet::new(), left: 0, is_full: false };
    book.left = ((MOST_BYTES - empty.len().min(MOST_BYTES)) / 4 * 3).saturating_sub(SPARE);
    let mut setting =
        Setting { changes: Vec::new(), can_reload: false, form: Form::Embedded { reduced: None }, layers };
    setting.changes = viewer.inputs.iter().map(|_| Change::Same).collect();
    book.left = book.left.saturating_sub(packed_size(&viewer.inputs(&setting)?)?);
    for (input, device, timeline) in devices(viewer) {
        book.must(&format!("/api/{input}/stacks"))?;
        book.must(&format!("/api/{input}/{device}{}/sites", layers.path()))?;
        for by in By::ALL {
            book.must(&format!("/api/{input}/{device}/groups/{}/{}", by.id(), timeline.interest()))?;
        }
        if input == 0 {
            for (other, other_device, _) in devices(viewer).filter(|&(other, _, _)| other > 0) {
                book.must(&format!("/api/{input}/{device}/diff/{other}/{other_device}"))?;
            }
        }
        let wanted = [(Computation::WhatIf, with_what_if), (Computation::Alternative, true)];
        for (computation, is_wanted) in wanted {
            if is_wanted && viewer.begin(computation, input, device) {
                viewer.compute(computation, input, device);
            }
        }
        book.must(&format!("/api/{input}/{device}/whatif"))?;
        book.must(&format!("/api/{input}/{device}/alternative"))?;
    }
    let reduced = book.fill()?;
    setting.form = Form::Embedded { reduced: reduced.clone() };
    book.entries.insert(0, ("/api/inputs".to_owned(), viewer.inputs(&setting)?));
    let html = page::with_data(&STANDARD.encode(book.packed()?));
    let html = html.unwrap_or(empty);
    if html.len() > MOST_BYTES {
        return Err(Refusal::new(
            500,
            format!("the report would be {} bytes, which is too large", html.len()),
            "pass only one input, or use makeroom view without -o",
        ));
    }
    Ok(Report { html, reduced })
}

/// All devices: the index of the input, the index of the device, and its history.
fn devices(viewer: &Viewer) -> impl Iterator<Item = (usize, usize, &Timeline)> {
    viewer.inputs.iter().enumerate().flat_map(|(input, one)| {
        let timelines = one.trace.iter().flat_map(|recording| recording.devices.iter().enumerate());
        timelines.map(move |(device, timeline)| (input, device, timeline))
    })
}

/// The responses that are included so far.
struct Book<'viewer> {
    viewer: &'viewer Viewer,
    layers: Layers,
    entries: Vec<(String, Vec<u8>)>,
    paths: OrderedSet<String>,
    /// Compressed bytes left.
    left: usize,
    /// Whether a response was left out because of its size.
    is_full: bool,
}

impl Book<'_> {
    /// Includes a response of any size.
    fn must(&mut self, path: &str) -> Result<(), Refusal> {
        self.keep(path, usize::MAX).map(drop)
    }

    /// Includes a response if it takes at most `most` bytes. Returns whether it is included.
    fn keep(&mut self, path: &str, most: usize) -> Result<bool, Refusal> {
        if self.paths.contains(path) {
            return Ok(true);
        }
        let answer = self.viewer.answer(path, "")?;
        let size = packed_size(&answer)?;
        if size > most {
            self.is_full = true;
            return Ok(false);
        }
        self.left = self.left.saturating_sub(size);
        self.paths.insert(path.to_owned());
        self.entries.push((path.to_owned(), answer));
        Ok(true)
    }

    /// Includes series and moments as far as they fit. Returns a description of what was left out.
    fn fill(&mut self) -> Result<Option<String>, Refusal> {
        let shares: Vec<_> = devices(self.viewer).collect();
        let mut left_out = Vec::new();
        let mut others = shares.len();
        for (input, device, timeline) in shares {
            // Later devices get the space that earlier ones did not use.
            let room = self.left / others;
            others -= 1;
            let floor = self.left - room;
            let name = format!("/api/{input}/{device}{}", self.layers.path());
            let series_floor = floor + (room as f64 * (1.0 - SERIES_SHARE)) as usize;
            let mut finest = self.series(&name, timeline, series_floor)?;
            let (kept, of) = self.moments(&name, input, timeline, floor)?;
            if finest > 0 {
                finest = self.series(&name, timeline, floor)?;
            }
            self.around_key_moments(&name, input, timeline, finest, floor)?;
            if kept < of || finest > 0 {
                let series = match crate::timeline::width(finest) {
                    1 => "the full timeline".to_owned(),
                    every => format!("the timeline with one point per {every} events"),
                };
                let whose = self.name(input, device);
                left_out.push(format!("{whose}{series}, and the memory layout at {kept} of {of} moments"));
            }
        }
        // The number of moments is limited even if there is space for more.
        let why = if self.is_full { " is reduced to stay below 10 MB: it" } else { "" };
        Ok((!left_out.is_empty()).then(|| {
            format!(
                "This file{why} contains {}. For everything, open the recording with `makeroom view`.",
                left_out.join("; ")
            )
        }))
    }

    fn name(&self, input: usize, device: usize) -> String {
        let one = &self.viewer.inputs[input];
        let devices = one.trace.as_ref().map_or(0, |recording| recording.devices.len());
        match (self.viewer.inputs.len(), devices) {
            (1, 0 | 1) => String::new(),
            (_, 0 | 1) => format!("{}: ", one.name),
            _ => format!("{}, device {device}: ", one.name),
        }
    }

    /// Includes complete levels, from the coarsest on, while `floor` bytes remain. Returns the finest complete one.
    fn series(&mut self, name: &str, timeline: &Timeline, floor: usize) -> Result<u32, Refusal> {
        let levels = timeline.grouping.series.levels();
        for level in (0..levels).rev() {
            let tiles = timeline.grouping.series.buckets(level).div_ceil(TILE);
            for tile in 0..tiles {
                let most = self.left.saturating_sub(floor);
                // The coarsest level is the overview, and always included.
                let most = if level + 1 == levels { usize::MAX } else { most };
                if !self.keep(&format!("{name}/series/{level}/{tile}"), most)? {
                    return Ok(level + 1);
                }
            }
        }
        Ok(0)
    }

    /// Includes moments, key moments first. Returns how many of how many are included.
    fn moments(
        &mut self,
        name: &str,
        input: usize,
        timeline: &Timeline,
        floor: usize,
    ) -> Result<(usize, usize), Refusal> {
        let Some(recording) = &self.viewer.inputs[input].trace else { return Ok((0, 0)) };
        let events = timeline.events(&recording.trace);
        let mut kept = OrderedSet::new();
        for position in moments_by_weight(timeline, events) {
            let paths = ["moment", "live", "allocations"].map(|what| format!("{name}/{what}/{position}"));
            for path in paths {
                // At least one moment is always included.
                let most = if kept.is_empty() { usize::MAX } else { self.left.saturating_sub(floor) };
                if !self.keep(&path, most)? {
                    return Ok((kept.len(), events + 1));
                }
            }
            kept.insert(position);
        }
        Ok((kept.len(), events + 1))
    }

    /// Includes the finer tiles at key moments.
    fn around_key_moments(
        &mut self,
        name: &str,
        input: usize,
        timeline: &Timeline,
        finest: u32,
        floor: usize,
    ) -> Result<(), Refusal> {
        let Some(recording) = &self.viewer.inputs[input].trace else { return Ok(()) };
        let events = timeline.events(&recording.trace);
        for level in (0..finest).rev() {
            for position in key_moments(timeline, events) {
                let tile = position / crate::timeline::width(level) / TILE;
                let most = self.left.saturating_sub(floor);
                if !self.keep(&format!("{name}/series/{level}/{tile}"), most)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// All responses, compressed: one line each, with the path, a tab and the response. The page parses only the
    /// lines it needs.
    fn packed(&self) -> Result<Vec<u8>, Refusal> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        let mut write = || {
            for (path, answer) in &self.entries {
                packed.write_all(path.as_bytes())?;
                packed.write_all(b"\t")?;
                packed.write_all(answer)?;
                packed.write_all(b"\n")?;
            }
            Ok(())
        };
        write().map_err(|error| unpackable(&error))?;
        packed.finish().map_err(|error| unpackable(&error))
    }
}

/// The moments that users look at first.
fn key_moments(timeline: &Timeline, events: usize) -> Vec<usize> {
    let mut key = vec![timeline.interest(), timeline.allocations.peak.0];
    key.extend(timeline.failures.iter().take(FAILURES));
    key.extend([events, 0]);
    key
}

/// Positions by importance: the key moments, then others, evenly spread.
fn moments_by_weight(timeline: &Timeline, events: usize) -> Vec<usize> {
    let mut moments = key_moments(timeline, events);
    if events < MOST_MOMENTS {
        moments.extend(spread(events + 1));
    } else {
        let step = (events + 1).div_ceil(MOST_MOMENTS);
        moments.extend(spread((events + 1).div_ceil(step)).into_iter().map(|index| index * step));
    }
    moments
}

/// The numbers below `count` in bit-reversed order, so that every prefix is evenly spread.
fn spread(count: usize) -> Vec<usize> {
    let bits = usize::BITS - count.max(1).next_power_of_two().leading_zeros() - 1;
    let reversed = (0..1_usize << bits)
        .map(|index| if bits == 0 { 0 } else { index.reverse_bits() >> (usize::BITS - bits) });
    reversed.filter(|&index| index < count).collect()
}

fn packed_size(answer: &[u8]) -> Result<usize, Refusal> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(answer).map_err(|error| unpackable(&error))?;
    Ok(packed.finish().map_err(|error| unpackable(&error))?.len())
}

fn unpackable(error: &std::io::Error) -> Refusal {
    Refusal::new(500, format!("could not compress the data: {error}"), "please report this bug")
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn every_prefix_of_a_spread_is_even() {
        assert_eq!(spread(8), [0, 4, 2, 6, 1, 5, 3, 7]);
        assert_eq!(spread(5), [0, 4, 2, 1, 3]);
        assert_eq!(spread(1), [0]);
        let mut all = spread(1000);
        all.sort_unstable();
        assert_eq!(all, (0..1000).collect::<Vec<_>>());
    }
}
