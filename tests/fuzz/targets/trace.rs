#![no_main]
fuzz::libfuzzer!(trace);
