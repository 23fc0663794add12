#![no_main]
fuzz::libfuzzer!(commands);
