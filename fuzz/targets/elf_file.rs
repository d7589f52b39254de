#![no_main]
#![allow(missing_docs)]

isotherm_fuzz::target!(elf_file);
