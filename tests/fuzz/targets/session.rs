#![no_main]
fuzz::libfuzzer!(session);
