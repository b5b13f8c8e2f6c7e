//! The line of a program's source that an error text names, however the program writes it.
//!
//! | wording | who writes it so |
//! |---|---|
//! | `src/solver.cu:214`, `solver.cu(214)`, `solver.cu 214` | checks around CUDA calls |
//! | `file solver.cu, line 214`, `solver.cu line=214`, `in file 'solver.cu' in line 214` | older checks |
//! | `line 214 of solver.cu`, `line 214 in file solver.cu` | hand-written messages |
//!
//! Files of frameworks and of the system are passed over: a user cannot change them.

use std::sync::LazyLock;

use makeroom_explain::library::is_program_source;
use makeroom_search::{Regex, pattern};

/// Paths may have a drive and spaces' substitutes, not spaces.
const FILE: &str = r"((?:[A-Za-z]:\\)?[\w./\\+~-]*[\w+-]\.(?:cu|cuh|cpp|cc|cxx|c|hpp|h|hip|rs))";

static FILE_THEN_LINE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r#"{FILE}["'`>]?(?::| ?\(|[,;:]? (?:(?:at|on|in) )?(?:line|Line|LINE)[ :=]*(?:nr\.? ?|number )?|, ?| )(\d+)\b"#
    ))
});
static LINE_THEN_FILE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(r#"(?i)\bline[ :=]*(\d+),? (?:of|in|at)(?: file)?[ :=]*["'`<]?{FILE}"#))
});

/// The first line of the program's own source that a text names, as `file:line`.
pub(crate) fn source_line(text: &str) -> Option<String> {
    let after = FILE_THEN_LINE.captures_iter(text).map(|found| (found[1].to_owned(), found[2].to_owned()));
    let before = LINE_THEN_FILE.captures_iter(text).map(|found| (found[2].to_owned(), found[1].to_owned()));
    let (file, line) = before.chain(after).find(|(file, _)| is_program_source(file))?;
    Some(format!("{file}:{line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_name_a_line_is_read() {
        for text in [
            "src/wave.cu:31: out of memory",
            "CUDA error at src/wave.cu:31 code=2(cudaErrorMemoryAllocation) \"cudaMalloc(&p, n)\"",
            "GPUassert: out of memory src/wave.cu 31",
            "CUDA error in src/wave.cu(31): out of memory",
            "Cuda error in file 'src/wave.cu' in line 31 : out of memory.",
            "FAIL file=src/wave.cu line=31 error=2",
            "Fatal error: out of memory (src/wave.cu, line 31)",
            "out of memory at line 31 of src/wave.cu",
            "out of memory in line 31 in file \"src/wave.cu\"",
            "src/wave.cu, 31: out of memory",
        ] {
            assert_eq!(source_line(text).as_deref(), Some("src/wave.cu:31"), "{text}");
        }
    }

    #[test]
    fn a_librarys_line_is_passed_over() {
        assert_eq!(source_line("error at torch/csrc/cuda/Module.cpp:32"), None);
        assert_eq!(source_line("error at /pytorch/aten/src/THC/generic/THCStorage.cu:58"), None);
        assert_eq!(
            source_line("at /usr/include/c++/12/vector.h:4 from own.cpp:9").as_deref(),
            Some("own.cpp:9")
        );
        assert_eq!(source_line("loss 0.3 at step 12"), None);
    }
}
