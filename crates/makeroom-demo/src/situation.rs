//! The definition of a situation.

use std::io::{self, Write};

use makeroom_core::Bytes;
use makeroom_cuda::{Driver, Error};

use crate::card::Card;

/// A program that runs out of memory in one way.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// Its name on the command line.
    pub name: &'static str,
    /// A short description.
    pub title: &'static str,
    /// What the program does, and the symptoms that users usually see.
    pub about: &'static str,
    /// The software GPU it runs on, as `MAKEROOM_SIMGPU` describes it.
    pub software: &'static str,
    /// How it runs on a real GPU.
    pub real: OnRealCard,
    /// Percentage of the GPU that another process holds in the meantime; 0 for no other process.
    pub held_by_other_percent: u64,
    pub(crate) program: fn(&Card, &mut dyn Write) -> Outcome,
}

/// How a situation runs on a real GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnRealCard {
    /// Limited to this much memory: the rest of the GPU stays available to others.
    Within(Bytes),
    /// It does not, for this reason.
    Never(&'static str),
}

/// How a program ended: it completed, a driver call that it depends on failed, or it could not print.
pub type Outcome = Result<(), Ending>;

/// Why a program ended early.
#[derive(Debug)]
pub enum Ending {
    /// A driver call failed.
    Refused(Error),
    /// The program's output is not read.
    Unheard(io::Error),
}

impl From<Error> for Ending {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<io::Error> for Ending {
    fn from(error: io::Error) -> Self {
        Self::Unheard(error)
    }
}

impl Situation {
    /// Runs the program on the first GPU. It prints what such programs print, and returns why it ended.
    pub fn run(&self, output: &mut dyn Write) -> Outcome {
        let card = Card::open(Driver::load()?)?;
        (self.program)(&card, output)
    }

    /// The other process: allocates a share of the first GPU and keeps it until `until` ends.
    pub fn hold(percent: u64, told: &mut dyn Write, until: &mut dyn io::Read) -> Outcome {
        let card = Card::open(Driver::load()?)?;
        crate::situations::other_process::hold(&card, percent, told, until)
    }
}
