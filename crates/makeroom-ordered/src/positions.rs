//! Iterates over the positions of entries in order, from both ends.

use std::ops::Range;
use std::slice;

/// Positions in order: consecutive ones, or those in the chunks of an [`Order`](crate::order::Order).
///
/// The remaining positions are `consecutive`, then `front`, then all of `chunks`, then `back`.
#[derive(Clone, Debug)]
pub(crate) struct Positions<'order> {
    consecutive: Range<usize>,
    front: slice::Iter<'order, u32>,
    chunks: slice::Iter<'order, Vec<u32>>,
    back: slice::Iter<'order, u32>,
}

impl<'order> Positions<'order> {
    pub(crate) fn consecutive(from: usize, to: usize) -> Self {
        Self { consecutive: from..to, ..Self::chunked(&[], &[], &[]) }
    }

    pub(crate) fn chunked(front: &'order [u32], chunks: &'order [Vec<u32>], back: &'order [u32]) -> Self {
        Self { consecutive: 0..0, front: front.iter(), chunks: chunks.iter(), back: back.iter() }
    }

    /// Number of remaining positions; this takes time linear in the number of chunks.
    pub(crate) fn left(&self) -> usize {
        let chunks: usize = self.chunks.as_slice().iter().map(Vec::len).sum();
        self.consecutive.len() + self.front.len() + chunks + self.back.len()
    }

    fn next_of_chunks(&mut self) -> Option<usize> {
        loop {
            if let Some(&position) = self.front.next() {
                return Some(position as usize);
            }
            match self.chunks.next() {
                Some(chunk) => self.front = chunk.iter(),
                None => return self.back.next().map(|&position| position as usize),
            }
        }
    }
}

impl Iterator for Positions<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.consecutive.next().or_else(|| self.next_of_chunks())
    }
}

impl DoubleEndedIterator for Positions<'_> {
    fn next_back(&mut self) -> Option<usize> {
        if let Some(position) = self.consecutive.next_back() {
            return Some(position);
        }
        loop {
            if let Some(&position) = self.back.next_back() {
                return Some(position as usize);
            }
            match self.chunks.next_back() {
                Some(chunk) => self.back = chunk.iter(),
                None => return self.front.next_back().map(|&position| position as usize),
            }
        }
    }
}
