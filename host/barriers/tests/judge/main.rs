//! Tests of the rules, each with a program that breaks it and one that does not.

mod corpus;
mod fences;
mod layouts;
mod legacy;
mod limits;
mod oracle;
mod order;
mod policies;
mod programs;
mod properties;
mod ranged;
mod splits;
mod uses;
mod words;
mod world;
