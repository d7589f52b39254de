#![no_main]
#![allow(missing_docs)]

isotherm_fuzz::target!(lake_file);
