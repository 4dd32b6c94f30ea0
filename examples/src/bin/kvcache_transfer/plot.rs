//! The file of `--plot`: the plan of a block, drawn.

use crate::args::Args;
use crate::figure::Figure;
use examples::chart::PlotFile;

/// The file of a drawing, known to be writable before the plan is made.
#[derive(Debug)]
pub struct Plot(PlotFile);

impl Plot {
    /// Opens the file that the flags name, if they name one.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn open(args: &Args) -> anyhow::Result<Option<Self>> {
        let file = args.plot.clone().map(PlotFile::open).transpose()?;
        Ok(file.map(Self))
    }

    /// Draws the plan that the flags describe.
    ///
    /// # Errors
    ///
    /// The flags name layouts between which there is no plan, or the system's error at the file.
    pub fn write(self, args: &Args) -> anyhow::Result<()> {
        self.0.write(Figure::new(args)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::fs;

    fn args(path: &str) -> Args {
        Args::parse_from(["kvcache_transfer", "--explain", "--plot", path])
    }

    #[test]
    fn an_old_drawing_stays_until_the_new_one_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.svg");
        fs::write(&path, "old").unwrap();
        let args = args(path.to_str().unwrap());
        let plot = Plot::open(&args).unwrap().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        plot.write(&args).unwrap();
        assert!(fs::read_to_string(&path).unwrap().starts_with("<svg"));
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let error = Plot::open(&args("/nonexistent/plan.svg")).unwrap_err().to_string();
        assert_eq!(error, "--plot /nonexistent/plan.svg cannot be written");
    }
}
