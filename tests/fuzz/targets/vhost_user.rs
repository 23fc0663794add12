#![no_main]
fuzz::libfuzzer!(vhost_user);
