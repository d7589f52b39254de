//! Lists on the command line.

use std::str::FromStr;

/// Names with commas between them, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameList<T>(pub Vec<T>);

impl<T: FromStr + PartialEq> FromStr for NameList<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        let mut all = Vec::new();
        for name in text.split(',') {
            let name = name.parse()?;
            if !all.contains(&name) {
                all.push(name);
            }
        }
        Ok(NameList(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_there_once() {
        assert_eq!("3,1,3,2,1".parse(), Ok(NameList(vec![3, 1, 2])));
        assert!("3,,1".parse::<NameList<u32>>().is_err());
    }
}
