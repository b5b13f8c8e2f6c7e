//! Figures that a recording has besides events: those of PyTorch's paged memory. The pages are above the writer, so they
//! register the function that returns them.

use std::sync::OnceLock;

use makeroom_core::PagesUse;

static PAGES: OnceLock<fn() -> Vec<PagesUse>> = OnceLock::new();

/// From now on, the writer gets the figures from this function, which must not wait.
pub(crate) fn set_pages(figures: fn() -> Vec<PagesUse>) {
    let _ = PAGES.set(figures);
}

/// The figures of paged memory, by device.
pub(crate) fn pages() -> Vec<PagesUse> {
    PAGES.get().map(|figures| figures()).unwrap_or_default()
}
