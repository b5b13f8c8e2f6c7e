//! Returns memory to the device, and retires streams.

use makeroom_core::StreamId;

use super::backing::{Backing, PAGE, Timeout};
use super::handles::HandleId;
use super::lists::Zone;
use super::lists::owner_of;
use super::policy::Policy;
use super::streams::{EVERYBODY, StreamIndex};
use super::tiles::TileId;

/// Number of retired streams that triggers the first search for reusable slots.
pub(super) const RETIRED: usize = 32;

impl Policy {
    /// Returns unused memory to the device until at most `keep` bytes are reserved; returns the number of bytes
    /// released. Only whole handles are released, so free memory that shares a handle with a block stays.
    pub fn trim(&mut self, backing: &mut impl Backing, keep: u64, timeout: Timeout) -> u64 {
        let before = self.handles.reserved();
        // This also turns the resting block into free memory.
        self.collect(backing, timeout);
        // A handle under the free memory of several streams can move only after that memory is free for every stream.
        for stream in self.all_filled().into_iter().filter(|&stream| stream != EVERYBODY) {
            for zone in Zone::ALL {
                self.steal_from(backing, zone, stream, EVERYBODY, timeout);
            }
        }
        let size = |policy: &Self, handle: HandleId| policy.handles.get(handle).piece.size;
        let mut spare: u64 = self.handles.spare.iter().map(|&handle| size(self, handle)).sum();
        for handle in self.movable() {
            if self.handles.reserved() - spare <= keep {
                break;
            }
            if self.detach(backing, handle, timeout).is_ok() {
                spare += size(self, handle);
            }
        }
        // Handles that were already spare, and those detached above.
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

    /// Retires a stream that is about to be destroyed: memory freed on it becomes free for every stream once the GPU
    /// has finished using it, which may require a wait. Returns whether the pool knew the stream.
    pub fn retire_stream(&mut self, backing: &mut impl Backing, stream: StreamId, timeout: Timeout) -> bool {
        self.end_rest();
        let Some(stream) = self.streams.find(stream).filter(|&stream| stream != EVERYBODY) else {
            return false;
        };
        self.streams.retire(backing, stream);
        self.bequeath(backing, stream, timeout);
        if self.streams.retired() >= self.retired_at_most {
            self.forget_retired(backing);
        }
        true
    }

    /// Makes a stream's free memory available to every stream, as far as the GPU has finished using it.
    fn bequeath(&mut self, backing: &mut impl Backing, stream: StreamIndex, timeout: Timeout) {
        for zone in Zone::ALL {
            self.steal_from(backing, zone, stream, EVERYBODY, timeout);
        }
    }

    /// Makes the slots of retired streams to which nothing refers available again. It walks all tiles, so it runs again
    /// only when the number of retired streams has doubled.
    fn forget_retired(&mut self, backing: &mut impl Backing) {
        let retired = self.streams.retired_places();
        for &stream in &retired {
            self.bequeath(backing, stream, Timeout::DoNotWait);
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

    /// Handles that are entirely inside free memory.
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
