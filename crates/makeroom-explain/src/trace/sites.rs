//! Who holds live memory: a tree of the program's own lines, library frames folded into the line that called
//! them.
//!
//! Frames come innermost first. The program's own frames, outermost first, are the path in the tree; of the
//! library frames below the last of them only the innermost is kept, as the name of what was called. A node with
//! one child that matters is merged with it, so that `<module>` and `main` do not fill the screen.

use std::collections::BTreeMap;

use makeroom_core::{Bytes, FastMap, FrameId, StackId, Stacks};

use super::state::LiveBlock;
use crate::Site;
use crate::library::{is_library_file, short_file};

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
pub(crate) struct Held {
    pub(crate) bytes: Bytes,
    pub(crate) blocks: u64,
}

/// Live memory by stack.
pub(crate) type HeldByStack = FastMap<StackId, Held>;

/// Adds up blocks by stack.
pub(crate) fn by_stack<'state>(blocks: impl IntoIterator<Item = &'state LiveBlock>) -> HeldByStack {
    let mut held = HeldByStack::default();
    for block in blocks {
        let entry = held.entry(block.stack).or_default();
        entry.bytes += block.requested;
        entry.blocks += 1;
    }
    held
}

/// The tree of places, largest first, and the bytes of those left out.
pub(crate) fn tree(stacks: &Stacks, held: &HeldByStack) -> (Vec<Site>, Bytes) {
    let whole: Bytes = held.values().map(|entry| entry.bytes).sum();
    let mut root = Node::default();
    for (&stack, &entry) in held {
        root.add(&path(stacks, stack), entry);
    }
    let sites = root.into_sites(stacks, whole.scaled(LEAST_SHARE));
    let shown: Bytes = sites.iter().map(|site| site.bytes).sum();
    (sites, whole - shown)
}

/// The program's innermost own line of a stack, for a sentence.
pub(crate) fn place_of(stacks: &Stacks, stack: StackId) -> Option<String> {
    let frames = stacks.frames_of(stack);
    let own = frames.iter().find(|&&frame| !is_library(stacks, frame));
    own.or(frames.first()).map(|&frame| describe(stacks, frame))
}

#[derive(Default)]
struct Node {
    held: Held,
    children: BTreeMap<Step, Self>,
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

impl Node {
    fn add(&mut self, path: &[Step], entry: Held) {
        self.held.bytes += entry.bytes;
        self.held.blocks += entry.blocks;
        if let Some((step, rest)) = path.split_first() {
            self.children.entry(*step).or_default().add(rest, entry);
        }
    }

    fn into_sites(self, stacks: &Stacks, least: Bytes) -> Vec<Site> {
        let mut sites: Vec<Site> = self
            .children
            .into_iter()
            .filter(|(_, child)| child.held.bytes >= least)
            .map(|(step, child)| child.into_site(stacks, step, least))
            .collect();
        sites.sort_by_key(|site| std::cmp::Reverse(site.bytes));
        sites.truncate(MOST_CALLEES);
        sites
    }

    fn into_site(mut self, stacks: &Stacks, mut step: Step, least: Bytes) -> Site {
        let mut through = None;
        // Where nearly everything comes from one callee, the callee says it all.
        while let Some((only, child)) = self.take_main_child(least) {
            match only {
                Step::Own(_) => step = only,
                Step::Library(frame) => through = Some(describe(stacks, frame)),
                Step::Unknown => {}
            }
            self = child;
        }
        let is_own = matches!(step, Step::Own(_));
        let place = match step {
            Step::Own(frame) | Step::Library(frame) => describe(stacks, frame),
            Step::Unknown => "no stack recorded (backward pass, or a thread without Python)".to_owned(),
        };
        let held = self.held;
        Site {
            place,
            is_own,
            through,
            bytes: held.bytes,
            blocks: held.blocks,
            callees: self.into_sites(stacks, least),
        }
    }
}

impl Node {
    /// The child that holds nearly all of this node, if there is one.
    fn take_main_child(&mut self, least: Bytes) -> Option<(Step, Self)> {
        self.children.retain(|_, child| child.held.bytes >= least);
        let is_main = |child: &Self| child.held.bytes.share_of(self.held.bytes) >= MAIN_SHARE;
        let step = self.children.iter().find(|(_, child)| is_main(child)).map(|(&step, _)| step)?;
        self.children.remove_entry(&step)
    }
}

fn path(stacks: &Stacks, stack: StackId) -> Vec<Step> {
    let frames = stacks.frames_of(stack);
    if frames.is_empty() {
        return vec![Step::Unknown];
    }
    let mut path: Vec<Step> = frames
        .iter()
        .rev()
        .filter(|&&frame| !is_library(stacks, frame))
        .map(|&frame| Step::Own(frame))
        .collect();
    path.dedup();
    // A recursion of the program is as deep as it likes; what it ends in is what is looked for.
    path.drain(..path.len().saturating_sub(DEEPEST_PATH));
    let innermost = frames[0];
    if is_library(stacks, innermost) {
        path.push(Step::Library(innermost));
    }
    path
}

fn is_library(stacks: &Stacks, frame: FrameId) -> bool {
    is_library_file(stacks.name_text(stacks.frame_at(frame).file))
}

fn describe(stacks: &Stacks, frame: FrameId) -> String {
    let frame = stacks.frame_at(frame);
    let clip = |text: &str| text.chars().take(LONGEST_PLACE).collect::<String>();
    let file = clip(short_file(stacks.name_text(frame.file)));
    let function = clip(stacks.name_text(frame.function));
    match (file.as_str(), frame.line) {
        ("" | "??", _) => function,
        (file, 0) => format!("{file} {function}"),
        (file, line) => format!("{file}:{line} {function}"),
    }
}
