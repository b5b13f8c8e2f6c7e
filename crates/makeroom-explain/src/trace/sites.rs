//! Who holds live memory: a tree of the program's own lines, library frames folded into the line that called
//! them.
//!
//! Frames come innermost first. The program's own frames, outermost first, are the path in the tree; of the
//! library frames below the last of them only one is kept, as the name of what was called: the innermost, or, in stacks
//! that go down to the driver, the one that the program itself called. A node with one child that matters is merged
//! with it, so that `<module>` and `main` do not fill the screen.

use std::borrow::Borrow;

use makeroom_core::{
    Bytes, FastMap, Frame, FrameId, Framework, Library, SortCompact as _, StackId, Stacks, Trace,
};

use super::source::framework;
use super::state::LiveBlock;
use crate::Site;
use crate::library::{is_library_file, is_own_source, short_file};
use crate::native::{self, Owner, launched_by};

/// Places that hold less than this share are left out.
const LEAST_SHARE: f64 = 0.005;
/// A callee with this share of its caller stands for it.
const MAIN_SHARE: f64 = 0.98;
/// Own lines of one stack that are kept, the innermost.
const DEEPEST_PATH: usize = 48;
/// Characters of a place; a hostile file can hold names of megabytes.
const LONGEST_PLACE: usize = 240;
/// Places shown on one level.
const MOST_CALLEES: usize = 8;

/// Live bytes and blocks of one stack.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StackTotal {
    pub(crate) bytes: Bytes,
    pub(crate) blocks: u64,
}

/// Live memory by stack.
pub(crate) type HeldByStack = FastMap<StackId, StackTotal>;

/// Adds up blocks by stack.
pub(crate) fn by_stack(blocks: impl IntoIterator<Item: Borrow<LiveBlock>>) -> HeldByStack {
    let mut held = HeldByStack::default();
    for block in blocks {
        let block = block.borrow();
        let entry = held.entry(block.stack).or_default();
        entry.bytes += block.requested;
        entry.blocks += 1;
    }
    held
}

/// Names the places of a recording.
#[derive(Clone, Copy, Debug)]
pub struct Places<'trace> {
    stacks: &'trace Stacks,
    /// The recorded program's own file, empty where it is not known.
    executable: &'trace str,
    /// Whether machine code was recorded for its own sake, and not as the inside of Python's libraries.
    is_whole_process: bool,
    /// What to say of memory without a stack.
    without_stack: &'static str,
}

impl<'trace> Places<'trace> {
    /// Those of this one.
    pub fn new(trace: &'trace Trace) -> Self {
        let executable = trace.process.as_ref().map_or("", |process| process.identity.executable.as_str());
        let without_stack = match framework(trace) {
            Framework::Rmm => "unknown places: RMM logs contain no stacks",
            _ if trace.stacks.frame_count() == 0 => "unknown places: no stacks were recorded",
            Framework::PyTorch => "no stack recorded (backward pass, or a thread without Python)",
            _ => "no stack recorded",
        };
        Self { stacks: &trace.stacks, executable, is_whole_process: trace.process.is_some(), without_stack }
    }

    /// The tree of places, largest first, and the bytes of those left out.
    pub(crate) fn tree(self, held: &HeldByStack) -> (Vec<Site>, Bytes) {
        let whole: Bytes = held.values().map(|entry| entry.bytes).sum();
        let mut paths: Vec<(Vec<Step>, StackTotal)> =
            held.iter().map(|(&stack, &entry)| (self.path(stack), entry)).collect();
        paths.sort_unstable_by(|(first, _), (second, _)| first.cmp(second));
        let sites = Node::new(&paths, 0).sites(self, whole.scaled(LEAST_SHARE));
        let shown: Bytes = sites.iter().map(|site| site.bytes).sum();
        (sites, whole - shown)
    }

    /// The program's innermost own line of a stack, for a sentence.
    pub(crate) fn site_of(self, stack: StackId) -> Option<String> {
        self.without(stack, "")
    }

    /// The same, passing over a function: what starts a kernel has the kernel's own name.
    pub(crate) fn without(self, stack: StackId, function: &str) -> Option<String> {
        self.innermost(stack, function).map(|frame| self.describe(frame))
    }

    /// The name of a stack that is the same in every recording of a program: its innermost own line. Compiled programs
    /// often allocate through one function of their own that checks for errors, so theirs includes the caller.
    pub(crate) fn compared(self, stack: StackId) -> String {
        let Some((frame, _)) = self.site(stack) else { return self.without_stack.to_owned() };
        let place = self.describe(frame);
        let is_compiled = self.stacks.frame_at(frame).library != Frame::default().library;
        match self.caller(stack).filter(|_| is_compiled) {
            Some(caller) => format!("{caller}, through {place}"),
            None => place,
        }
    }

    /// The kernel that a stack launches, mangled: the function that nvcc makes to launch it carries its name.
    pub(crate) fn kernel(self, stack: StackId) -> Option<&'trace str> {
        let frames = self.stacks.frames_of(stack).iter();
        frames.map(|&frame| self.stacks.name_text(self.stacks.frame_at(frame).function)).find_map(launched_by)
    }

    /// The frame that stands for a stack: the program's innermost own line, or what says most where nothing is its own;
    /// and whether it is the program's. `None` where no stack was recorded.
    pub fn site(self, stack: StackId) -> Option<(FrameId, bool)> {
        let frame = self.innermost(stack, "")?;
        Some((frame, self.owner(frame) == Owner::Program))
    }

    /// The frame that says what the memory is for: the innermost one, or, in stacks that go down to the driver, what the
    /// program's own line called. `None` where no stack was recorded.
    pub fn inner(self, stack: StackId) -> Option<FrameId> {
        let frames = self.stacks.frames_of(stack);
        let &innermost = frames.first()?;
        Some(if self.owner(innermost) == Owner::Program { innermost } else { self.called(frames) })
    }

    /// The file of a frame, or the library where no line is known.
    pub fn module(self, frame: FrameId) -> String {
        let frame = self.stacks.frame_at(frame);
        let name = |name| self.stacks.name_text(name);
        let library = name(frame.library);
        if !library.is_empty() && frame.line == 0 {
            let file = library.rsplit('/').next().unwrap_or(library);
            return clip(native::known_library(library).map_or(file, |library| library.name()));
        }
        clip(short_file(name(frame.file)))
    }

    fn innermost(self, stack: StackId, function: &str) -> Option<FrameId> {
        let frames = self.stacks.frames_of(stack);
        let is_meant = |frame: &&FrameId| {
            let name = self.stacks.name_text(self.stacks.frame_at(**frame).function);
            self.owner(**frame) == Owner::Program && (function.is_empty() || name != function)
        };
        let told = || frames.iter().find(|&&frame| self.owner(frame) != Owner::Passage);
        let python = || frames.iter().find(|&&frame| self.is_python(frame));
        let node = || frames.iter().find(|&&frame| self.is_autograd_node(frame));
        frames.iter().find(is_meant).or_else(python).or_else(node).or_else(told).or(frames.first()).copied()
    }

    /// Whether a frame is a line of a Python file.
    fn is_python(self, frame: FrameId) -> bool {
        let frame = self.stacks.frame_at(frame);
        frame.line > 0
            && self.stacks.name_text(frame.file).rsplit_once('.').is_some_and(|(_, end)| end == "py")
    }

    /// Whether a frame computes the gradient of an operator. It names the operator where the backward pass has no Python
    /// frames, but a snapshot has C++ frames.
    fn is_autograd_node(self, frame: FrameId) -> bool {
        let function = self.stacks.name_text(self.stacks.frame_at(frame).function);
        function.starts_with("torch::autograd::generated::")
    }

    /// The own line that called the program's innermost one, if it is another function's.
    pub(crate) fn caller(self, stack: StackId) -> Option<String> {
        let frames = self.stacks.frames_of(stack);
        let mut own = frames.iter().filter(|&&frame| self.owner(frame) == Owner::Program);
        let function = |frame: &FrameId| self.stacks.frame_at(*frame).function;
        let innermost = function(own.next()?);
        own.find(|frame| function(frame) != innermost).map(|&frame| self.describe(frame))
    }

    /// What the program's innermost own line called, if it did not ask itself.
    pub(crate) fn through(self, stack: StackId) -> Option<String> {
        let frames = self.stacks.frames_of(stack);
        let is_own = |&frame: &FrameId| self.owner(frame) == Owner::Program;
        let is_called = frames.first().is_some_and(|frame| !is_own(frame)) && frames.iter().any(is_own);
        is_called.then(|| self.describe(self.called(frames)))
    }

    /// The library that allocated: the innermost one of the stack, if it is known.
    pub(crate) fn library(self, stack: StackId) -> Option<Library> {
        match self.asker(stack)? {
            Owner::Library(known) => known,
            _ => None,
        }
    }

    /// Whether the program's own compiled code asked, and no library for it.
    pub(crate) fn is_asked_by_program(self, stack: StackId) -> bool {
        self.asker(stack) == Some(Owner::Program)
    }

    fn asker(self, stack: StackId) -> Option<Owner> {
        let owners = self.stacks.frames_of(stack).iter().map(|&frame| self.owner(frame));
        owners.into_iter().find(|owner| *owner != Owner::Passage)
    }

    fn path(self, stack: StackId) -> Vec<Step> {
        let frames = self.stacks.frames_of(stack);
        let Some(&innermost) = frames.first() else { return vec![Step::Unknown] };
        let is_own = |frame: &FrameId| self.owner(*frame) == Owner::Program;
        let mut path: Vec<Step> =
            frames.iter().rev().filter(|frame| is_own(frame)).map(|&frame| Step::Own(frame)).collect();
        path.dedup();
        // A recursion of the program is as deep as it likes; what it ends in is what is looked for.
        path.drain(..path.len().saturating_sub(DEEPEST_PATH));
        if !is_own(&innermost) {
            path.push(Step::Library(self.called(frames)));
        }
        path
    }

    /// The line that called this one, if both are compiled and of different functions.
    fn compiled_caller(self, caller: Step, below: FrameId) -> Option<String> {
        let Step::Own(caller) = caller else { return None };
        let (from, to) = (self.stacks.frame_at(caller), self.stacks.frame_at(below));
        let is_compiled = |frame: Frame| frame.library != Frame::default().library;
        (is_compiled(from) && is_compiled(to) && from.function != to.function).then(|| self.describe(caller))
    }

    /// What stands for the library frames below the program's own.
    fn called(self, frames: &[FrameId]) -> FrameId {
        let is_native = |frame: &FrameId| self.stacks.frame_at(*frame).library != Frame::default().library;
        let below = frames.iter().take_while(|&&frame| self.owner(frame) != Owner::Program);
        let below: Vec<FrameId> = below.copied().collect();
        if !below.iter().any(is_native) {
            let python = below.iter().find(|&&frame| self.is_python(frame));
            let told = || below.iter().find(|&&frame| self.owner(frame) != Owner::Passage);
            return python.or_else(told).or(frames.first()).copied().unwrap_or_default();
        }
        if below.len() < frames.len() {
            return below[below.len() - 1];
        }
        // Nothing is the program's: what is furthest in and says something.
        below.iter().copied().find(|&frame| self.owner(frame) != Owner::Passage).unwrap_or(below[0])
    }

    fn owner(self, frame: FrameId) -> Owner {
        let frame = self.stacks.frame_at(frame);
        let name = |name| self.stacks.name_text(name);
        let is_own_line = frame.line > 0 && is_own_source(name(frame.file));
        match name(frame.library) {
            "" if self.is_whole_process && is_own_line => Owner::Program,
            "" if is_library_file(name(frame.file)) => {
                let is_passage = frame.line == 0 && native::is_torch_passage(name(frame.function));
                if is_passage { Owner::Passage } else { Owner::Library(None) }
            }
            "" => Owner::Program,
            library => match native::owner(library, name(frame.function), self.executable) {
                // A header's code lies in the program's own file.
                Owner::Program if frame.line > 0 && !is_own_line => Owner::Library(None),
                owner => owner,
            },
        }
    }

    /// A frame's function as people write it, and its whole file, or the library where no line is known. Names of
    /// megabytes are cut.
    pub fn names(self, frame: FrameId) -> (String, String) {
        let frame = self.stacks.frame_at(frame);
        let name = |name| self.stacks.name_text(name);
        let library = name(frame.library);
        let file = if !library.is_empty() && frame.line == 0 { library } else { name(frame.file) };
        (clip(&native::readable(name(frame.function))), clip(file))
    }

    /// A frame in one line: file, line and function.
    pub fn describe(self, frame: FrameId) -> String {
        let frame = self.stacks.frame_at(frame);
        let name = |name| self.stacks.name_text(name);
        let function = clip(&native::readable(name(frame.function)));
        let library = name(frame.library);
        if !library.is_empty() && frame.line == 0 {
            let file = library.rsplit('/').next().unwrap_or(library);
            return format!(
                "{function} in {}",
                clip(native::known_library(library).map_or(file, |library| library.name()))
            );
        }
        let file = clip(short_file(name(frame.file)));
        match (file.as_str(), frame.line) {
            ("" | "??", _) => function,
            (file, 0) => format!("{file} {function}"),
            (file, line) => format!("{file}:{line} {function}"),
        }
    }
}

fn clip(text: &str) -> String {
    text.chars().take(LONGEST_PLACE).collect()
}

/// A node of the tree: all paths that begin alike, sorted. Children are looked for when they are shown; most nodes of a
/// large tree hold too little for that.
#[derive(Clone, Copy)]
struct Node<'paths> {
    paths: &'paths [(Vec<Step>, StackTotal)],
    /// How many steps they share.
    depth: usize,
    held: StackTotal,
}

/// One step down the tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// A line of the program.
    Own(FrameId),
    /// What the line above asked of a library.
    Library(FrameId),
    /// Nothing was recorded.
    Unknown,
}

impl<'paths> Node<'paths> {
    fn new(paths: &'paths [(Vec<Step>, StackTotal)], depth: usize) -> Self {
        let mut held = StackTotal::default();
        for (_, entry) in paths {
            held.bytes += entry.bytes;
            held.blocks += entry.blocks;
        }
        Self { paths, depth, held }
    }

    /// The children that hold enough to be shown, in the order of their steps.
    fn children(self, least: Bytes) -> impl Iterator<Item = (Step, Self)> {
        let step = move |path: &[Step]| path.get(self.depth).copied();
        let groups = self.paths.chunk_by(move |(first, _), (second, _)| step(first) == step(second));
        let children = groups.filter_map(move |paths| {
            let (first, _) = paths.first()?;
            Some((step(first)?, Self::new(paths, self.depth + 1)))
        });
        children.filter(move |(_, child)| child.held.bytes >= least)
    }

    fn sites(self, places: Places<'_>, least: Bytes) -> Vec<Site> {
        let mut sites: Vec<Site> =
            self.children(least).map(|(step, child)| child.site(places, step, least)).collect();
        sites.sort_compact_by_key(|site| std::cmp::Reverse(site.bytes));
        sites.truncate(MOST_CALLEES);
        sites
    }

    fn site(mut self, places: Places<'_>, mut step: Step, least: Bytes) -> Site {
        let (mut caller, mut through) = (None, None);
        // Where nearly everything comes from one callee, the callee says it all.
        while let Some((only, child)) = self.main_child(least) {
            match only {
                Step::Own(below) => {
                    caller = places.compiled_caller(step, below).or(caller);
                    step = only;
                }
                Step::Library(frame) => through = Some(places.describe(frame)),
                Step::Unknown => {}
            }
            self = child;
        }
        let is_own = matches!(step, Step::Own(_));
        let place = match step {
            Step::Own(frame) | Step::Library(frame) => places.describe(frame),
            Step::Unknown => places.without_stack.to_owned(),
        };
        let held = self.held;
        Site {
            place,
            is_own,
            caller,
            through,
            bytes: held.bytes,
            blocks: held.blocks,
            callees: self.sites(places, least),
        }
    }

    /// The child that holds nearly all of this node, if there is one.
    fn main_child(self, least: Bytes) -> Option<(Step, Self)> {
        let is_main = |child: &Self| child.held.bytes.share_of(self.held.bytes) >= MAIN_SHARE;
        self.children(least).find(|(_, child)| is_main(child))
    }
}
