//! The ways in which programs reach the driver, or do not.

use makeroom_trace::room::EventKind;

use crate::support::{compile, everywhere, everywhere_without_driver, library};

#[test]
fn a_program_without_cuda_leaves_nothing() {
    for program in everywhere_without_driver("no_cuda.c") {
        assert!(program.check().is_empty());
    }
}

#[test]
fn a_machine_without_a_device_leaves_nothing() {
    for program in everywhere("no_device.c") {
        let program =
            program.variable("FAKE_NO_DEVICE", "1").variable("MAKEROOM_SIMGPU", "fail=cuInit:1:100");
        assert!(program.check().is_empty());
    }
}

#[test]
fn makeroom_off_disables_everything() {
    for program in everywhere("plain.c").into_iter().chain(everywhere_without_driver("proc_address.c")) {
        assert!(program.variable("MAKEROOM", "off").check().is_empty());
    }
}

#[test]
fn a_driver_that_is_opened_late_and_twice() {
    for program in everywhere_without_driver("late_dlopen.c") {
        let recording = program.check_one();
        recording.assert_complete();
        let sizes: Vec<_> =
            recording.events_of(EventKind::DeviceAlloc).iter().map(|event| event.size.get()).collect();
        assert_eq!(sizes, [1 << 20, 2 << 20]);
    }
}

#[test]
fn functions_found_by_cu_get_proc_address() {
    for program in everywhere_without_driver("proc_address.c") {
        let recording = program.check_one();
        recording.assert_complete();
        let streams: Vec<_> = recording
            .events_of(EventKind::StreamAlloc)
            .iter()
            .map(|event| (event.size.get(), event.stream.0))
            .collect();
        assert_eq!(streams, [(4096, 0), (8192, 2)]);
        assert_eq!(recording.count(EventKind::DeviceAlloc), 1);
    }
}

#[test]
fn another_library_that_hooks_dlsym() {
    let other = compile("other_hook.c", "other_hook.so", &["-shared", "-fPIC"]);
    for is_first in [false, true] {
        for program in everywhere_without_driver("proc_address.c") {
            let program = if is_first {
                program.preload(other.clone()).preload(library())
            } else {
                program.preload(library()).preload(other.clone())
            };
            let recording = program.check_one();
            recording.assert_complete();
            assert_eq!(recording.count(EventKind::StreamAlloc), 2);
        }
    }
}

#[test]
fn a_plugin_that_binds_to_itself_is_mentioned() {
    let plugin = compile("plugin.c", "plugin.so", &["-shared", "-fPIC", "-lcuda"]);
    for program in everywhere("deepbind.c") {
        let recording = program.argument(&plugin.display().to_string()).check_one();
        assert!(recording.end.is_some());
        assert!(
            recording.texts().iter().any(|text| text.contains("RTLD_DEEPBIND")),
            "{:?}",
            recording.texts()
        );
    }
}

/// The loader's lock is held while the recorder starts, so nothing that it waits for may need it.
#[test]
fn a_library_that_uses_cuda_while_it_is_loaded() {
    let library = compile("in_constructor.c", "in_constructor.so", &["-shared", "-fPIC", "-lcuda"]);
    for program in everywhere_without_driver("constructor.c") {
        let recording = program.argument(&library.display().to_string()).check_one();
        recording.assert_complete();
        assert_eq!(recording.count(EventKind::DeviceAlloc), 1);
    }
}

#[test]
fn stacks_can_be_left_out() {
    for program in everywhere("plain.c") {
        let recording = program.variable("MAKEROOM_STACKS", "none").check_one();
        recording.assert_complete();
        assert!(recording.events.iter().all(|(_, event)| event.stack.0 == 0));
    }
}

#[test]
fn native_stacks_lead_to_the_program() {
    for program in everywhere("plain.c") {
        let recording = program.check_one();
        let first = recording.stack(&recording.events_of(EventKind::DeviceAlloc)[0]);
        assert_eq!(first[0], "main in plain", "{first:?}");
        let frees = recording.events_of(EventKind::DeviceFree);
        assert!(recording.stack(&frees[0]).is_empty());
    }
}
