#![no_main]
fuzz::libfuzzer!(frame_ring);
