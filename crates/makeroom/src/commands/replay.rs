//! `makeroom replay`: replays a recording under other allocators.

use makeroom_report::{replay_json, replay_text};
use makeroom_sim::Comparing;

use crate::cli::Replay;
use crate::commands::recording;
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;

/// Runs `makeroom replay`.
pub(crate) fn run(arguments: &Replay) -> Result<(), Failure> {
    let (input, options) = (&arguments.recording.input, &arguments.recording.options);
    let trace = recording::read_trace(input)?;
    let device = recording::device(&trace, input, options.device)?.device;
    if arguments.check {
        recording::require_pytorch(&trace, input, "check")?;
    }
    let room = recording::room(options.memory, options.card);
    let comparing = Comparing {
        allocators: arguments.allocators.clone(),
        memory: recording::simulated(room),
        checks: arguments.check,
        finds_smallest: !arguments.no_smallest,
    };
    let progress = Progress::new(comparing.steps(&trace) as u64);
    let comparison = comparing
        .run_last(trace, device, |what| progress.step(what))
        .ok_or_else(|| Failure::EmptyRecording { name: recording::name(input) })?;
    progress.finish();
    if options.json {
        output::json(&replay_json(&comparison, room.limit()))?;
    } else {
        output::result(&replay_text(&comparison, room.limit(), output::columns()))?;
    }
    match comparison.check {
        Some(check) if check.lacks_segment_events => Err(Failure::Unchecked),
        Some(check) if check.mismatched > 0 => Err(Failure::Mismatched { count: check.mismatched }),
        _ => Ok(()),
    }
}
