//! Opens the page in a browser.

use std::env;

/// Opens a page. Returns whether a browser or an opener was started. Without a display, none is: it would be a text
/// browser, if any, and the terminal is in use.
pub(super) fn open(url: &str) -> bool {
    let has_screen = cfg!(target_os = "macos")
        || ["BROWSER", "DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"]
            .iter()
            .any(|name| env::var_os(name).is_some_and(|value| !value.is_empty()));
    has_screen && open::that_detached(url).is_ok()
}
