//! Interned call stacks.
//!
//! A recording repeats a few thousand stacks hundreds of thousands of times, and the stacks repeat a few thousand
//! frames. So names, frames and stacks are interned: an event has one [`StackId`]. A handle is valid only in the
//! table that created it; in another table it gives an empty result, never a panic.
//!
//! Invariants: `StackId::NONE` is the empty stack and always exists; two handles of one table are equal exactly if
//! their values are.

use std::collections::HashMap;
use std::hash::BuildHasher;

use crate::hash::FastHasher;

/// A string in a [`Stacks`] table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameId(u32);

/// A frame in a [`Stacks`] table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(u32);

/// A stack in a [`Stacks`] table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(u32);

impl StackId {
    /// The empty stack: no stack was recorded.
    pub const NONE: Self = Self(0);

    /// The index in the table, for side tables with one row per stack.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl FrameId {
    /// The index in the table, for side tables with one row per frame.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One function call: the function and its position in the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The function.
    pub function: NameId,
    /// The source file; empty or `??` when unknown.
    pub file: NameId,
    /// The line, 0 when unknown.
    pub line: u32,
    /// The executable or shared library of a native frame; empty for other frames.
    pub library: NameId,
}

/// The names, frames and stacks of one recording.
#[derive(Clone, Debug)]
pub struct Stacks {
    text: String,
    name_ends: Vec<usize>,
    name_lookup: Interner,
    frames: Vec<Frame>,
    frame_ids: HashMap<Frame, FrameId, FastHasher>,
    /// All stacks, concatenated, innermost frame first.
    frame_lists: Vec<FrameId>,
    stack_ends: Vec<usize>,
    stack_lookup: Interner,
}

/// Maps the hash of a value to handles. The values are only in the table's own columns, so a name or a stack is not
/// stored again as a key.
#[derive(Clone, Debug, Default)]
struct Interner {
    first: HashMap<u64, u32, FastHasher>,
    /// The next handle with the same hash. Collisions are so rare that a map for them is enough.
    next: HashMap<u32, u32, FastHasher>,
}

impl Interner {
    fn find(&self, hash: u64, is_equal: impl Fn(u32) -> bool) -> Option<u32> {
        let mut candidate = self.first.get(&hash);
        while let Some(&id) = candidate {
            if is_equal(id) {
                return Some(id);
            }
            candidate = self.next.get(&id);
        }
        None
    }

    fn insert(&mut self, hash: u64, id: u32) {
        if let Some(previous) = self.first.insert(hash, id) {
            self.next.insert(id, previous);
        }
    }
}

impl Default for Stacks {
    fn default() -> Self {
        let mut stacks = Self {
            text: String::new(),
            name_ends: Vec::new(),
            name_lookup: Interner::default(),
            frames: Vec::new(),
            frame_ids: HashMap::default(),
            frame_lists: Vec::new(),
            stack_ends: Vec::new(),
            stack_lookup: Interner::default(),
        };
        stacks.name("");
        stacks.stack(&[]);
        stacks
    }
}

impl Stacks {
    /// The handle of a string.
    pub fn name(&mut self, text: &str) -> NameId {
        let hash = FastHasher::default().hash_one(text);
        let found = self.name_lookup.find(hash, |id| self.name_text(NameId(id)) == text);
        NameId(found.unwrap_or_else(|| {
            let id = self.name_ends.len() as u32;
            self.text.push_str(text);
            self.name_ends.push(self.text.len());
            self.name_lookup.insert(hash, id);
            id
        }))
    }

    /// The handle of a frame.
    pub fn frame(&mut self, frame: Frame) -> FrameId {
        let frames = &mut self.frames;
        *self.frame_ids.entry(frame).or_insert_with(|| {
            frames.push(frame);
            FrameId(frames.len() as u32 - 1)
        })
    }

    /// The handle of a stack, innermost frame first.
    pub fn stack(&mut self, frames: &[FrameId]) -> StackId {
        let hash = FastHasher::default().hash_one(frames);
        let found = self.stack_lookup.find(hash, |id| self.frames_of(StackId(id)) == frames);
        StackId(found.unwrap_or_else(|| {
            let id = self.stack_ends.len() as u32;
            self.frame_lists.extend_from_slice(frames);
            self.stack_ends.push(self.frame_lists.len());
            self.stack_lookup.insert(hash, id);
            id
        }))
    }

    /// The string of a handle.
    pub fn name_text(&self, name: NameId) -> &str {
        let index = name.0 as usize;
        let start = if index == 0 { 0 } else { self.name_ends.get(index - 1).copied().unwrap_or(0) };
        let end = self.name_ends.get(index).copied().unwrap_or(start);
        &self.text[start..end]
    }

    /// The frame of a handle.
    pub fn frame_at(&self, frame: FrameId) -> Frame {
        self.frames.get(frame.index()).copied().unwrap_or_default()
    }

    /// The frames of a stack, innermost first.
    pub fn frames_of(&self, stack: StackId) -> &[FrameId] {
        let index = stack.index();
        let start = if index == 0 { 0 } else { self.stack_ends.get(index - 1).copied().unwrap_or(0) };
        let end = self.stack_ends.get(index).copied().unwrap_or(start);
        &self.frame_lists[start..end]
    }

    /// The handles of all stacks, starting with the empty one.
    pub fn ids(&self) -> impl Iterator<Item = StackId> + use<> {
        (0..self.stack_ends.len() as u32).map(StackId)
    }

    /// Number of distinct stacks, including the empty one.
    pub fn len(&self) -> usize {
        self.stack_ends.len()
    }

    /// Whether there is only the empty stack.
    pub fn is_empty(&self) -> bool {
        self.len() <= 1
    }

    /// All distinct frames.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Number of distinct frames.
    pub fn frame_count(&self) -> usize {
        self.frames.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_things_get_equal_handles() {
        let mut stacks = Stacks::default();
        let forward = stacks.name("forward");
        let file = stacks.name("model.py");
        let inner = stacks.frame(Frame { function: forward, file, line: 7, ..Frame::default() });
        let outer = stacks.frame(Frame { function: forward, file, line: 8, ..Frame::default() });
        let stack = stacks.stack(&[inner, outer]);
        assert_eq!(stacks.stack(&[inner, outer]), stack);
        assert_ne!(stacks.stack(&[outer, inner]), stack);
        assert_eq!(stacks.frames_of(stack), [inner, outer]);
        assert_eq!(stacks.name_text(stacks.frame_at(outer).file), "model.py");
        assert_eq!(stacks.name("forward"), forward);
        assert_eq!(stacks.ids().take(2).collect::<Vec<_>>(), [StackId::NONE, stack]);
    }

    #[test]
    fn the_empty_stack_is_there_and_foreign_handles_are_harmless() {
        let mut stacks = Stacks::default();
        assert_eq!(stacks.stack(&[]), StackId::NONE);
        assert!(stacks.is_empty());
        assert_eq!(stacks.frames_of(StackId(77)), []);
        assert_eq!(stacks.name_text(NameId(77)), "");
    }
}
