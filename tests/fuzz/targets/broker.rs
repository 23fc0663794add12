#![no_main]
fuzz::libfuzzer!(broker);
