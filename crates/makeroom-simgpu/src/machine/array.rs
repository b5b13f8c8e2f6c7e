//! Arrays: elements of a format in one, two or three dimensions, and mipmap levels.
//!
//! Elements are stored row by row without gaps, in memory that counts like any other. The overhead of a real GPU's
//! tiling is unknown and not counted.

use makeroom_ordered::OrderedMap;

use super::{ArrayId, BlockKind, ContextId, Machine};
use crate::status::{Result, Status};

/// The shape of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayShape {
    /// Elements in a row.
    pub width: u64,
    /// Rows; 0 for one dimension.
    pub height: u64,
    /// Slices, or layers; 0 for two dimensions.
    pub depth: u64,
    /// The driver's number for the element format.
    pub format: u32,
    /// Channels of an element.
    pub channels: u32,
    /// Flags of the call.
    pub flags: u32,
}

impl ArrayShape {
    /// Bytes of an element.
    pub fn element(self) -> Result<u64> {
        let channel = match self.format {
            0x01 | 0x08 => 1,
            0x02 | 0x09 | 0x10 => 2,
            0x03 | 0x0a | 0x20 => 4,
            _ => return Err(Status::INVALID_VALUE),
        };
        if [1, 2, 4].contains(&self.channels) {
            Ok(channel * u64::from(self.channels))
        } else {
            Err(Status::INVALID_VALUE)
        }
    }

    /// Bytes of a row.
    pub fn pitch(self) -> Result<u64> {
        self.width.checked_mul(self.element()?).filter(|bytes| *bytes > 0).ok_or(Status::INVALID_VALUE)
    }

    /// Total bytes.
    fn bytes(self) -> Result<u64> {
        let rows = self.height.max(1).checked_mul(self.depth.max(1)).ok_or(Status::INVALID_VALUE)?;
        self.pitch()?.checked_mul(rows).ok_or(Status::INVALID_VALUE)
    }

    /// Whether the depth is a number of layers or of a cube's faces (`CUDA_ARRAY3D_LAYERED`, `CUDA_ARRAY3D_CUBEMAP`).
    fn has_layers(self) -> bool {
        self.flags & 0x05 != 0
    }

    /// The shape of a mipmap level: each level halves every side, but not the number of layers.
    fn level(self, level: u32) -> Self {
        let half = |side: u64| if side == 0 { 0 } else { (side >> level).max(1) };
        let depth = if self.has_layers() { self.depth } else { half(self.depth) };
        Self { width: half(self.width), height: half(self.height), depth, ..self }
    }
}

/// An array, a mipmap level, or a mipmapped array.
#[derive(Debug)]
pub(super) struct Array {
    pub(super) context: ContextId,
    shape: ArrayShape,
    address: u64,
    /// For a mipmapped array: the number of levels, and those created so far.
    levels: Option<(u32, OrderedMap<u32, ArrayId>)>,
    /// Whether it is a level, which is freed with its array.
    is_level: bool,
}

/// The memory layout of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place3d {
    /// The first element.
    pub address: u64,
    /// Bytes between rows.
    pub pitch: u64,
    /// Rows per slice.
    pub height: u64,
}

impl Machine {
    /// `cuArray3DCreate`.
    pub fn create_array(&mut self, context: ContextId, shape: ArrayShape) -> Result<ArrayId> {
        let address = self.allocate_as(context, shape.bytes()?, BlockKind::Array)?;
        let array = self.identities.fresh();
        self.arrays.insert(array, Array { context, shape, address, levels: None, is_level: false });
        Ok(array)
    }

    /// `cuMipmappedArrayCreate`.
    pub fn create_levels(&mut self, context: ContextId, shape: ArrayShape, levels: u32) -> Result<ArrayId> {
        let sides = [shape.width, shape.height, if shape.has_layers() { 0 } else { shape.depth }];
        let most = sides.into_iter().max().unwrap_or(0).max(1).ilog2() + 1;
        let levels = levels.clamp(1, most);
        let mut bytes = 0_u64;
        for level in 0..levels {
            bytes = bytes.checked_add(shape.level(level).bytes()?).ok_or(Status::INVALID_VALUE)?;
        }
        let address = self.allocate_as(context, bytes, BlockKind::Array)?;
        let array = self.identities.fresh();
        let levels = Some((levels, OrderedMap::new()));
        self.arrays.insert(array, Array { context, shape, address, levels, is_level: false });
        Ok(array)
    }

    /// `cuMipmappedArrayGetLevel`.
    pub fn array_level(&mut self, array: ArrayId, level: u32) -> Result<ArrayId> {
        let found = self.arrays.get(&array).ok_or(Status::INVALID_HANDLE)?;
        let (count, known) = found.levels.as_ref().ok_or(Status::INVALID_HANDLE)?;
        if level >= *count {
            return Err(Status::INVALID_VALUE);
        }
        if let Some(known) = known.get(&level) {
            return Ok(*known);
        }
        let mut address = found.address;
        for below in 0..level {
            address += found.shape.level(below).bytes()?;
        }
        let made = Array {
            context: found.context,
            shape: found.shape.level(level),
            address,
            levels: None,
            is_level: true,
        };
        let id = self.identities.fresh();
        self.arrays.insert(id, made);
        if let Some((_, known)) = self.arrays.get_mut(&array).and_then(|found| found.levels.as_mut()) {
            known.insert(level, id);
        }
        Ok(id)
    }

    /// `cuArrayDestroy`, and `cuMipmappedArrayDestroy` for mipmapped arrays.
    pub fn destroy_array(&mut self, array: ArrayId, with_levels: bool) -> Result<()> {
        let found = self.arrays.get(&array).ok_or(Status::INVALID_HANDLE)?;
        if found.is_level || found.levels.is_some() != with_levels {
            return Err(Status::INVALID_HANDLE);
        }
        let Some(gone) = self.arrays.remove(&array) else { return Ok(()) };
        for level in gone.levels.into_iter().flat_map(|(_, known)| known.into_values()) {
            self.arrays.remove(&level);
        }
        if let Some(block) = self.blocks.remove(&gone.address) {
            self.free_linear(gone.address, block);
        }
        Ok(())
    }

    /// The shape of an array.
    pub fn array_shape(&self, array: ArrayId) -> Result<ArrayShape> {
        Ok(self.arrays.get(&array).ok_or(Status::INVALID_HANDLE)?.shape)
    }

    /// The memory layout of an array.
    pub fn array_place(&self, array: ArrayId) -> Result<Place3d> {
        let found = self.arrays.get(&array).ok_or(Status::INVALID_HANDLE)?;
        Ok(Place3d { address: found.address, pitch: found.shape.pitch()?, height: found.shape.height.max(1) })
    }
}
