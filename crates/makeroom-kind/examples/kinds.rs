//! Prints the kinds of a recording at its peak, or after some events: `cargo run --example kinds FILE [EVENTS …]`.
//! With the ID of a kind, its largest allocations; with `--without-stacks` or `--without-scopes`, as if the recording had none.
#![allow(clippy::print_stdout)]

use std::path::Path;
use std::time::Instant;

use makeroom_core::{Event, Events, StackId, Trace};
use makeroom_kind::{Allocation, Kind, Kinds, Totals};
use makeroom_trace::{Error, Input};

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(name) = arguments.first() else { return Ok(()) };
    let positions: Vec<usize> = arguments.iter().filter_map(|argument| argument.parse().ok()).collect();
    let Input::Trace(mut trace) = makeroom_trace::open(Path::new(name))? else { return Ok(()) };
    if arguments.iter().any(|argument| argument == "--without-stacks") {
        remove_stacks(&mut trace);
    }
    if arguments.iter().any(|argument| argument == "--without-scopes") {
        trace.annotations.clear();
    }
    for device in &trace.devices {
        let start = Instant::now();
        let kinds = Kinds::new(&trace, device);
        let (peak, live) = kinds.peak();
        let time = start.elapsed().as_secs_f64();
        println!("{name}: GPU {}: peak {live} after {peak} events, {time:.3} s", device.device);
        let at_peak = [peak];
        for &position in if positions.is_empty() { &at_peak[..] } else { &positions } {
            println!("after {position} events: {}", kinds.at(position).live());
            print(&kinds.at(position));
            for kind in arguments.iter().filter_map(|argument| Kind::from_id(argument)) {
                print_largest(&trace, kinds.live_at(position).filter(|allocation| allocation.kind == kind));
            }
        }
    }
    Ok(())
}

/// The largest allocations with their stacks.
fn print_largest<'kinds>(trace: &Trace, allocations: impl Iterator<Item = &'kinds Allocation>) {
    let mut allocations: Vec<&Allocation> = allocations.collect();
    allocations.sort_by_key(|allocation| std::cmp::Reverse(allocation.size));
    for allocation in allocations.into_iter().take(5) {
        let (born, end) = (allocation.born(), allocation.freed());
        println!("{} {} {born:?} to {end:?}", allocation.size, allocation.rule.id());
        for &frame in trace.stacks.frames_of(allocation.stack).iter().take(30) {
            let frame = trace.stacks.frame_at(frame);
            let name = |name| trace.stacks.name_text(name);
            println!(
                "    {} {}:{} {}",
                name(frame.function),
                name(frame.file),
                frame.line,
                name(frame.library)
            );
        }
    }
}

fn remove_stacks(trace: &mut Trace) {
    for device in &mut trace.devices {
        let mut events = Events::default();
        for event in device.events.iter() {
            events.push(Event { stack: StackId::NONE, ..event });
        }
        device.events = events;
        for segment in &mut device.segments {
            segment.stack = StackId::NONE;
            segment.blocks.iter_mut().for_each(|block| block.stack = StackId::NONE);
        }
    }
}

fn print(totals: &Totals) {
    for (kind, total) in totals.iter() {
        println!("  {:<16} {:>12} in {} blocks", kind.id(), total.bytes.get(), total.blocks);
        for (rule, bytes) in &total.rules {
            println!("      {:<28} {:>12} {:?}", rule.id(), bytes.get(), rule.certainty());
        }
    }
}
