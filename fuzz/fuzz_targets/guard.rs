//! A real client under guard, in memory, that listens to hostile bytes: no panic, and no memory out
//! of proportion.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bridge_transport::hostile::listen(input));
