//! Routes a path to its response. `viewer/PROTOCOL.md` lists the paths.

use serde::Serialize;
use serde_json::{Value, json};

use crate::alternative::Alternative;
use crate::input::{Input, Recording};
use crate::rows::{Sort, Wanted};
use crate::timeline::{By, Timeline};
use crate::viewer::{Change, Computation, Viewer};
use crate::{groups, live, moment, overview, rows, series, sites, whatif};

/// The version of the protocol.
const VERSION: u32 = 2;

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// The error.
    pub message: String,
    /// The hint.
    pub hint: String,
}

impl Refusal {
    /// An error with an HTTP status.
    pub fn new(status: u16, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { status, message: message.into(), hint: hint.into() }
    }

    fn no_such_path(path: &str) -> Self {
        Self::new(404, format!("{path} does not exist"), "viewer/PROTOCOL.md lists the paths")
    }

    fn out_of_range(what: &str, value: &str, most: usize) -> Self {
        Self::new(404, format!("{what} {value} does not exist"), format!("valid numbers are 0 to {most}"))
    }

    pub(crate) fn json(&self) -> Vec<u8> {
        json!({ "error": self.message, "hint": self.hint }).to_string().into_bytes()
    }
}

/// The parts of the `/api/inputs` response other than the inputs.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// Whether each input's file has changed.
    pub(crate) changes: Vec<Change>,
    /// Whether the inputs can be read again.
    pub(crate) can_reload: bool,
    /// Whether this is a report.
    pub(crate) form: Form,
    /// What the layers of the chart stand for at first; in a report, always.
    pub(crate) layers: By,
}

/// How the page gets its responses.
#[derive(Clone, Debug)]
pub(crate) enum Form {
    /// From a server.
    Served,
    /// Embedded in the page.
    Embedded {
        /// A sentence about what was left out.
        reduced: Option<String>,
    },
}

impl Viewer {
    /// The response for `/api/inputs` if no file has changed.
    pub fn overview(&self) -> Result<Vec<u8>, Refusal> {
        self.inputs(&Setting {
            changes: Vec::new(),
            can_reload: false,
            form: Form::Served,
            layers: self.layers,
        })
    }

    /// The response for `/api/inputs`.
    pub(crate) fn inputs(&self, setting: &Setting) -> Result<Vec<u8>, Refusal> {
        let change = |index: usize| setting.changes.get(index).copied().unwrap_or(Change::Same);
        let inputs =
            self.inputs.iter().enumerate().map(|(index, input)| overview::input(input, change(index)));
        let allocators: Vec<String> = self.inputs.first().map_or_else(Vec::new, |input| {
            whatif::allocators(input).iter().map(|spec| spec.name().to_owned()).collect()
        });
        written(&json!({
            "version": VERSION,
            "product": concat!("makeroom ", env!("CARGO_PKG_VERSION")),
            "inputs": inputs.collect::<Vec<_>>(),
            "whatif": { "allocators": allocators },
            "can_reload": setting.can_reload,
            "layers": setting.layers.id(),
            "embedded": match &setting.form {
                Form::Served => Value::Bool(false),
                Form::Embedded { reduced } => json!({ "reduced": reduced }),
            },
        }))
    }

    /// The response for a path below `/api/` with its query, as JSON.
    pub fn answer(&self, path: &str, query: &str) -> Result<Vec<u8>, Refusal> {
        let mut parts = path.split('/').skip(1);
        let (Some("api"), Some(input)) = (parts.next(), parts.next()) else {
            return Err(Refusal::no_such_path(path));
        };
        let input: &Input = self.find_input(input)?;
        let rest: Vec<&str> = parts.collect();
        let recording = input.trace.as_ref().ok_or_else(|| {
            Refusal::new(404, "this input is text", "it has only a verdict and a memory breakdown")
        })?;
        if rest == ["stacks"] {
            return written(&recording.trie().table());
        }
        let (device, rest) = rest.split_first().ok_or_else(|| Refusal::no_such_path(path))?;
        let number: Option<usize> = device.parse().ok();
        let timeline = number.and_then(|number| recording.devices.get(number)).ok_or_else(|| {
            Refusal::out_of_range("device", device, recording.devices.len().saturating_sub(1))
        })?;
        let (by, rest) = match *rest {
            ["by", name, ref rest @ ..] => {
                (By::named(name).ok_or_else(|| Refusal::no_such_path(path))?, rest)
            }
            ref rest => (By::Line, rest),
        };
        let question = Question { recording, timeline, by };
        let sites = || &timeline.grouping(&recording.trace, by).sites;
        match *rest {
            ["sites"] => written(&sites::sites(recording, timeline, sites())),
            ["series", level, tile] => question.series(level, tile),
            ["moment", event] => {
                let position = question.position(event)?;
                written(&moment::moment(recording, timeline, sites(), position))
            }
            ["moment", event, "segment", address] => question.segment(event, address),
            ["live", event] => written(&live::live(recording, timeline, sites(), question.position(event)?)),
            ["allocations", event] => {
                let wanted = wanted(query)?;
                written(&rows::rows(recording, timeline, sites(), question.position(event)?, &wanted))
            }
            ["groups", by, event] => {
                let by = makeroom_explain::By::from_id(by).ok_or_else(|| Refusal::no_such_path(path))?;
                let position = question.position(event)?;
                written(&number.and_then(|number| groups::groups(recording, number, by, position)))
            }
            ["diff", other, other_device] => {
                let other = self.find_input(other)?.trace.as_ref();
                let device = other_device.parse().ok();
                let difference = number
                    .zip(other.zip(device))
                    .and_then(|(number, other)| groups::difference((recording, number), other));
                written(&difference.ok_or_else(|| Refusal::no_such_path(path))?)
            }
            ["whatif"] => {
                let what_if = number.and_then(|number| recording.what_if.get(number));
                written(&what_if.map(|what_if| what_if.json(input)))
            }
            ["alternative"] => {
                let alternative = number.and_then(|number| recording.alternatives.get(number));
                written(&alternative.map(Alternative::json))
            }
            _ => Err(Refusal::no_such_path(path)),
        }
    }

    /// The computation that a path starts, `/api/{i}/{d}/whatif` or `…/alternative`, with its input and device.
    pub(crate) fn computation_of(&self, path: &str) -> Option<(Computation, usize, usize)> {
        let ["", "api", input, device, name] = path.split('/').collect::<Vec<_>>()[..] else {
            return None;
        };
        let computation = match name {
            "whatif" => Computation::WhatIf,
            "alternative" => Computation::Alternative,
            _ => return None,
        };
        let (input, device): (usize, usize) = (input.parse().ok()?, device.parse().ok()?);
        self.inputs.get(input)?.trace.as_ref()?.devices.get(device)?;
        Some((computation, input, device))
    }

    fn find_input(&self, number: &str) -> Result<&Input, Refusal> {
        let found = number.parse().ok().and_then(|number: usize| self.inputs.get(number));
        found.ok_or_else(|| Refusal::out_of_range("input", number, self.inputs.len().saturating_sub(1)))
    }
}

/// A request about one device.
struct Question<'viewer> {
    recording: &'viewer Recording,
    timeline: &'viewer Timeline,
    by: By,
}

impl Question<'_> {
    fn position(&self, event: &str) -> Result<usize, Refusal> {
        let events = self.timeline.events(&self.recording.trace);
        let position = event.parse().ok().filter(|&position: &usize| position <= events);
        position.ok_or_else(|| Refusal::out_of_range("event", event, events))
    }

    fn series(&self, level: &str, tile: &str) -> Result<Vec<u8>, Refusal> {
        let series = &self.timeline.grouping.series;
        let number = level.parse().ok().filter(|&number: &u32| number < series.levels());
        let number =
            number.ok_or_else(|| Refusal::out_of_range("level", level, series.levels() as usize - 1))?;
        let found = tile
            .parse()
            .ok()
            .and_then(|tile| series::tile(&self.recording.trace, self.timeline, self.by, number, tile));
        let last = (series.buckets(number) - 1) / crate::timeline::TILE;
        written(&found.ok_or_else(|| Refusal::out_of_range("tile", tile, last))?)
    }

    fn segment(&self, event: &str, address: &str) -> Result<Vec<u8>, Refusal> {
        let position = self.position(event)?;
        let digits = address.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let sites = &self.timeline.grouping(&self.recording.trace, self.by).sites;
        let found = digits
            .and_then(|digits| moment::segment(self.recording, self.timeline, sites, (position, digits)));
        written(&found.ok_or_else(|| {
            Refusal::new(
                404,
                format!("no segment starts at {address} at that moment"),
                "use a segment address of that moment",
            )
        })?)
    }
}

fn wanted(query: &str) -> Result<Wanted, Refusal> {
    let mut wanted = Wanted::default();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let wrong =
            |hint: &str| Refusal::new(400, format!("invalid parameter {name}={value}"), hint.to_owned());
        let number = || value.parse().map_err(|_| wrong("use a number"));
        match &*name {
            "sort" => {
                wanted.sort = match &*value {
                    "size" => Sort::Size,
                    "age" => Sort::Age,
                    "site" => Sort::Site,
                    "address" => Sort::Address,
                    _ => return Err(wrong("use size, age, site or address")),
                }
            }
            "order" => {
                wanted.is_descending = match &*value {
                    "" | "desc" => true,
                    "asc" => false,
                    _ => return Err(wrong("use asc or desc")),
                }
            }
            "filter" => wanted.filter = value.into_owned(),
            "offset" => wanted.offset = number()?,
            "limit" => wanted.limit = number()?,
            _ => return Err(wrong("use sort, order, filter, offset or limit")),
        }
    }
    Ok(wanted)
}

fn written(value: &impl Serialize) -> Result<Vec<u8>, Refusal> {
    serde_json::to_vec(value).map_err(|error| {
        Refusal::new(500, format!("could not write the response: {error}"), "please report this bug")
    })
}
