#![no_main]
fuzz::libfuzzer!(guestd);
