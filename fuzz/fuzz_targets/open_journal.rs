//! Opening a folder of hostile files: no panic, and neither memory nor time out of proportion.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bridge_queue::hostile::open(input));
