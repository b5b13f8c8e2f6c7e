//! The live view of `makeroom top`: its state, and the effect of keys.
//!
//! ```text
//! mod.rs      the state: the last account, each holder's history, order, filter, selection
//! rows.rs     the rows of the table
//! layout.rs   the rows of each part of the screen
//! line.rs     a line with styles, cut to the terminal
//! draw.rs     draws the state as lines
//! ```
//!
//! Nothing here blocks, does I/O or depends on a terminal. Color only adds to information that is also in the text.

mod draw;
mod layout;
mod line;
mod rows;

use std::collections::VecDeque;
use std::path::PathBuf;

use makeroom_core::Bytes;
use makeroom_explain::Site;
use makeroom_holders::{Account, Device};
use makeroom_ordered::{OrderedMap, OrderedSet};

use rows::HolderRow;

/// Number of readings in a holder's history.
const HISTORY: usize = 60;

/// A key press.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Selects the row above.
    Up,
    /// Selects the row below.
    Down,
    /// A letter.
    Letter(char),
    /// Deletes the last letter.
    Backspace,
    /// Opens or accepts.
    Enter,
    /// Closes or cancels.
    Escape,
}

/// A request to the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Exit.
    Quit,
    /// Read the sites of a recorded program.
    Sites {
        /// Its PID.
        pid: u32,
        /// Its recording.
        recording: PathBuf,
    },
}

/// The sort order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Memory,
    Growth,
    Age,
    User,
    Process,
}

impl Order {
    const ALL: [Self; 5] = [Self::Memory, Self::Growth, Self::Age, Self::User, Self::Process];

    fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Growth => "growth",
            Self::Age => "age",
            Self::User => "user",
            Self::Process => "process",
        }
    }

    fn next(self) -> Self {
        let position = Self::ALL.iter().position(|order| *order == self).unwrap_or(0);
        Self::ALL[(position + 1) % Self::ALL.len()]
    }
}

/// The lower part, with the sites of one program.
#[derive(Debug)]
struct Sites {
    pid: u32,
    /// `None` while they are being read.
    found: Option<Result<Vec<Site>, String>>,
}

/// The state of the view.
#[derive(Debug)]
pub struct Screen {
    account: Option<Account>,
    /// The readings of each holder, oldest first.
    history: OrderedMap<(String, u32), VecDeque<u64>>,
    order: Order,
    is_reversed: bool,
    filter: String,
    is_filtering: bool,
    /// The selected row; `None` selects the first.
    chosen: Option<usize>,
    sites: Option<Sites>,
    uses_colour: bool,
}

impl Screen {
    /// An empty screen.
    pub fn new(uses_colour: bool) -> Self {
        Self {
            account: None,
            history: OrderedMap::new(),
            order: Order::Memory,
            is_reversed: false,
            filter: String::new(),
            is_filtering: false,
            chosen: None,
            sites: None,
            uses_colour,
        }
    }

    /// Shows a new account.
    pub fn update(&mut self, account: Account) {
        let mut seen = OrderedSet::new();
        for device in usable(&account) {
            for holder in &device.holders {
                let key = (device.uuid.clone(), holder.pid);
                let history = self.history.entry(key.clone()).or_default();
                history.push_back(holder.bytes.map_or(0, Bytes::get));
                if history.len() > HISTORY {
                    history.pop_front();
                }
                seen.insert(key);
            }
        }
        // If a PID is reused, it is another process.
        self.history.retain(|key, _| seen.contains(key));
        self.keeping_selection(|screen| screen.account = Some(account));
    }

    /// Shows the requested sites.
    pub fn show_sites(&mut self, pid: u32, found: Result<Vec<Site>, String>) {
        if let Some(sites) = self.sites.as_mut().filter(|sites| sites.pid == pid) {
            sites.found = Some(found);
        }
    }

    /// Handles a key.
    pub fn press(&mut self, key: Key) -> Option<Request> {
        if self.is_filtering {
            self.press_while_filtering(key);
            return None;
        }
        match key {
            Key::Letter('q') => return Some(Request::Quit),
            Key::Escape if self.sites.take().is_none() && self.filter.is_empty() => {
                return Some(Request::Quit);
            }
            Key::Escape => self.keeping_selection(|screen| screen.filter.clear()),
            Key::Letter('s') => self.keeping_selection(|screen| screen.order = screen.order.next()),
            Key::Letter('r') => self.keeping_selection(|screen| screen.is_reversed = !screen.is_reversed),
            Key::Letter('/') => self.is_filtering = true,
            Key::Up | Key::Letter('k') => self.select(self.selected().saturating_sub(1)),
            Key::Down | Key::Letter('j') => self.select(self.selected() + 1),
            Key::Enter => return self.open(),
            Key::Letter(_) | Key::Backspace => {}
        }
        None
    }

    fn press_while_filtering(&mut self, key: Key) {
        self.is_filtering = !matches!(key, Key::Enter | Key::Escape);
        self.keeping_selection(|screen| match key {
            Key::Letter(letter) => screen.filter.push(letter),
            Key::Backspace => {
                screen.filter.pop();
            }
            Key::Escape => screen.filter.clear(),
            Key::Enter | Key::Up | Key::Down => {}
        });
    }

    /// Opens the sites of the selected program, or shows why there are none.
    fn open(&mut self) -> Option<Request> {
        let row = self.rows().into_iter().nth(self.selected())?;
        let Some(recording) = row.recording else {
            let why =
                "not recorded: start it with makeroom run -- PROGRAM to see its lines of code".to_owned();
            self.sites = Some(Sites { pid: row.pid, found: Some(Err(why)) });
            return None;
        };
        self.sites = Some(Sites { pid: row.pid, found: None });
        Some(Request::Sites { pid: row.pid, recording })
    }

    fn selected(&self) -> usize {
        self.chosen.unwrap_or(0)
    }

    fn select(&mut self, position: usize) {
        self.chosen = Some(position.min(self.rows().len().saturating_sub(1)));
    }

    /// Changes the view and keeps the selected process selected, wherever its row moves.
    fn keeping_selection(&mut self, change: impl FnOnce(&mut Self)) {
        let key = |row: &HolderRow| (row.device.clone(), row.pid);
        let before = self.chosen.and_then(|position| self.rows().get(position).map(key));
        change(self);
        let Some(position) = self.chosen else { return };
        let found = self.rows().iter().position(|row| Some(key(row)) == before);
        self.select(found.unwrap_or(position));
    }

    fn rows(&self) -> Vec<HolderRow> {
        rows::all(self)
    }
}

/// The devices that programs can use: MIG instances, or the GPU itself.
fn usable(account: &Account) -> impl Iterator<Item = &Device> {
    account.devices.iter().flat_map(Device::usable)
}

#[cfg(test)]
mod tests;
