//! `makeroom tune`: find the allocator setting that serves a recording best.

use makeroom_report::{tune_json, tune_text};
use makeroom_sim::{Settings, Workload, candidates, tune};

use crate::cli::Tune;
use crate::commands::recording;
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;

/// Runs `makeroom tune`.
pub(crate) fn run(arguments: &Tune) -> Result<(), Failure> {
    let (input, options) = (&arguments.recording.input, &arguments.recording.options);
    let trace = recording::read_trace(input)?;
    let device = recording::device(&trace, input, options.device)?;
    recording::require_pytorch(&trace, input, "tune")?;
    let room = recording::room(options.memory, options.card);
    let memory = recording::simulated(room);
    let workload = Workload::new(device, &trace.stacks);
    let settings = candidates(&workload, memory);
    let progress = Progress::new(settings.len() as u64 + 1);
    let recorded = Settings::recorded(&trace.settings);
    let tuning = tune(&workload, &recorded, memory, &settings, |done, _| {
        progress.step(if done == 0 { "as recorded" } else { &settings[done - 1] });
    });
    progress.finish();
    let notes = workload.notes(&trace);
    if options.json {
        output::json(&tune_json(&tuning, room.limit(), &notes))
    } else {
        output::result(&tune_text(&tuning, room.limit(), &notes, output::columns()))
    }
}
