#![no_main]
#![allow(missing_docs)]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| -> libfuzzer_sys::Corpus {
    isotherm_fuzz::kernel_files(bytes)
});
