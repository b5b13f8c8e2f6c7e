//! Gives memory back to the device, and takes leave of streams.

use makeroom_core::StreamId;

use super::backing::{Backing, PAGE, Patience};
use super::handles::HandleId;
use super::lists::Zone;
use super::lists::owner_of;
use super::policy::Policy;
use super::streams::{EVERYBODY, StreamIndex};
use super::tiles::TileId;

/// So many streams may be gone before their places are looked through.
pub(super) const RETIRED: usize = 32;

impl Policy {
    /// Gives unused memory back to the device until at most `keep` bytes are reserved; how many bytes went back.
    /// Handles go back whole, so what shares one with a block stays.
    pub fn trim(&mut self, backing: &mut impl Backing, keep: u64, patience: Patience) -> u64 {
        let before = self.handles.reserved();
        // What rests becomes free memory as well.
        self.collect(backing, patience);
        // A handle under the free memory of several streams can move only once it is everybody's.
        for stream in self.all_filled().into_iter().filter(|&stream| stream != EVERYBODY) {
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
            if self.detach(backing, handle, patience).is_ok() {
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

    /// A stream is about to be destroyed: what was freed on it is for everybody as soon as the GPU is done with it, for
    /// which it may be waited. Whether the pool knew the stream.
    pub fn retire_stream(
        &mut self,
        backing: &mut impl Backing,
        stream: StreamId,
        patience: Patience,
    ) -> bool {
        self.end_rest();
        let Some(stream) = self.streams.find(stream).filter(|&stream| stream != EVERYBODY) else {
            return false;
        };
        self.streams.retire(backing, stream);
        self.bequeath(backing, stream, patience);
        if self.streams.retired() >= self.retired_at_most {
            self.forget_retired(backing);
        }
        true
    }

    /// Makes a stream's free memory everybody's, as far as the GPU is done with it.
    fn bequeath(&mut self, backing: &mut impl Backing, stream: StreamIndex, patience: Patience) {
        for zone in Zone::ALL {
            self.adopt_from(backing, zone, stream, EVERYBODY, patience);
        }
    }

    /// Gives the places of streams that are gone and that nothing names any more to others. It costs a walk over all
    /// tiles, so it is done again only when as many are gone as were left.
    fn forget_retired(&mut self, backing: &mut impl Backing) {
        let retired = self.streams.retired_places();
        for &stream in &retired {
            self.bequeath(backing, stream, Patience::DoNotWait);
        }
        let mut is_named = vec![false; self.streams.count() as usize];
        for stream in self.tiles.lists().filter_map(owner_of).chain(self.pending.streams()) {
            is_named[stream as usize] = true;
        }
        for stream in retired {
            if !is_named[stream as usize] {
                self.streams.vacate(stream);
            }
        }
        self.retired_at_most = RETIRED.max(2 * self.streams.retired());
    }

    /// All streams that have free memory.
    pub(super) fn all_filled(&self) -> Vec<StreamIndex> {
        let mut streams: Vec<StreamIndex> =
            self.filled.iter().flat_map(|filled| filled.from(EVERYBODY)).collect();
        streams.sort_unstable();
        streams.dedup();
        streams
    }

    /// Handles that lie wholly in free memory.
    fn movable(&mut self) -> Vec<HandleId> {
        let mut movable = Vec::new();
        for stream in self.all_filled() {
            for zone in Zone::ALL {
                let tiles: Vec<TileId> =
                    self.bins[zone.free(stream) as usize].at_least(&self.tiles, PAGE).collect();
                for id in tiles {
                    let tile = &self.tiles[id];
                    let first = movable.len();
                    movable.extend(self.handles.within(tile.address, tile.end()));
                    for &handle in &movable[first..] {
                        self.handles.note(handle, id);
                    }
                }
            }
        }
        movable
    }
}
