//! Gives memory back to the device, and takes leave of streams.

use makeroom_core::StreamId;

use super::backing::{Backing, PAGE};
use super::handles::HandleId;
use super::lists::Zone;
use super::policy::{Patience, Policy};
use super::streams::EVERYBODY;
use super::tiles::TileId;

impl Policy {
    /// Gives unused memory back to the device until at most `keep` bytes are reserved; how many bytes went back.
    /// Handles go back whole, so what shares one with a block stays.
    pub fn trim(&mut self, backing: &mut impl Backing, keep: u64, patience: Patience) -> u64 {
        let before = self.handles.reserved();
        self.collect(backing, patience);
        // A handle under the free memory of several streams can move only once it is everybody's.
        for stream in EVERYBODY + 1..self.streams.count() {
            for zone in Zone::ALL {
                self.adopt_from(backing, zone, stream, EVERYBODY, patience);
            }
        }
        let size = |policy: &Self, handle: HandleId| policy.handles.get(handle).piece.size;
        let mut spare: u64 = self.handles.spare.iter().map(|&handle| size(self, handle)).sum();
        for handle in self.movable() {
            if self.handles.reserved() - spare <= keep {
                break;
            }
            if patience == Patience::DoNotWait && !self.is_idle(backing, handle) {
                continue;
            }
            if self.detach(backing, handle).is_ok() {
                spare += size(self, handle);
            }
        }
        // What was spare already, and what has just become so.
        for handle in std::mem::take(&mut self.handles.spare) {
            let piece = self.handles.get(handle).piece;
            if self.handles.reserved() > keep && backing.release(piece).is_ok() {
                self.handles.remove(handle);
                self.done.released += 1;
            } else {
                self.handles.spare.push(handle);
            }
        }
        before - self.handles.reserved()
    }

    /// A stream is about to be destroyed: the GPU is waited for, and what was freed on the stream is for everybody.
    pub fn retire_stream(&mut self, backing: &mut impl Backing, stream: StreamId) {
        let Some(stream) = self.streams.find(stream) else { return };
        self.streams.retire(backing, stream);
        for zone in Zone::ALL {
            self.adopt_from(backing, zone, stream, EVERYBODY, Patience::Wait);
        }
    }

    /// Handles that lie wholly in free memory.
    fn movable(&self) -> Vec<HandleId> {
        let mut movable = Vec::new();
        for stream in EVERYBODY..self.streams.count() {
            for zone in Zone::ALL {
                let tiles: Vec<TileId> =
                    self.bins[zone.free(stream) as usize].at_least(&self.tiles, PAGE).collect();
                for id in tiles {
                    let tile = &self.tiles[id];
                    movable.extend(self.handles.within(tile.address, tile.end()));
                }
            }
        }
        movable
    }

    /// Whether the GPU is done with the free memory in which a handle lies.
    fn is_idle(&mut self, backing: &mut impl Backing, handle: HandleId) -> bool {
        let tile = self.tile_at(self.handles.get(handle).address);
        let (stream, after) = self.freed_after(tile);
        self.streams.is_done(backing, stream, after)
    }
}
