//! Devices: indices, names, memory, attributes.

use std::ffi::c_char;

use makeroom_simcard as card;

use crate::abi::{Out, Text, device_number, write_text};
use crate::call::driver_functions;
use crate::driver::Session;
use crate::status::{Result, Status};

/// Attributes from number 1 on, as an H200 with driver 580 reports them. Those specific to the simulated GPU are in
/// [`attribute`].
#[rustfmt::skip]
const ATTRIBUTES: [i32; 147] = [
    1024, 1024, 1024, 64, 2_147_483_647, 65535, 65535, 49152, 65536, 32, 2_147_483_647, 65536, 1_980_000, 512,
    1, 132, 0, 0, 1, 0, 131_072, 131_072, 65536, 16384, 16384, 16384, 32768, 32768, 2048, 512, 1, 1, 0, 6, 0,
    3_201_000, 6016, 62_914_560, 2048, 3, 1, 32768, 2048, 1, 32768, 32768, 8192, 8192, 32768, 0, 32, 32768,
    32768, 2046, 32768, 131_072, 65536, 16384, 16384, 16384, 32768, 2048, 32768, 32768, 2048, 32768, 32768,
    2046, 268_435_456, 131_072, 65000, 2_097_120, 32768, 32768, 9, 0, 32768, 1, 1, 1, 233_472, 65536, 1, 0, 0,
    0, 2, 0, 1, 1, 1, 0, 0, 0, 1, 1, 232_448, 0, 1, 0, 0, 1, 1, 0, 0, 32, 1, 39_321_600, 134_217_728, 1, 1024,
    1, 1, 1, 1, 1, 1, 100, 9, 1, 1, 1, 1, 1, 1, 4, 1, 1, 1, 0, -1, 0, 0, 0, 0, 0, 0, 0, 590_680_286,
    415_174_878, 1, 1, 0, 1, 1, 0, 0,
];

/// Attributes of an H200 that are 0 here: shareable handles, `GPUDirect`, fabric, multicast, compression, sparse
/// arrays.
const ABSENT: [u32; 8] = [103, 110, 112, 116, 117, 119, 128, 132];

fn attribute(number: u32, device: usize) -> Result<i32> {
    const BUS: u32 = 33;
    const DEVICE_IDENTITIES: [u32; 2] = [139, 140];
    match number {
        BUS => Ok(device_number(device + 1)),
        _ if ABSENT.contains(&number) || DEVICE_IDENTITIES.contains(&number) => Ok(0),
        _ => {
            let index = (number as usize).checked_sub(1).ok_or(Status::INVALID_VALUE)?;
            ATTRIBUTES.get(index).copied().ok_or(Status::INVALID_VALUE)
        }
    }
}

driver_functions! {
    fn cuDeviceGetCount(count: Out<i32>) |_| {
        let session = Session::open()?;
        count.set(device_number(session.machine.devices()))
    }

    fn cuDeviceGet(device: Out<i32>, ordinal: i32) |_| {
        Session::open()?.machine.device(ordinal)?;
        device.set(ordinal)
    }

    fn cuDeviceGetName(name: Out<c_char>, size: i32, device: i32) |_| {
        let device = Session::open()?.machine.device(device)?;
        write_text(name, size, &card::name(device))
    }

    fn cuDeviceGetUuid_v2 = cuDeviceGetUuid(identity: Out<[u8; 16]>, device: i32) |_| {
        let device = Session::open()?.machine.device(device)?;
        identity.set(card::uuid(device))
    }

    fn cuDeviceTotalMem_v2(bytes: Out<u64>, device: i32) |_| {
        let session = Session::open()?;
        let device = session.machine.device(device)?;
        bytes.set(session.machine.memory(device).1)
    }

    fn cuDeviceGetAttribute(value: Out<i32>, number: u32, device: i32) |_| {
        let device = Session::open()?.machine.device(device)?;
        value.required()?.set(attribute(number, device)?)
    }

    fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) |_| {
        const MAJOR: u32 = 75;
        const MINOR: u32 = 76;
        let device = Session::open()?.machine.device(device)?;
        major.set(attribute(MAJOR, device)?)?;
        minor.set(attribute(MINOR, device)?)
    }

    fn cuDeviceGetPCIBusId(text: Out<c_char>, size: i32, device: i32) |_| {
        let device = Session::open()?.machine.device(device)?;
        write_text(text, size, &card::bus_id(device)[4..])
    }

    fn cuDeviceGetByPCIBusId(device: Out<i32>, text: Text) |_| {
        let session = Session::open()?;
        let wanted = text.bytes()?.to_ascii_uppercase();
        let mut devices = 0..session.machine.devices();
        let found = devices.find(|device| {
            let whole = card::bus_id(*device);
            wanted == whole.as_bytes() || wanted == whole.as_bytes()[4..]
        });
        device.set(device_number(found.ok_or(Status::INVALID_DEVICE)?))
    }

    fn cuDeviceCanAccessPeer(possible: Out<i32>, device: i32, peer: i32) |_| {
        let session = Session::open()?;
        let pair = (session.machine.device(device)?, session.machine.device(peer)?);
        possible.set(i32::from(pair.0 != pair.1))
    }

    fn cuDeviceGetP2PAttribute(value: Out<i32>, number: u32, device: i32, peer: i32) |_| {
        let session = Session::open()?;
        if session.machine.device(device)? == session.machine.device(peer)? {
            return Err(Status::INVALID_DEVICE);
        }
        let known = match number {
            1 => 0,
            2..=4 => 1,
            _ => return Err(Status::INVALID_VALUE),
        };
        value.set(known)
    }
}
