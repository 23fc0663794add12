#![no_main]
fuzz::libfuzzer!(config);
