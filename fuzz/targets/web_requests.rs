#![no_main]
#![allow(missing_docs)]

isotherm_fuzz::target!(web_requests);
