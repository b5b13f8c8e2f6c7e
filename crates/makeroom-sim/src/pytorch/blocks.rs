//! Blocks of memory, their neighbors, and the pools of free ones.
//!
//! A block is in one segment; `previous` and `next` are its neighbors there, in address order. Free blocks are in
//! exactly one set of their pool: mapped ones in `free`, ordered by stream, size and address; the unmapped holes of
//! expandable segments in `unmapped`, ordered by stream and address. Both orders determine which block a request gets,
//! so they are PyTorch's own.

use std::collections::BTreeMap;

use makeroom_place::SizeMap;

/// A block's index in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockId(u32);

/// The state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// In use by the program.
    Allocated,
    /// Freed, pending on a stream.
    Pending,
    /// Free.
    Unused,
}

/// A part of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) stream: u64,
    pub(crate) pool: u32,
    pub(crate) previous: Option<BlockId>,
    pub(crate) next: Option<BlockId>,
    pub(crate) usage: Use,
    pub(crate) is_mapped: bool,
    pub(crate) is_expandable: bool,
    /// The start address of its segment.
    pub(crate) segment: u64,
    /// The pool's search count when the block became free.
    pub(crate) age_base: u64,
}

impl Block {
    /// Whether it is part of a segment with other parts.
    pub(crate) fn is_split(&self) -> bool {
        self.previous.is_some() || self.next.is_some()
    }

    /// Whether it is all of a segment that can be freed.
    fn is_whole(&self) -> bool {
        !self.is_split() && !self.is_expandable
    }
}

/// The free blocks of one kind: small or large, of the default pool or of a private one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool {
    pub(crate) is_small: bool,
    pub(crate) is_private: bool,
    /// Mapped blocks of each stream by size and address.
    free: BTreeMap<u64, SizeMap<BlockId>>,
    /// Those that are whole segments and not expandable, by stream, size and address. Made when segments are first freed:
    /// most runs never do that.
    whole: Option<BTreeMap<(u64, u64, u64), BlockId>>,
    /// Unmapped blocks by stream and address.
    unmapped: BTreeMap<(u64, u64), BlockId>,
    /// Number of searches, for garbage collection.
    pub(crate) searches: u64,
}

impl Pool {
    pub(crate) fn new(is_small: bool, is_private: bool) -> Self {
        Self { is_small, is_private, ..Self::default() }
    }
}

/// All blocks and pools of one allocator.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    table: Vec<Block>,
    vacant: Vec<BlockId>,
    pub(crate) pools: Vec<Pool>,
    /// Whether there ever was a block in an expandable segment.
    pub(crate) has_expandable: bool,
}

impl Blocks {
    /// The number of blocks, including places for new ones.
    pub(crate) fn count(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn get(&self, id: BlockId) -> &Block {
        &self.table[id.0 as usize]
    }

    pub(crate) fn get_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.table[id.0 as usize]
    }

    /// Adds a block, which is not in any set yet.
    pub(crate) fn add(&mut self, block: Block) -> BlockId {
        self.has_expandable |= block.is_expandable;
        if let Some(id) = self.vacant.pop() {
            self.table[id.0 as usize] = block;
            return id;
        }
        self.table.push(block);
        BlockId(self.table.len() as u32 - 1)
    }

    /// Removes a block that is in no set and has no neighbors left.
    pub(crate) fn remove(&mut self, id: BlockId) {
        self.vacant.push(id);
    }

    /// Adds a free block to its set.
    pub(crate) fn insert_unused(&mut self, id: BlockId) {
        let block = &mut self.table[id.0 as usize];
        let pool = &mut self.pools[block.pool as usize];
        block.age_base = pool.searches;
        if block.is_mapped {
            pool.free.entry(block.stream).or_default().insert(block.size, block.address, id);
            if let Some(whole) = &mut pool.whole
                && block.is_whole()
            {
                whole.insert((block.stream, block.size, block.address), id);
            }
        } else {
            pool.unmapped.insert((block.stream, block.address), id);
        }
    }

    /// Makes `next` the neighbor after a block.
    pub(crate) fn link(&mut self, id: BlockId, next: BlockId) {
        // A free block is in other sets once it has a neighbor.
        let is_unused = self.get(id).usage == Use::Unused;
        if is_unused {
            self.take_unused(id);
        }
        self.get_mut(id).next = Some(next);
        if is_unused {
            self.insert_unused(id);
        }
    }

    /// Removes a free block from its set.
    pub(crate) fn take_unused(&mut self, id: BlockId) {
        let block = &self.table[id.0 as usize];
        let pool = &mut self.pools[block.pool as usize];
        if block.is_mapped {
            if let Some(blocks) = pool.free.get_mut(&block.stream) {
                blocks.remove(block.size, block.address);
            }
            if let Some(whole) = &mut pool.whole
                && block.is_whole()
            {
                whole.remove(&(block.stream, block.size, block.address));
            }
        } else {
            pool.unmapped.remove(&(block.stream, block.address));
        }
    }

    /// The smallest free mapped block of a stream with at least `size` bytes.
    pub(crate) fn smallest_unused(&self, pool: u32, stream: u64, size: u64) -> Option<BlockId> {
        let (_, _, id) = self.pools[pool as usize].free.get(&stream)?.first_from(size, 0)?;
        Some(id)
    }

    /// The next larger one.
    pub(crate) fn next_unused(&self, id: BlockId) -> Option<BlockId> {
        let block = self.get(id);
        let blocks = self.pools[block.pool as usize].free.get(&block.stream)?;
        let (_, _, id) = blocks.first_from(block.size, block.address.checked_add(1)?)?;
        Some(id)
    }

    /// Free mapped blocks of a stream, largest first.
    pub(crate) fn largest_first(&self, pool: u32, stream: u64) -> impl Iterator<Item = BlockId> + '_ {
        let blocks = self.pools[pool as usize].free.get(&stream);
        blocks.into_iter().flat_map(|blocks| blocks.iter_descending().map(|(_, _, id)| id))
    }

    /// All free segments of a pool that can be freed, by stream, size and address.
    pub(crate) fn whole(&mut self, pool: u32) -> Vec<BlockId> {
        let whole = self.pools[pool as usize].whole.take().unwrap_or_else(|| {
            let unused = self.unused(pool).map(|id| (self.get(id), id));
            let whole = unused.filter(|(block, _)| block.is_whole());
            whole.map(|(block, id)| ((block.stream, block.size, block.address), id)).collect()
        });
        let blocks = whole.values().copied().collect();
        self.pools[pool as usize].whole = Some(whole);
        blocks
    }

    /// All free mapped blocks of a pool, by stream, size and address.
    fn unused(&self, pool: u32) -> impl Iterator<Item = BlockId> + '_ {
        let streams = self.pools[pool as usize].free.values();
        streams.flat_map(|blocks| blocks.iter_from(0).map(|(_, _, id)| id))
    }

    /// All free blocks of a pool in expandable segments, by stream, size and address.
    pub(crate) fn expandable(&self, pool: u32) -> impl Iterator<Item = BlockId> + '_ {
        self.unused(pool).filter(|&id| self.get(id).is_expandable)
    }

    /// Forgets the streams of a pool that have no free blocks.
    pub(crate) fn forget_streams(&mut self, pool: u32) {
        self.pools[pool as usize].free.retain(|_, blocks| !blocks.is_empty());
    }

    /// The holes of a stream, by address.
    pub(crate) fn holes(&self, pool: u32, stream: u64) -> impl Iterator<Item = BlockId> + '_ {
        self.pools[pool as usize].unmapped.range((stream, 0)..=(stream, u64::MAX)).map(|(_, &id)| id)
    }

    /// Shrinks the block to its first `size` bytes and returns the rest as a new neighbor after it, which is not in any
    /// set yet.
    pub(crate) fn split_off(&mut self, id: BlockId, size: u64) -> BlockId {
        let whole = *self.get(id);
        let rest = self.add(Block {
            address: whole.address + size,
            size: whole.size - size,
            previous: Some(id),
            next: whole.next,
            usage: Use::Unused,
            ..whole
        });
        if let Some(next) = whole.next {
            self.get_mut(next).previous = Some(rest);
        }
        let block = self.get_mut(id);
        block.size = size;
        block.next = Some(rest);
        rest
    }

    /// Merges a neighbor into `id` if it is free and both are mapped or both unmapped. `id` is in no set; the neighbor
    /// is removed from its own.
    pub(crate) fn merge(&mut self, id: BlockId, neighbour: Option<BlockId>) {
        let Some(neighbour) = neighbour else { return };
        let other = *self.get(neighbour);
        if other.usage != Use::Unused || other.is_mapped != self.get(id).is_mapped {
            return;
        }
        self.take_unused(neighbour);
        let is_before = self.get(id).previous == Some(neighbour);
        let block = self.get_mut(id);
        block.size += other.size;
        if is_before {
            block.address = other.address;
            block.previous = other.previous;
        } else {
            block.next = other.next;
        }
        match (is_before, other.previous, other.next) {
            (true, Some(previous), _) => self.get_mut(previous).next = Some(id),
            (false, _, Some(next)) => self.get_mut(next).previous = Some(id),
            _ => {}
        }
        self.remove(neighbour);
    }

    /// Merges both neighbors into `id`, the previous one first.
    pub(crate) fn merge_neighbours(&mut self, id: BlockId) {
        let before = self.get(id).previous;
        self.merge(id, before);
        let after = self.get(id).next;
        self.merge(id, after);
    }
}
