//! Small trees with one thing wrong each, and what is said of it.

mod claims;
mod results;
mod tree;
