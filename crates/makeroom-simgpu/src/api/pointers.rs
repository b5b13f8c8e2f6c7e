//! Pointer attributes.

use std::ffi::c_void;

use crate::abi::{In, Out};
use crate::call::driver_functions;
use crate::driver::Session;
use crate::machine::Pointed;
use crate::status::{Result, Status};

const HOST: u32 = 1;
const DEVICE: u32 = 2;
/// The device of an unknown address.
const NO_DEVICE: i32 = -2;

/// A value with the width of its attribute.
enum Value {
    Wide(u64),
    Narrow(u32),
    Flag(bool),
    Tokens([u64; 2]),
}

impl Value {
    fn write(&self, place: Out<c_void>) -> Result<()> {
        match self {
            Self::Wide(value) => place.cast().set(*value),
            Self::Narrow(value) => place.cast().set(*value),
            Self::Flag(value) => place.cast().set(*value),
            Self::Tokens(value) => place.cast().set(*value),
        }
    }
}

/// The value of an attribute for a known address.
fn value(number: u32, address: u64, pointed: &Pointed) -> Result<Value> {
    Ok(match number {
        1 => Value::Wide(pointed.context.map_or(0, |context| context.0)),
        2 => Value::Narrow(if pointed.on_host && !pointed.managed { HOST } else { DEVICE }),
        3 => Value::Wide(address),
        4 if pointed.on_host => Value::Wide(address),
        5 => Value::Tokens([0; 2]),
        6 | 13 => Value::Flag(true),
        7 | 11 => Value::Wide(pointed.start),
        8 => Value::Flag(pointed.managed),
        9 => Value::Narrow(pointed.device as u32),
        10 => Value::Narrow(u32::from(pointed.exchangeable)),
        12 => Value::Wide(pointed.bytes),
        14 => Value::Wide(0),
        15 => Value::Flag(false),
        16 => Value::Narrow(3),
        17 => Value::Wide(pointed.pool.unwrap_or(0)),
        _ => return Err(Status::INVALID_VALUE),
    })
}

/// The value of an attribute for an unknown address.
fn value_of_nothing(number: u32) -> Value {
    match number {
        2 | 10 | 16 => Value::Narrow(0),
        6 | 8 | 13 | 15 => Value::Flag(false),
        9 => Value::Narrow(NO_DEVICE as u32),
        5 => Value::Tokens([0; 2]),
        _ => Value::Wide(0),
    }
}

driver_functions! {
    /// This function and the next one need no current context.
    fn cuPointerGetAttribute(place: Out<c_void>, number: u32, address: u64) |_| {
        let session = Session::open()?;
        let pointed = session.machine.pointed(address).ok_or(Status::INVALID_VALUE)?;
        value(number, address, &pointed)?.write(place)
    }

    /// Unlike the function for one attribute, this one succeeds for any address.
    fn cuPointerGetAttributes(count: u32, numbers: In<u32>, places: Out<Out<c_void>>, address: u64) |_| {
        let session = Session::open()?;
        let pointed = session.machine.pointed(address);
        for (position, number) in numbers.list(count as usize)?.into_iter().enumerate() {
            let known = pointed.as_ref().and_then(|pointed| value(number, address, pointed).ok());
            known.unwrap_or_else(|| value_of_nothing(number)).write(places.place(position)?)?;
        }
        Ok(())
    }

    /// Memory operations are always synchronous here, so this has no effect.
    fn cuPointerSetAttribute(_value: In<u32>, number: u32, address: u64) |call| {
        const SYNCHRONOUS: u32 = 6;
        let (session, _) = call.in_context()?;
        let pointed = session.machine.pointed(address);
        if number == SYNCHRONOUS && pointed.is_some() { Ok(()) } else { Err(Status::INVALID_VALUE) }
    }
}
