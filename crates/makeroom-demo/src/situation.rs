//! What a situation is.

use std::io::{self, Write};

use makeroom_core::Bytes;
use makeroom_cuda::{Driver, Error};

use crate::card::Card;

/// A program that runs out of memory in one way.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// What to call it on the command line.
    pub name: &'static str,
    /// What happens, in a few words.
    pub title: &'static str,
    /// What the program does and what people usually see of it.
    pub about: &'static str,
    /// The software GPU it runs on, as `MAKEROOM_SIMGPU` describes it.
    pub software: &'static str,
    /// How it runs on a real card.
    pub real: OnRealCard,
    /// How much of the card another process holds meanwhile, in percent; 0 where there is none.
    pub held_by_other_percent: u64,
    pub(crate) program: fn(&Card, &mut dyn Write) -> Outcome,
}

/// How a situation runs on a real card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnRealCard {
    /// In so much memory: the rest of the card stays others'.
    Within(Bytes),
    /// Not at all, and why.
    Never(&'static str),
}

/// How a program ended: it went through, the driver refused something that it cannot do without, or it could not
/// print.
pub type Outcome = Result<(), Ending>;

/// Why a program ended early.
#[derive(Debug)]
pub enum Ending {
    /// The driver refused.
    Refused(Error),
    /// Nobody reads what the program prints.
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
    /// Runs the program on the first card. It prints what such programs print; the result is what ended it.
    pub fn run(&self, output: &mut dyn Write) -> Outcome {
        let card = Card::open(Driver::load()?)?;
        (self.program)(&card, output)
    }

    /// Takes a share of the first card for as long as somebody reads nothing from `until`: the other process.
    pub fn hold(percent: u64, told: &mut dyn Write, until: &mut dyn io::Read) -> Outcome {
        let card = Card::open(Driver::load()?)?;
        crate::situations::other_process::hold(&card, percent, told, until)
    }
}
