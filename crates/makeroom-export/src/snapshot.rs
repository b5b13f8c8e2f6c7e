//! Writes any recording as a PyTorch memory snapshot, for PyTorch's own viewer.
//!
//! Events, segments, stacks, settings and annotations are written unchanged. Process data other than device memory
//! has no place in the format and is left out.

use std::collections::HashMap;
use std::io::{self, Write};

use makeroom_core::{
    Action, AnnotationStage, Block, BlockState, DeviceTrace, FrameId, PoolId, Segment, StackId, Trace,
};
use makeroom_pickle::{Memo, Pickle, Pickling};

use crate::history::name;

/// No machine has more devices.
const MOST_DEVICES: usize = 1024;

pub(crate) fn write(trace: &Trace, to: impl Write) -> io::Result<()> {
    let pickle = Pickle::new(to)?;
    let mut writer = Writer { trace, pickle, stacks: HashMap::new(), frames: HashMap::new() };
    writer.snapshot()?;
    writer.pickle.finish()
}

struct Writer<'trace, W> {
    trace: &'trace Trace,
    pickle: Pickle<W>,
    stacks: HashMap<StackId, Memo>,
    frames: HashMap<FrameId, Memo>,
}

impl<W: Write> Writer<'_, W> {
    fn snapshot(&mut self) -> io::Result<()> {
        let trace = self.trace;
        self.dict(|this| {
            // The first entry, so that `recognize` can tell an export from a snapshot that PyTorch or a pool wrote.
            this.pickle.key("exporter")?.text(concat!("makeroom ", env!("CARGO_PKG_VERSION")))?;
            this.pickle.key("segments")?;
            let segments = trace
                .devices
                .iter()
                .flat_map(|device| device.segments.iter().map(move |segment| (device, segment)));
            this.list(segments, |this, (device, segment)| this.segment(device, segment))?;
            this.pickle.key("device_traces")?;
            this.list(places(trace), |this, device| {
                let events = device
                    .into_iter()
                    .flat_map(|device| (0..device.events.len()).map(move |index| (device, index)));
                this.list(events, |this, (device, index)| this.event(device, index))
            })?;
            this.pickle.key("allocator_settings")?;
            this.settings()?;
            this.pickle.key("external_annotations")?;
            this.list(&trace.annotations, |this, annotation| {
                let stage = match annotation.stage {
                    AnnotationStage::Start => "START",
                    AnnotationStage::End => "END",
                };
                this.dict(|this| {
                    this.pickle.key("stage")?.text(stage)?;
                    this.pickle.key("name")?.text(&annotation.name)?;
                    this.pickle.key("time_us")?.number(annotation.time_us)?;
                    this.pickle.key("device")?.number(annotation.device.map_or(0, |device| device.0).into())
                })
            })
        })
    }

    fn segment(&mut self, device: &DeviceTrace, segment: &Segment) -> io::Result<()> {
        let sum =
            |measure: fn(&Block) -> u64| segment.blocks.iter().map(measure).fold(0_u64, u64::saturating_add);
        let live = |block: &Block| if block.state == BlockState::Live { block.size.get() } else { 0 };
        let active = |block: &Block| if block.state == BlockState::Free { 0 } else { block.size.get() };
        let (live, active, requested) = (sum(live), sum(active), sum(requested));
        self.dict(|this| {
            this.pickle.key("device")?.number(device.device.0.into())?;
            this.pickle.key("address")?.number(segment.address.0)?;
            this.pickle.key("total_size")?.number(segment.size.get())?;
            this.pickle.key("allocated_size")?.number(live)?;
            this.pickle.key("active_size")?.number(active)?;
            this.pickle.key("requested_size")?.number(requested)?;
            this.pickle.key("stream")?.number(segment.stream.0)?;
            this.pickle.key("segment_type")?.text(if segment.is_small { "small" } else { "large" })?;
            this.pickle.key("segment_pool_id")?.pair(segment.pool.0, segment.pool.1)?;
            this.pickle.key("is_expandable")?.truth(segment.is_expandable)?;
            this.pickle.key("frames")?;
            this.stack(segment.stack)?;
            this.pickle.key("blocks")?;
            this.list(&segment.blocks, Self::block)
        })
    }

    fn block(&mut self, block: &Block) -> io::Result<()> {
        let state = match block.state {
            BlockState::Live => "active_allocated",
            BlockState::PendingFree => "active_pending_free",
            BlockState::Free => "inactive",
        };
        self.dict(|this| {
            this.pickle.key("address")?.number(block.address.0)?;
            this.pickle.key("size")?.number(block.size.get())?;
            this.pickle.key("requested_size")?.number(requested(block))?;
            this.pickle.key("state")?.text(state)?;
            this.pickle.key("frames")?;
            this.stack(block.stack)
        })
    }

    fn event(&mut self, device: &DeviceTrace, index: usize) -> io::Result<()> {
        let Some(event) = device.events.get(index) else { return self.dict(|_| Ok(())) };
        // A failed allocation has no address; snapshots store the driver's free memory instead.
        let place = if event.action == Action::OutOfMemory { "device_free" } else { "addr" };
        let pool = device.events.pool(index);
        self.dict(|this| {
            this.pickle.key("action")?.text(name(event.action))?;
            this.pickle.key(place)?.number(event.address.0)?;
            this.pickle.key("size")?.number(event.size.get())?;
            this.pickle.key("stream")?.number(event.stream.0)?;
            this.pickle.key("time_us")?.number(event.time_us)?;
            this.pickle.key("compile_context")?.text("N/A")?;
            this.pickle.key("user_metadata")?.text("")?;
            if let Some(PoolId(first, second)) = pool {
                this.pickle.key("pool_id")?.pair(first, second)?;
            }
            this.pickle.key("frames")?;
            this.stack(event.stack)
        })
    }

    /// A list of frames. Each stack and each frame is written once.
    fn stack(&mut self, stack: StackId) -> io::Result<()> {
        if let Some(&memo) = self.stacks.get(&stack) {
            return self.pickle.again(memo);
        }
        let (trace, frames) = (self.trace, &mut self.frames);
        let memo = self.pickle.shared_list(|pickle| {
            for &id in trace.stacks.frames_of(stack) {
                if let Some(&memo) = frames.get(&id) {
                    pickle.again(memo)?;
                    continue;
                }
                let frame = trace.stacks.frame_at(id);
                let text = |name| trace.stacks.name_text(name);
                // PyTorch's frames have only a file, which for native code is the library. The library also has its
                // own key, which PyTorch's tools ignore, because it determines whose code it is.
                let library = text(frame.library);
                let file = if library.is_empty() || frame.line > 0 { text(frame.file) } else { library };
                let memo = pickle.shared_dict(|pickle| {
                    pickle.key("name")?.text(text(frame.function))?;
                    pickle.key("filename")?.text(file)?;
                    pickle.key("line")?.number(frame.line.into())?;
                    if library.is_empty() { Ok(()) } else { pickle.key("library")?.text(library) }
                })?;
                frames.insert(id, memo);
            }
            Ok(())
        })?;
        self.stacks.insert(stack, memo);
        Ok(())
    }

    fn settings(&mut self) -> io::Result<()> {
        let settings = &self.trace.settings;
        self.dict(|this| {
            this.pickle.key("PYTORCH_CUDA_ALLOC_CONF")?.text(settings.text.as_deref().unwrap_or(""))?;
            this.pickle.key("max_split_size")?;
            match settings.max_split_size.map(makeroom_core::Bytes::get) {
                None | Some(u64::MAX) => this.pickle.minus_one()?,
                Some(bytes) => this.pickle.number(bytes)?,
            }
            let threshold = settings.garbage_collection_threshold.unwrap_or(0.0);
            this.pickle.key("garbage_collection_threshold")?.real(threshold)?;
            this.pickle.key("expandable_segments")?.truth(settings.expandable_segments.unwrap_or(false))?;
            let divisions = settings.roundup_power2_divisions.unwrap_or([0; 16]);
            this.pickle.key("roundup_power2_divisions")?;
            this.dict(|this| {
                divisions.iter().enumerate().try_for_each(|(power, &count)| {
                    this.pickle.key(&(1_u32 << power).to_string())?.number(count.into())
                })
            })
        })
    }
}

impl<W: Write> Pickling for Writer<'_, W> {
    type To = W;

    fn pickle(&mut self) -> &mut Pickle<W> {
        &mut self.pickle
    }
}

/// The device of each place of `device_traces`: its number is its place. Numbers that no machine has would make the file
/// as long as they are large; such devices follow the others.
fn places(trace: &Trace) -> Vec<Option<&DeviceTrace>> {
    let mut places = Vec::new();
    let mut others = Vec::new();
    for device in &trace.devices {
        let place = device.device.0 as usize;
        if place >= MOST_DEVICES {
            others.push(Some(device));
            continue;
        }
        if places.len() <= place {
            places.resize(place + 1, None);
        }
        places[place] = Some(device);
    }
    places.extend(others);
    places
}

fn requested(block: &Block) -> u64 {
    if block.state == BlockState::Free { 0 } else { block.requested.unwrap_or(block.size).get() }
}
