#![no_main]
fuzz::libfuzzer!(vsock);
