//! The view on a terminal of 80 columns and 24 rows, without color.

use std::time::SystemTime;

use makeroom_core::Bytes;
use makeroom_explain::Site;
use makeroom_holders::{
    Account, Device, DeviceMemory, Driver, Finding, Holder, Label, OpenFiles, Process, Stat, SurveyError,
    Unlisted, View,
};

use super::{Key, Request, Screen};

fn holder(pid: u32, user: &str, bytes: Bytes, recording: Option<&str>) -> Holder {
    let recording = recording.map(|path| (path.into(), path.into()));
    let process = Process {
        stat: Stat { pid, ..Stat::default() },
        command: vec!["python".into(), "train.py".into(), "--a-long-option-that-does-not-fit=80".into()],
        user_name: user.into(),
        files: OpenFiles { recording, ..OpenFiles::default() },
        ..Process::default()
    };
    Holder { pid, bytes: Some(bytes), process: Some(process), ..Holder::default() }
}

fn account(large: Bytes) -> Account {
    let total = Bytes::gib(80);
    let mut odd = holder(9, "bob", Bytes::gib(2), Some("/proc/9/fd/512"));
    odd.findings.push(Finding::Stopped);
    let device = Device {
        uuid: "GPU-1".into(),
        name: "NVIDIA H100 80GB HBM3".into(),
        memory: Some(DeviceMemory {
            total,
            reserved: Bytes::ZERO,
            used: large + Bytes::gib(5),
            free: total - large - Bytes::gib(5),
        }),
        holders: vec![holder(7, "alice", large, None), odd],
        unlisted: Unlisted { bytes: 3 << 30, causes: Vec::new() },
        ..Device::default()
    };
    Account {
        taken: SystemTime::UNIX_EPOCH,
        host: "node".into(),
        driver: Ok(Driver { version: "580.1".into(), cuda: Some(13000) }),
        devices: vec![device],
        users: Vec::new(),
        view: View::default(),
    }
}

fn lines(screen: &Screen) -> Vec<String> {
    screen.lines(80, 24).iter().map(|line| line.text().trim_end().to_owned()).collect()
}

fn line_of(lines: &[String], words: &str) -> usize {
    let found = lines.iter().position(|line| line.contains(words));
    found.unwrap_or_else(|| panic!("{words} is not in\n{}", lines.join("\n")))
}

fn screen() -> Screen {
    let mut screen = Screen::new(false);
    screen.update(account(Bytes::gib(1)));
    screen.update(account(Bytes::gib(40)));
    screen
}

#[test]
fn devices_and_holders_fit_eighty_columns() {
    let lines = lines(&screen());
    assert_eq!(lines[0], "makeroom top  node  driver 580.1, CUDA 13.0");
    assert!(lines[1].starts_with("GPU 0   █████████ "), "{}", lines[1]);
    assert!(lines[1].contains("45.00 GiB of  80.00 GiB  56 %  no owner: 3.00 GiB"), "{}", lines[1]);
    let row = &lines[line_of(&lines, "alice")];
    assert!(row.contains("40.00 GiB ▁█"), "{row}");
    assert!(row.contains("python train.py"), "{row}");
    let row = &lines[line_of(&lines, "bob")];
    assert!(row.contains("●python train.py") && row.ends_with("[stopped]"), "{row}");
    assert!(lines[23].starts_with("q quit  s sort: memory"));
}

#[test]
fn the_command_stays_visible_on_narrow_terminals() {
    let mut account = account(Bytes::gib(40));
    let odd = &mut account.devices[0].holders[1];
    odd.findings.push(Finding::OtherNamespace { inner_pid: 7 });
    odd.process.as_mut().unwrap().age = Some(std::time::Duration::from_secs(11_220));
    let mut screen = Screen::new(false);
    screen.update(account);
    for columns in [40, 60, 80, 120] {
        let text = screen.plain(columns, 24);
        assert!(text.lines().all(|line| line.chars().count() <= usize::from(columns)), "{text}");
        let row = text.lines().find(|line| line.contains("   9 ")).unwrap();
        assert!(row.contains("●python train.p"), "{columns}: {row}");
        assert_eq!(row.contains("3h07"), columns >= 60, "{columns}: {row}");
        assert_eq!(row.contains("[stopped, PID 7 in its container]"), columns == 120, "{columns}: {row}");
    }
}

#[test]
fn order_filter_and_selection() {
    let mut screen = screen();
    assert!(line_of(&lines(&screen), "alice") < line_of(&lines(&screen), "bob"));
    screen.press(Key::Letter('r'));
    assert!(line_of(&lines(&screen), "alice") > line_of(&lines(&screen), "bob"));
    for letter in "/BOB".chars() {
        assert_eq!(screen.press(Key::Letter(letter)), None);
    }
    assert_eq!(lines(&screen)[23], "filter: BOB▏");
    screen.press(Key::Enter);
    assert!(!lines(&screen).iter().any(|line| line.contains("alice")));
    assert_eq!(screen.press(Key::Escape), None, "first the filter is dropped");
    assert!(lines(&screen).iter().any(|line| line.contains("alice")));
    assert_eq!(screen.press(Key::Escape), Some(Request::Quit));
}

#[test]
fn sites_of_a_recorded_program_and_why_there_are_none() {
    let mut screen = screen();
    assert_eq!(screen.press(Key::Enter), None);
    line_of(&lines(&screen), "not recorded: start it with makeroom run");
    screen.press(Key::Escape);
    screen.press(Key::Down);
    let request = Request::Sites { pid: 9, recording: "/proc/9/fd/512".into() };
    assert_eq!(screen.press(Key::Enter), Some(request));
    line_of(&lines(&screen), "reading");
    let site = |place: &str, callees| Site {
        caller: None,
        place: place.into(),
        is_own: true,
        through: None,
        bytes: Bytes::gib(1),
        blocks: 1,
        callees,
    };
    screen.show_sites(9, Ok(vec![site("train.py:25 step", vec![site("model.py:7 forward", Vec::new())])]));
    let lines = lines(&screen);
    assert_eq!(line_of(&lines, "train.py:25 step") + 1, line_of(&lines, "  model.py:7 forward"));
}

/// Other users choose the names of their processes and the lines of their recordings.
#[test]
fn a_hostile_name_does_nothing_to_the_screen() {
    let mut screen = Screen::new(false);
    let mut account = account(Bytes::gib(40));
    let process = account.devices[0].holders[0].process.as_mut().unwrap();
    process.command = vec!["tr\u{202e}ain\u{1b}[8m\nbob".into()];
    account.devices[0].name = "H\u{200b}100".into();
    screen.update(account);
    screen.press(Key::Enter);
    screen.show_sites(7, Err("a\u{2066}b".into()));
    let lines = lines(&screen);
    line_of(&lines, "tr\u{fffd}ain [8m bob");
    line_of(&lines, "a\u{fffd}b");
}

#[test]
fn the_selected_process_stays_selected_wherever_its_row_goes() {
    let mut screen = screen();
    screen.press(Key::Down);
    let request = Some(Request::Sites { pid: 9, recording: "/proc/9/fd/512".into() });
    assert_eq!(screen.press(Key::Enter), request);
    screen.press(Key::Letter('r'));
    assert_eq!(screen.press(Key::Enter), request, "its row is the first now");
    screen.press(Key::Letter('r'));
    screen.update(account(Bytes::gib(1)));
    assert_eq!(screen.press(Key::Enter), request, "it holds more than the other now");
    screen.press(Key::Down);
    screen.press(Key::Down);
    assert_eq!(screen.press(Key::Enter), None, "below the last row there is none");
    assert_eq!(screen.sites.as_ref().map(|sites| sites.pid), Some(7));
}

#[test]
fn parts_of_a_divided_card_are_devices() {
    let mut account = account(Bytes::gib(40));
    let mut whole = account.devices.remove(0);
    let parts = [0, 1].map(|part| {
        let label = Label { card: 0, part: Some(part) };
        Device { label, uuid: format!("MIG-{part}"), ..whole.clone() }
    });
    whole.parts = parts.into();
    whole.holders.clear();
    account.devices.push(whole);
    let mut screen = Screen::new(false);
    screen.update(account);
    let lines = lines(&screen);
    assert!(lines[1].starts_with("GPU 0/0") && lines[2].starts_with("GPU 0/1"), "{lines:#?}");
    assert_eq!(lines.iter().filter(|line| line.contains("alice")).count(), 2);
}

#[test]
fn figures_that_make_no_sense_are_drawn() {
    let mut account = account(Bytes::gib(1));
    account.devices[0].holders[0].bytes = Some(Bytes::new(u64::MAX));
    let mut screen = Screen::new(false);
    screen.update(account);
    assert!(lines(&screen).iter().any(|line| line.contains("alice") && line.contains('█')));
}

#[test]
fn a_terminal_that_can_only_print_gets_the_same_without_keys() {
    let text = screen().plain(80, 24);
    assert!(text.starts_with("makeroom top  node"), "{text}");
    assert!(text.contains("alice") && !text.contains("q quit") && !text.contains('\u{1b}'), "{text}");
    assert!(text.lines().count() < 10 && text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn a_driver_that_cannot_be_asked_is_said() {
    let mut screen = Screen::new(true);
    screen.update(Account {
        driver: Err(SurveyError::NoDriver),
        devices: Vec::new(),
        ..account(Bytes::ZERO)
    });
    let lines = lines(&screen);
    assert_eq!(lines[0], "makeroom top: the NVIDIA driver is not loaded");
    line_of(&lines, "modprobe nvidia");
}

#[test]
fn a_process_that_is_gone_takes_its_history_with_it() {
    let mut screen = screen();
    let mut next = account(Bytes::gib(1));
    next.devices[0].holders.remove(0);
    screen.update(next);
    assert_eq!(screen.history.len(), 1);
}

#[test]
fn the_whole_screen_with_its_styles() {
    let mut screen = Screen::new(true);
    screen.update(account(Bytes::gib(1)));
    screen.update(account(Bytes::gib(60)));
    screen.press(Key::Enter);
    let expected = [
        "\u{1b}[1mmakeroom top  node  driver 580.1, CUDA 13.0\u{1b}[0m",
        "\u{1b}[1mGPU 0   \u{1b}[0m\u{1b}[33m█████████████    \u{1b}[0m 65.00 GiB of  80.00 GiB  81 %  no …",
        "",
        "\u{1b}[2m GPU  PROCESS USER         MEMORY    AGE COMMAND\u{1b}[0m",
        "\u{1b}[7m   0        7 alice     60.00 GiB        python train.py --a-…\u{1b}[0m",
        "\u{1b}[33m   0        9 bob        2.00 GiB       ●python train.py…  [s…\u{1b}[0m",
        "\u{1b}[1mlines of code of 7 at its peak, from its recording (esc close…\u{1b}[0m",
        "  not recorded: start it with makeroom run -- PROGRAM to see",
        "  its lines of code",
        "",
        "",
        "",
        "",
        "\u{1b}[2mq quit  s sort: memory  r reverse  / filter  ↑↓ select  enter \u{1b}[0m",
    ];
    assert_eq!(screen.draw(62, 14), expected);
    screen.press(Key::Down);
    screen.press(Key::Letter('/'));
    let expected = [
        "\u{1b}[1mmakeroom top  node  driver 580.1, CUDA 13.0\u{1b}[0m",
        "\u{1b}[1mGPU 0   \u{1b}[0m\u{1b}[33m█████████████    \u{1b}[0m 65.00 GiB of  80.00 GiB  81 %  no owner: 3.00 GiB  N…",
        "\u{1b}[2m GPU  PROCESS USER         MEMORY HISTORY     AGE COMMAND\u{1b}[0m",
        "   0        7 alice     60.00 GiB ▁█              python train.py --a-long-opti…",
        "\u{1b}[7m\u{1b}[33m   0        9 bob        2.00 GiB ██             ●python train.py --…  [stopped]\u{1b}[0m",
        "\u{1b}[1mlines of code of 7 at its peak, from its recording (esc closes)\u{1b}[0m",
        "  not recorded: start it with makeroom run -- PROGRAM to see its lines of code",
        "",
        "\u{1b}[1mfilter: \u{1b}[0m▏",
    ];
    assert_eq!(screen.draw(80, 9), expected);
}

#[test]
fn any_size_gets_as_many_lines_as_rows() {
    let mut screen = screen();
    for is_open in [false, true] {
        if is_open {
            screen.press(Key::Enter);
        }
        for columns in (0..20).chain([59, 60, 75, 76, 99, 100, u16::MAX]) {
            for rows in (0..30).chain([1000]) {
                let lines = screen.lines(columns, rows);
                assert_eq!(lines.len(), usize::from(rows), "{columns}");
                let widest = lines.iter().map(|line| line.text().chars().count()).max();
                assert!(widest.unwrap_or(0) <= usize::from(columns), "{columns}x{rows}");
            }
        }
    }
}
