#![no_main]
fuzz::libfuzzer!(model);
