//! The place of a process in a job, from its recording.

use std::io::Read;

use makeroom_core::identity::{JobField, JobIdentity};

use super::{Frame, Reader, Record};
use crate::error::Error;

/// Frames that are searched. Recorders write the place into the first one.
const MOST_FRAMES: usize = 4;

/// The identity in the fields of a record. Fields of a later version and values that cannot be true are left out.
pub(super) fn place_in_job(fields: &[(u64, Vec<u8>)]) -> JobIdentity {
    let mut job = JobIdentity::default();
    for (field, value) in fields {
        if let (Some(field), Ok(value)) = (JobField::from_number(*field), std::str::from_utf8(value)) {
            job.set(field, value);
        }
    }
    job
}

impl<R: Read> Reader<R> {
    /// Reads the place of the process in a job, from the beginning of the file only. A process without one, and a
    /// recording of an earlier version, has an empty identity.
    pub fn place_in_job(mut self) -> Result<JobIdentity, Error> {
        for _ in 0..MOST_FRAMES {
            let records = match self.next_frame()? {
                Some(Frame::Records(records)) => records,
                Some(Frame::Unknown { .. }) => continue,
                None => break,
            };
            for record in records {
                if let Record::Job(fields) = record? {
                    return Ok(place_in_job(&fields));
                }
            }
        }
        Ok(JobIdentity::default())
    }
}
