#![no_main]
fuzz::libfuzzer!(scenario);
