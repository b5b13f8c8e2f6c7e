//! Sizes of arrays, computed from their descriptors because the driver does not report them. The GPU's tiling adds to
//! them; how much is unknown.

use std::ffi::c_void;

use crate::fields::field;

/// `CUDA_ARRAY3D_LAYERED` and `CUDA_ARRAY3D_CUBEMAP`: the depth is a number of layers or faces.
const HAS_LAYERS: u32 = 0x01 | 0x04;
/// `CUDA_ARRAY3D_SPARSE` and `CUDA_ARRAY3D_DEFERRED_MAPPING`: memory is mapped into the array later.
const WITHOUT_MEMORY: u32 = 0x40 | 0x80;

/// Size of an array in bytes, from its descriptor: `u32` dimensions (before CUDA 3.2) or 64-bit ones, with or without
/// depth.
///
/// # Safety
///
/// `descriptor` is null or was passed to the driver, with the layout given by `SIZE` and `has_depth`.
pub(crate) unsafe fn array_bytes<const SIZE: usize>(descriptor: *const c_void, has_depth: bool) -> u64 {
    // SAFETY: the caller's guarantee.
    unsafe { Shape::read::<SIZE>(descriptor, has_depth) }.bytes()
}

/// Size of a mipmapped array in bytes: the sum of its levels.
///
/// # Safety
///
/// `descriptor` is null or was passed to the driver, with 64-bit dimensions and depth.
pub(crate) unsafe fn mipmapped_bytes(descriptor: *const c_void, levels: u32) -> u64 {
    // SAFETY: the caller's guarantee.
    let shape = unsafe { Shape::read::<8>(descriptor, true) };
    // Like the driver: at least one level, and none after that of one element.
    let levels = levels.clamp(1, shape.most_levels());
    (0..levels).fold(0, |sum: u64, level| sum.saturating_add(shape.level(level).bytes()))
}

/// A descriptor. Unused sides are 0.
#[derive(Clone, Copy)]
struct Shape {
    width: u64,
    height: u64,
    depth: u64,
    element: u64,
    flags: u32,
}

impl Shape {
    /// # Safety
    ///
    /// As for [`array_bytes`].
    unsafe fn read<const SIZE: usize>(descriptor: *const c_void, has_depth: bool) -> Self {
        let side = |index: usize| {
            // SAFETY: width, height (and depth) come first, `SIZE` bytes each.
            unsafe {
                if SIZE == 4 {
                    u64::from(field::<u32>(descriptor, index * 4))
                } else {
                    field::<u64>(descriptor, index * 8)
                }
            }
        };
        let after = if has_depth { 3 } else { 2 } * SIZE;
        // SAFETY: the format and the number of channels follow the sides, four bytes each.
        let (format, channels): (u32, u32) =
            unsafe { (field(descriptor, after), field(descriptor, after + 4)) };
        // SAFETY: with a depth, the flags follow.
        let flags = if has_depth { unsafe { field(descriptor, after + 8) } } else { 0 };
        Self {
            width: side(0),
            height: side(1),
            depth: if has_depth { side(2) } else { 0 },
            element: u64::from(channels.max(1)).saturating_mul(format_bytes(format)),
            flags,
        }
    }

    fn bytes(self) -> u64 {
        if self.flags & WITHOUT_MEMORY != 0 {
            return 0;
        }
        self.width
            .saturating_mul(self.height.max(1))
            .saturating_mul(self.depth.max(1))
            .saturating_mul(self.element)
    }

    fn has_layers(self) -> bool {
        self.flags & HAS_LAYERS != 0
    }

    fn most_levels(self) -> u32 {
        let depth = if self.has_layers() { 0 } else { self.depth };
        self.width.max(self.height).max(depth).max(1).ilog2() + 1
    }

    /// A mipmap level, smaller than 64: each halves the sides, but not the number of layers.
    fn level(self, level: u32) -> Self {
        let half = |side: u64| if side == 0 { 0 } else { (side >> level).max(1) };
        let depth = if self.has_layers() { self.depth } else { half(self.depth) };
        Self { width: half(self.width), height: half(self.height), depth, ..self }
    }
}

/// Bytes per channel of a `CUarray_format`; compressed and planar formats count as one.
fn format_bytes(format: u32) -> u64 {
    match format {
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_measured() {
        let flat: [u64; 3] = [64, 32, 0x20 | 4 << 32];
        let deep: [u64; 5] = [16, 0, 8, 0x02 | 1 << 32, 0];
        let sparse: [u64; 5] = [16, 0, 8, 0x02 | 1 << 32, 0x40];
        let old: [u32; 4] = [10, 0, 0x01, 2];
        // SAFETY: null is allowed, and the descriptors have the stated layouts.
        unsafe {
            assert_eq!(array_bytes::<8>(std::ptr::null(), true), 0);
            assert_eq!(array_bytes::<8>(flat.as_ptr().cast(), false), 64 * 32 * 4 * 4);
            assert_eq!(array_bytes::<8>(deep.as_ptr().cast(), true), 16 * 8 * 2);
            assert_eq!(array_bytes::<8>(sparse.as_ptr().cast(), true), 0);
            assert_eq!(array_bytes::<4>(old.as_ptr().cast(), false), 20);
        }
    }

    #[test]
    fn levels_halve_the_sides_that_an_array_has() {
        // Width, height, depth, flags, levels; elements of one byte.
        let elements = |width: u64, height: u64, depth: u64, flags: u64, levels| {
            let shape: [u64; 5] = [width, height, depth, 0x01 | 1 << 32, flags];
            // SAFETY: the descriptor has this layout.
            unsafe { mipmapped_bytes(shape.as_ptr().cast(), levels) }
        };
        assert_eq!(elements(1024, 0, 0, 0, 20), 2047);
        assert_eq!(elements(1024, 1, 0, 0, 3), 1024 + 512 + 256);
        assert_eq!(elements(8, 8, 0, 0, 4), 64 + 16 + 4 + 1);
        assert_eq!(elements(8, 8, 8, 0, 2), 512 + 64);
        // Layers and the faces of a cube are not halved, and do not make more levels.
        assert_eq!(elements(8, 8, 100, 0x01, 9), 100 * (64 + 16 + 4 + 1));
        assert_eq!(elements(8, 8, 6, 0x04, 1), 6 * 64);
        assert_eq!(elements(8, 8, 0, 0x40, 4), 0);
        // What the driver rejects, without overflow.
        assert_eq!(elements(0, 0, 0, 0, 0), 0);
        assert_eq!(elements(u64::MAX, u64::MAX, 2, 0, u32::MAX), u64::MAX);
    }
}
