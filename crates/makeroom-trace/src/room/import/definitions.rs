//! Maps names, frames and stacks of the file to the trace's own tables.
//!
//! Numbers in the file are looked up, never used as indices, because a file may use any numbers. Undefined ones map
//! to the empty name or the empty stack.

use makeroom_core::{FastMap, Frame, FrameId, NameId, StackId, Stacks};

use crate::room::lines::Lines;
use crate::room::{FrameDefinition, FrameNumber, NameNumber, Origin, StackNumber};

/// Prefix of the library of PyTorch's allocator; a version may follow.
const TORCH_ALLOCATOR: &str = "libc10_cuda";

/// The caller of the driver, as far as the stack shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Asker {
    /// There are no native frames.
    #[default]
    Unknown,
    /// PyTorch's allocator.
    Torch,
    /// Any other code.
    Other,
}

/// Values by number. Recorders count from 1, so most numbers are positions; a file may use any others too.
#[derive(Debug, Default)]
struct Numbered<T> {
    counted: Vec<T>,
    others: FastMap<u32, T>,
}

impl<T: Copy> Numbered<T> {
    fn insert(&mut self, number: u32, value: T) {
        let position = (number as usize).wrapping_sub(1);
        if position == self.counted.len() {
            self.counted.push(value);
        } else if let Some(counted) = self.counted.get_mut(position) {
            *counted = value;
        } else {
            self.others.insert(number, value);
        }
    }

    #[inline]
    fn get(&self, number: u32) -> Option<T> {
        let counted = self.counted.get((number as usize).wrapping_sub(1));
        counted.or_else(|| self.others.get(&number)).copied()
    }
}

/// The definitions so far.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    names: FastMap<NameNumber, NameId>,
    frames: FastMap<FrameNumber, (FrameId, Asker)>,
    stacks: Numbered<(StackId, Asker)>,
    lines: Lines,
}

impl Definitions {
    /// No definitions. `began_ns` is the start of the recording, since 1970.
    pub(super) fn new(began_ns: u64) -> Self {
        Self { lines: Lines::new(began_ns), ..Self::default() }
    }

    pub(super) fn define_name(&mut self, stacks: &mut Stacks, number: NameNumber, text: &[u8]) {
        self.names.insert(number, stacks.name(&String::from_utf8_lossy(text)));
    }

    pub(super) fn define_frame(&mut self, stacks: &mut Stacks, number: FrameNumber, frame: &FrameDefinition) {
        let library = self.name(frame.library);
        let asker = match frame.origin {
            Origin::Native if is_torch_allocator(stacks.name_text(library)) => Asker::Torch,
            Origin::Native => Asker::Other,
            _ => Asker::Unknown,
        };
        let mut function = self.name(frame.function);
        if stacks.name_text(function).is_empty() && frame.offset != 0 {
            function = stacks.name(&format!("+{:#x}", frame.offset));
        }
        let file = self.name(frame.file);
        let mut file = if stacks.name_text(file).is_empty() { library } else { file };
        let mut line = frame.line;
        if frame.origin == Origin::Native
            && line == 0
            && let Some(found) = self.lines.line_at(stacks.name_text(library), frame.offset)
        {
            (file, line) = (stacks.name(&found.0), found.1);
        }
        let library = if frame.origin == Origin::Native { library } else { NameId::default() };
        let id = stacks.frame(Frame { function, file, line, library });
        self.frames.insert(number, (id, asker));
    }

    pub(super) fn define_stack(&mut self, stacks: &mut Stacks, number: StackNumber, frames: &[FrameNumber]) {
        let known: Vec<(FrameId, Asker)> =
            frames.iter().filter_map(|frame| self.frames.get(frame).copied()).collect();
        let askers = |wanted| known.iter().any(|&(_, asker)| asker == wanted);
        let asker = if askers(Asker::Torch) {
            Asker::Torch
        } else if askers(Asker::Other) {
            Asker::Other
        } else {
            Asker::Unknown
        };
        let frames: Vec<FrameId> = known.iter().map(|&(frame, _)| frame).collect();
        self.stacks.insert(number.0, (stacks.stack(&frames), asker));
    }

    /// A stack and its caller; `None` if it is undefined.
    pub(super) fn stack(&self, number: StackNumber) -> Option<(StackId, Asker)> {
        if number == StackNumber(0) {
            return Some((StackId::NONE, Asker::Unknown));
        }
        self.stacks.get(number.0)
    }

    /// A name; the empty one if it is undefined.
    pub(super) fn name(&self, number: NameNumber) -> NameId {
        self.names.get(&number).copied().unwrap_or_default()
    }
}

fn is_torch_allocator(library: &str) -> bool {
    library.rsplit('/').next().is_some_and(|file| file.starts_with(TORCH_ALLOCATOR))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allocator_is_told_by_the_file_and_not_by_the_directory() {
        assert!(is_torch_allocator("/opt/torch/lib/libc10_cuda.so"));
        assert!(is_torch_allocator("libc10_cuda-5f1e.so.2"));
        assert!(!is_torch_allocator("/opt/libc10_cuda/libother.so"));
    }

    #[test]
    fn the_last_definition_of_a_number_counts() {
        let mut numbered = Numbered::default();
        for (number, value) in [(2, 'a'), (1, 'b'), (2, 'c'), (u32::MAX, 'd'), (1, 'e'), (0, 'f')] {
            numbered.insert(number, value);
        }
        let found = [0, 1, 2, 3, u32::MAX].map(|number| numbered.get(number));
        assert_eq!(found, [Some('f'), Some('e'), Some('c'), None, Some('d')]);
    }

    #[test]
    fn native_frames_without_a_source_show_their_library() {
        let (mut stacks, mut definitions) = (Stacks::default(), Definitions::default());
        definitions.define_name(&mut stacks, NameNumber(5), b"/usr/lib/libnccl.so.2");
        let frame = FrameDefinition { library: NameNumber(5), offset: 0x1f0, ..FrameDefinition::default() };
        definitions.define_frame(&mut stacks, FrameNumber(9), &frame);
        definitions.define_stack(&mut stacks, StackNumber(1), &[FrameNumber(9), FrameNumber(77)]);
        let (stack, asker) = definitions.stack(StackNumber(1)).unwrap();
        assert_eq!(asker, Asker::Other);
        let [frame] = stacks.frames_of(stack) else { panic!("frame 77 is not defined") };
        let frame = stacks.frame_at(*frame);
        assert_eq!(stacks.name_text(frame.function), "+0x1f0");
        assert_eq!(stacks.name_text(frame.file), "/usr/lib/libnccl.so.2");
        assert_eq!(definitions.stack(StackNumber(2)), None);
    }
}
