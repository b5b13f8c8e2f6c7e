//! The page frames of a GPU: its physical memory.
//!
//! A frame is a number; `backing.rs` has the memory behind it. Written frames are tracked, so that their host memory
//! is released when they are freed. Frames that were never written cost nothing.

/// The frames of one GPU, or of the host.
///
/// Invariant: `free.len() + frames held = written.len()`.
#[derive(Debug)]
pub(super) struct Frames {
    free: Vec<u32>,
    written: Vec<bool>,
}

impl Frames {
    /// This many frames, all free; the lowest are taken first.
    pub(super) fn new(count: u64) -> Self {
        Self { free: (0..count as u32).rev().collect(), written: vec![false; count as usize] }
    }

    /// Takes `count` frames, all or none.
    pub(super) fn take(&mut self, count: u64) -> Option<Vec<u32>> {
        let rest = (self.free.len() as u64).checked_sub(count)?;
        Some(self.free.split_off(rest as usize))
    }

    /// Frees frames; those that were written are added to `discarded`.
    pub(super) fn give(&mut self, frames: &[u32], discarded: &mut Vec<u32>) {
        for frame in frames {
            if std::mem::take(&mut self.written[*frame as usize]) {
                discarded.push(*frame);
            }
        }
        self.free.extend_from_slice(frames);
    }

    /// Marks a frame as written.
    pub(super) fn mark_written(&mut self, frame: u32) {
        self.written[frame as usize] = true;
    }

    /// Number of free frames.
    pub(super) fn free(&self) -> u64 {
        self.free.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_written_frames_are_discarded() {
        let mut frames = Frames::new(4);
        let held = frames.take(3).unwrap();
        assert_eq!(frames.take(2), None);
        frames.mark_written(held[1]);
        let mut discarded = Vec::new();
        frames.give(&held, &mut discarded);
        assert_eq!(discarded, [held[1]]);
        assert_eq!(frames.free(), 4);
    }
}
