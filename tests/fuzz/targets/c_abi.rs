#![no_main]
fuzz::libfuzzer!(c_abi);
