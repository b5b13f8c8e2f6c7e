//! Writes a pool's memory and recent events as a PyTorch memory snapshot, for PyTorch's viewer, `_memory_viz.py` and
//! `makeroom why`.
//!
//! A segment of a snapshot is a run of mapped addresses, "expandable" in PyTorch's terms, because pages come and go.
//! Handles that the pool keeps unmapped have no place in the format and are left out, and so is the stream of each
//! free block. Everything else is exact, unless other threads allocate during the snapshot: then a block may be
//! missing its event, or an event its block.

mod frames;

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use makeroom_core::{Address, Bytes, StreamId};
use makeroom_pickle::{Memo, Pickle, Pickling};
use makeroom_place::pool::{BlockState, BlockView, SegmentView, Snapshot};

use crate::layers::{Happened, History, PastEvent};
use crate::pool::Pool;
use crate::site::Site;
use frames::frame;

/// One pool in a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotOf<'pool> {
    /// The pool.
    pub pool: &'pool Pool,
    /// Its events, if recorded.
    pub history: Option<&'pool History>,
    /// PyTorch's id for it; `(0, 0)` is the default pool.
    pub id: (u64, u64),
}

impl<'pool> SnapshotOf<'pool> {
    /// A pool without a history.
    pub fn pool(pool: &'pool Pool) -> Self {
        Self { pool, history: None, id: (0, 0) }
    }

    /// Takes the snapshot, then the events.
    fn take(self) -> Taken<'pool> {
        let snapshot = self.pool.snapshot();
        let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
        let pending = blocks.filter(|block| matches!(block.state, BlockState::Pending { .. }));
        let pending: HashSet<Address> = pending.map(|block| block.address).collect();
        let is_pending = |address: Address| pending.contains(&address);
        let events = self.history.map_or_else(Vec::new, |history| history.events(is_pending).0);
        Taken { of: self, snapshot, events }
    }
}

struct Taken<'pool> {
    of: SnapshotOf<'pool>,
    snapshot: Snapshot,
    events: Vec<PastEvent>,
}

impl Taken<'_> {
    fn segments(&self) -> impl Iterator<Item = &SegmentView> {
        self.snapshot.segments.iter()
    }
}

/// Writes a snapshot of pools, in device order.
pub fn write_torch_snapshot(to: impl Write, pools: &[SnapshotOf<'_>]) -> io::Result<()> {
    let mut pools: Vec<Taken<'_>> = pools.iter().map(|pool| pool.take()).collect();
    pools.sort_by_key(|taken| taken.of.pool.device());
    let mut writer = Writer { pickle: Pickle::new(to)?, frames: HashMap::new() };
    writer.snapshot(&pools)?;
    writer.pickle.finish()
}

struct Writer<W> {
    pickle: Pickle<W>,
    frames: HashMap<Option<Site>, Memo>,
}

impl<W: Write> Writer<W> {
    fn snapshot(&mut self, pools: &[Taken<'_>]) -> io::Result<()> {
        self.dict(|this| {
            this.pickle.key("segments")?;
            let of_pool = |pool| Taken::segments(pool).map(move |segment| (pool, segment));
            let segments: Vec<(&Taken<'_>, &SegmentView)> = pools.iter().flat_map(of_pool).collect();
            this.list(&segments, |this, (pool, segment)| this.segment(pool, segment))?;
            this.pickle.key("device_traces")?;
            let devices = pools.last().map_or(0, |taken| taken.of.pool.device() + 1);
            let devices: Vec<i32> = (0..devices).collect();
            this.list(&devices, |this, device| this.device_trace(*device, pools))?;
            this.pickle.key("allocator_settings")?;
            let limits: Vec<u64> = devices.iter().map(|&device| limit_of(device, pools)).collect();
            this.settings(&limits)?;
            this.pickle.key("external_annotations")?;
            this.pickle.empty_list()
        })
    }

    fn segment(&mut self, pool: &Taken<'_>, segment: &SegmentView) -> io::Result<()> {
        let sum = |measure: fn(&BlockView) -> u64| segment.blocks.iter().map(measure).sum::<u64>();
        let live =
            |block: &BlockView| if matches!(block.state, BlockState::Live { .. }) { block.size } else { 0 };
        let active = |block: &BlockView| if block.state == BlockState::Free { 0 } else { block.size };
        self.dict(|this| {
            this.pickle.key("device")?.number(pool.of.pool.device().unsigned_abs().into())?;
            this.pickle.key("address")?.number(segment.address.0)?;
            this.pickle.key("total_size")?.number(segment.size)?;
            this.pickle.key("allocated_size")?.number(sum(live))?;
            this.pickle.key("active_size")?.number(sum(active))?;
            this.pickle.key("requested_size")?.number(sum(requested))?;
            this.pickle.key("stream")?.number(common_stream(&segment.blocks).0)?;
            this.pickle.key("segment_type")?.text("large")?;
            this.pickle.key("segment_pool_id")?.pair(pool.of.id.0, pool.of.id.1)?;
            this.pickle.key("is_expandable")?.truth(true)?;
            this.pickle.key("frames")?;
            this.frames(None)?;
            this.pickle.key("blocks")?;
            this.list(&segment.blocks, |this, block| this.block(pool, block))
        })
    }

    fn block(&mut self, pool: &Taken<'_>, block: &BlockView) -> io::Result<()> {
        let state = match block.state {
            BlockState::Live { .. } => "active_allocated",
            BlockState::Pending { .. } => "active_pending_free",
            BlockState::Free => "inactive",
        };
        let site = pool.of.history.and_then(|history| history.site_at(block.address));
        self.dict(|this| {
            this.pickle.key("address")?.number(block.address.0)?;
            this.pickle.key("size")?.number(block.size)?;
            this.pickle.key("requested_size")?.number(requested(block))?;
            this.pickle.key("state")?.text(state)?;
            this.pickle.key("frames")?;
            this.frames(site)
        })
    }

    /// The events of a device's pools, in time order.
    fn device_trace(&mut self, device: i32, pools: &[Taken<'_>]) -> io::Result<()> {
        let of_device = pools.iter().filter(|taken| taken.of.pool.device() == device);
        let mut events: Vec<(&PastEvent, (u64, u64))> =
            of_device.flat_map(|taken| taken.events.iter().map(|event| (event, taken.of.id))).collect();
        events.sort_by_key(|(event, _)| event.time_us);
        self.list(&events, |this, (event, id)| this.event(event, *id))
    }

    fn event(&mut self, event: &PastEvent, pool: (u64, u64)) -> io::Result<()> {
        let (action, place) = match event.what {
            Happened::Allocated => ("alloc", "addr"),
            Happened::FreeRequested => ("free_requested", "addr"),
            Happened::FreeCompleted => ("free_completed", "addr"),
            Happened::Mapped => ("segment_map", "addr"),
            Happened::Unmapped => ("segment_unmap", "addr"),
            Happened::Refused => ("oom", "device_free"),
        };
        self.dict(|this| {
            this.pickle.key("action")?.text(action)?;
            this.pickle.key(place)?.number(event.address.0)?;
            this.pickle.key("size")?.number(event.bytes)?;
            this.pickle.key("stream")?.number(event.stream.0)?;
            this.pickle.key("time_us")?.number(event.time_us)?;
            this.pickle.key("compile_context")?.text("N/A")?;
            this.pickle.key("user_metadata")?.text("")?;
            this.pickle.key("pool_id")?.pair(pool.0, pool.1)?;
            this.pickle.key("frames")?;
            this.frames(event.site)
        })
    }

    /// A stack of one frame, written once per site.
    fn frames(&mut self, site: Option<Site>) -> io::Result<()> {
        if let Some(&memo) = self.frames.get(&site) {
            return self.pickle.again(memo);
        }
        let memo = self.pickle.shared_list(|pickle| {
            let Some(site) = site else { return Ok(()) };
            let frame = frame(site);
            pickle.dict(|pickle| {
                pickle.key("name")?.text(&frame.name)?;
                pickle.key("filename")?.text(&frame.file)?;
                pickle.key("line")?.number(frame.line.into())
            })
        })?;
        self.frames.insert(site, memo);
        Ok(())
    }

    /// The PyTorch settings that come closest to this pool, and the pools' own limits by device.
    fn settings(&mut self, limits: &[u64]) -> io::Result<()> {
        self.dict(|this| {
            this.pickle.key("PYTORCH_CUDA_ALLOC_CONF")?.text("expandable_segments:True")?;
            this.pickle.key("max_split_size")?.minus_one()?;
            this.pickle.key("garbage_collection_threshold")?.real(0.0)?;
            this.pickle.key("expandable_segments")?.truth(true)?;
            this.pickle.key("pinned_num_register_threads")?.number(1)?;
            this.pickle.key("release_lock_on_cudamalloc")?.truth(false)?;
            this.pickle.key("pinned_use_cuda_host_register")?.truth(false)?;
            this.pickle.key("graph_capture_record_stream_reuse")?.truth(false)?;
            this.pickle.key("roundup_power2_divisions")?;
            this.dict(|this| {
                (0..16).try_for_each(|power| this.pickle.key(&(1_u32 << power).to_string())?.number(0))
            })?;
            this.pickle.key("makeroom_pool_limits")?;
            this.list(limits, |this, &limit| this.pickle.number(limit))
        })
    }
}

impl<W: Write> Pickling for Writer<W> {
    type To = W;

    fn pickle(&mut self) -> &mut Pickle<W> {
        &mut self.pickle
    }
}

fn requested(block: &BlockView) -> u64 {
    match block.state {
        BlockState::Live { requested, .. } | BlockState::Pending { requested, .. } => requested,
        BlockState::Free => 0,
    }
}

/// The limit of a device's pool; 0 if it has none, or if several pools share one, each with the rest of it.
fn limit_of(device: i32, pools: &[Taken<'_>]) -> u64 {
    let mut limits = pools.iter().map(|taken| taken.of.pool).filter(|pool| pool.device() == device);
    match (limits.next(), limits.next()) {
        (Some(only), None) => only.limit().map_or(0, Bytes::get),
        _ => 0,
    }
}

/// The common stream of all blocks that have one; 0 if there are several.
fn common_stream(blocks: &[BlockView]) -> StreamId {
    let mut streams = blocks.iter().filter_map(|block| block.stream);
    let first = streams.next().unwrap_or(StreamId(0));
    if streams.all(|stream| stream == first) { first } else { StreamId(0) }
}
