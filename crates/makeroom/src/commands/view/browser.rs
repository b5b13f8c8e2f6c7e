//! Opens a page in a browser, where there is one.

use std::env;

/// Opens a page; says whether anybody could be asked to. Without a screen nobody is: what opens pages there is a browser in
/// the terminal, if anything, and the terminal is in use.
pub(super) fn open(url: &str) -> bool {
    let has_screen = cfg!(target_os = "macos")
        || ["BROWSER", "DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"]
            .iter()
            .any(|name| env::var_os(name).is_some_and(|value| !value.is_empty()));
    has_screen && open::that_detached(url).is_ok()
}
