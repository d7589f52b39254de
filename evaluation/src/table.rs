//! A table, as text or as Markdown.

use std::fmt::Write;

/// Rows under a head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextTable {
    /// title
    pub title: String,
    /// names of its columns
    pub head: Vec<String>,
    /// rows, with as many cells as there are columns
    pub rows: Vec<Vec<String>>,
}

/// The format of a printed table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableFormat {
    /// columns of equal width
    Text,
    /// as in the documentation
    Markdown,
}

impl TextTable {
    /// The table with its title.
    pub fn print(&self, form: TableFormat) -> String {
        match form {
            TableFormat::Text => self.text(),
            TableFormat::Markdown => self.markdown(),
        }
    }

    fn lines(&self) -> impl Iterator<Item = &Vec<String>> {
        [&self.head].into_iter().chain(&self.rows)
    }

    fn text(&self) -> String {
        let width = |i: usize| {
            self.lines().filter_map(|l| l.get(i)).map(|c| c.chars().count()).max().unwrap_or(0)
        };
        let mut text = format!("{}\n", self.title);
        for line in self.lines() {
            let cells = line.iter().enumerate().map(|(i, c)| format!("{c:<0$}", width(i)));
            let line = cells.collect::<Vec<_>>().join("  ");
            // Writing to memory cannot fail.
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }

    fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = format!("|{}\n", "---|".repeat(self.head.len()));
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("**{}**\n\n{}{rule}{rows}", self.title, line(&self.head))
    }
}

/// A number, or a dash if there is none.
pub fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |v| format!("{v:.digits$}"))
}

/// A share with its sign, in parentheses as in the tables of the mails.
pub fn overhead(percent: Option<f64>) -> String {
    percent.map_or_else(|| "-".to_owned(), |p| format!("({p:.2})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms() {
        let cells = |line: [&str; 2]| line.map(str::to_owned).to_vec();
        let table = TextTable {
            title: "title".to_owned(),
            head: cells(["a", "long"]),
            rows: vec![cells(["longer", &number(Some(1.25), 1)]), cells(["x", &overhead(None)])],
        };
        assert_eq!(table.print(TableFormat::Text), "title\na       long\nlonger  1.2\nx       -\n");
        let markdown = "**title**\n\n| a | long |\n|---|---|\n| longer | 1.2 |\n| x | - |\n";
        assert_eq!(table.print(TableFormat::Markdown), markdown);
        assert_eq!(overhead(Some(-1.234)), "(-1.23)");
    }
}
